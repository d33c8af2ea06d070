"""Pillar from outside: SQL and HTTP, what they say, what is refused of them, and what counts while they are away."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import msgspec
import pytest

from device_agent.errors import Refused
from gateway.devices.pillar_rows import shaped
from gateway.devices.pillar_settings import External
from gateway.devices.pillar_threads import AT_ONCE
from tests.peers.pillar_site import pillar_site, write_tree

SECRET = "only where it belongs"
WAIT_SECONDS = 60.0


class Desk(ThreadingHTTPServer):
    """A web server that answers what the test puts there, by path, and keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Page)
        self.pages: dict[str, tuple[int, bytes, dict[str, str]]] = {}
        self.asked: list[str] = []
        self.said: list[str] = []
        self.slow: Event | None = None
        """Until it is set nobody is answered to the end."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def put(self, path: str, body: bytes, status: int = 200, **headers: str) -> None:
        self.pages[path] = (status, body, headers)


class Page(BaseHTTPRequestHandler):
    server: Desk

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.said.append(self.headers.get("Authorization", ""))
        if self.server.slow is not None:
            self.server.slow.wait(WAIT_SECONDS)
        status, body, headers = self.server.pages.get(self.path, (404, b"", {}))
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(ConnectionError):
            self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """The test says what is worth saying."""


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Desk() as made:
        thread = Thread(target=made.serve_forever)
        thread.start()
        try:
            yield made
        finally:
            made.shutdown()
            thread.join()


def database(folder: Path) -> str:
    path = folder / "cameras.db"
    with closing(sqlite3.connect(path)) as store, store:
        store.execute("CREATE TABLE settings (camera TEXT, area TEXT, name TEXT, value)")
        rows = [
            ("cam-1", "net", "port", 80),
            ("cam-1", "net", "key", SECRET),
            ("cam-1", "video", "fps", None),
            ("cam-2", "net", "port", 81),
        ]
        store.executemany("INSERT INTO settings VALUES (?, ?, ?, ?)", rows)
    return f"sqlite3://{path}"


QUERY = "SELECT area, name, value FROM settings WHERE camera = ? ORDER BY rowid"


async def test_rows_are_laid_over_the_files(tmp_path: Path) -> None:
    roots = write_tree(tmp_path / "roots", {"top.sls": "base:\n  '*': [a]", "a.sls": "net: {port: 1, mtu: 1500}\nx: 1"})
    ext = [{"sql": database(tmp_path), "query": QUERY}]
    async with pillar_site(tmp_path, pillar_roots={"base": [str(roots)]}, pillar={"ext": ext}) as site:
        for name in ("cam-1", "cam-2", "cam-3"):
            site.hello(name)
        assert await site.pillar("cam-1") == {
            "net": {"port": 80, "mtu": 1500, "key": SECRET},
            "x": 1,
            "video": {"fps": None},
        }
        assert await site.pillar("cam-2") == {"net": {"port": 81, "mtu": 1500}, "x": 1}
        assert await site.pillar("cam-3") == {"net": {"port": 1, "mtu": 1500}, "x": 1}
        assert site.counted("pillar_compiled") == 1


async def test_asked_first_it_is_seen_by_files_and_lies_below_them(tmp_path: Path) -> None:
    roots = write_tree(
        tmp_path / "roots",
        {
            "top.sls": "base:\n  'net:port:81':\n    - match: pillar\n    - b\n  '*': [a]",
            "a.sls": "seen: {{ pillar.net.port }}\nnet: {port: 1}",
            "b.sls": "matched: true",
        },
    )
    pillar = {"ext": [{"sql": database(tmp_path), "query": QUERY}], "ext_first": True}
    async with pillar_site(tmp_path, pillar_roots={"base": [str(roots)]}, pillar=pillar) as site:
        site.hello("cam-1")
        site.hello("cam-2")
        told = await site.pillar("cam-1")
        assert (told["seen"], told["net"], "matched" in told) == (80, {"port": 1, "key": SECRET}, False)
        assert await site.pillar("cam-2") == {"net": {"port": 1}, "matched": True, "seen": 81}


def test_columns_become_names_as_in_salt() -> None:
    rows = [("a", "b", 1), ("a", "c", 2), ("a", "b", 3)]
    columns = ["one", "two", "three"]

    def made(**told: Any) -> dict[Any, Any]:
        return shaped(columns, rows, External(sql="sqlite3:///x", query="SELECT ?", **told))

    assert made() == {"a": {"b": 3, "c": 2}}
    assert made(as_list=True) == {"a": {"b": [1, 3], "c": 2}}
    assert made(depth=1) == {"a": {"two": "b", "three": 3}}
    assert made(root="db") == {"db": {"a": {"b": 3, "c": 2}}}


@pytest.mark.parametrize(
    "told",
    [
        {"sql": "mysql://root:secret@db/cams", "query": "SELECT ?"},
        {"sql": "postgresql:///cams", "query": "SELECT ?"},
        {"sql": "sqlite3:///x", "query": "DELETE FROM x WHERE a = ?"},
        {"sql": "sqlite3:///x", "query": "SELECT 1"},
        {"http": "ftp://x/%s"},
        {"http": "file:///etc/passwd"},
        {},
        {"http": "http://x/", "sql": "sqlite3:///x", "query": "SELECT ?"},
    ],
)
def test_what_is_no_source_is_refused_with_the_settings(told: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.convert(told, External)
    assert "secret" not in str(error.value)


async def test_an_answer_over_http_by_name_and_grain(desk: Desk, tmp_path: Path) -> None:
    desk.put("/cam-1?site=lis%20bon", b'{"a": {"b": 1}}')
    desk.put("/cam-2?site=porto", b"a:\n  c: [2]\n")
    ext = [{"http": f"{desk.address}/%s?site=<loc:site>"}]
    async with pillar_site(tmp_path, pillar={"ext": ext}) as site:
        site.hello("cam-1", loc={"site": "lis bon"})
        site.hello("cam-2", loc={"site": "porto"})
        site.hello("cam-3")
        assert await site.pillar("cam-1") == {"a": {"b": 1}}
        assert await site.pillar("cam-2") == {"a": {"c": [2]}}
        with pytest.raises(Refused, match="no grain loc:site"):
            await site.pillar("cam-3")
        # While it is fresh it is not asked again.
        await site.pillar("cam-1")
        assert len(desk.asked) == 2
        site.clock.move(61.0)
        await site.pillar("cam-1")
        assert len(desk.asked) == 3


BOMB = b"a: &a [1,1,1,1,1,1,1,1,1]\n" + b"".join(
    b"%c: &%c [%s]\n" % (letter + 1, letter + 1, b",".join([b"*%c" % letter] * 9)) for letter in range(97, 105)
)


@pytest.mark.parametrize(
    ("status", "body", "headers", "why"),
    [
        (500, b"", {}, "status 500"),
        (200, b"x" * (1024 * 1024 + 1), {}, "more than"),
        (200, b"[1, 2]", {}, "not with a mapping"),
        (200, b"{", {}, "no JSON"),
        (200, b"a: [", {}, "no YAML"),
        (200, BOMB, {}, "no YAML"),
        (302, b"", {"Location": "http://localhost:9/elsewhere"}, "another host"),
        (302, b"", {"Location": "file:///etc/passwd"}, "status 302"),
    ],
)
async def test_a_bad_answer_is_none(
    desk: Desk, tmp_path: Path, status: int, body: bytes, headers: dict[str, str], why: str
) -> None:
    desk.put("/", body, status, **headers)
    async with pillar_site(tmp_path, pillar={"ext": [{"http": f"{desk.address}/"}]}) as site:
        site.hello("cam-1")
        with pytest.raises(Refused, match=why):
            await site.pillar("cam-1")


async def test_a_value_of_a_source_that_is_no_text_costs_no_other(desk: Desk, tmp_path: Path) -> None:
    desk.put("/", f'{{"token": {2**70}, "half": "\\ud800", "b": 1}}'.encode())
    async with pillar_site(tmp_path, pillar={"ext": [{"http": f"{desk.address}/"}]}) as site:
        site.hello("cam-1")
        assert await site.pillar("cam-1") == {"token": str(2**70), "half": "\\ud800", "b": 1}


async def test_while_a_source_is_away_its_last_answer_counts_until_it_is_too_old(desk: Desk, tmp_path: Path) -> None:
    desk.put("/", f'{{"k": "{SECRET}"}}'.encode())
    roots = write_tree(tmp_path / "roots", {"top.sls": "base:\n  '*': [a]", "a.sls": "x: 1"})
    source = {"http": f"{desk.address}/", "fresh_seconds": 10, "max_age_seconds": 100}
    told: dict[str, Any] = {"pillar_roots": {"base": [str(roots)]}, "pillar": {"ext": [source]}}
    async with pillar_site(tmp_path, **told) as site:
        site.hello("cam-1")
        assert await site.pillar("cam-1") == {"x": 1, "k": SECRET}
        desk.put("/", b"", 503)
        site.clock.move(50.0)
        assert await site.pillar("cam-1") == {"x": 1, "k": SECRET}
        for file in site.folder.iterdir():
            if file.is_file():
                assert SECRET.encode() not in file.read_bytes(), file.name
    # After a restart too, until it is too old.
    async with pillar_site(tmp_path, **told) as site:
        site.hello("cam-1")
        site.clock.move(50.0)
        assert await site.pillar("cam-1") == {"x": 1, "k": SECRET}
        site.clock.move(51.0)
        with pytest.raises(Refused, match="source_away") as error:
            await site.pillar("cam-1")
        assert SECRET not in str(error.value)
    source["when_away"] = "omit"
    async with pillar_site(tmp_path, **told) as site:
        site.hello("cam-1")
        site.clock.move(101.0)
        pillar = await site.pillar("cam-1")
        assert pillar["x"] == 1
        assert "k" not in pillar
        assert pillar["_errors"] == [
            f"Failed to load ext_pillar {desk.address}/: it answered with status 503; its last answer is 101 s old"
        ]


async def test_an_answer_counts_for_what_was_asked_and_for_nothing_else(desk: Desk, tmp_path: Path) -> None:
    desk.put("/cam-1/lobby", b'{"k": "of the lobby"}')
    source: dict[str, Any] = {"http": f"{desk.address}/%s/<area>", "fresh_seconds": 1000}
    async with pillar_site(tmp_path, pillar={"ext": [source]}) as site:
        site.hello("cam-1", area="lobby")
        assert await site.pillar("cam-1") == {"k": "of the lobby"}
        site.hello("cam-1", area="vault")
        with pytest.raises(Refused, match="status 404; it never answered"):
            await site.pillar("cam-1")
        for way in ("..", ".", ""):
            site.hello("cam-1", area=way)
            with pytest.raises(Refused, match="no grain area that fits"):
                await site.pillar("cam-1")
        assert desk.asked == ["/cam-1/lobby", "/cam-1/vault"]
    source = {"sql": database(tmp_path), "query": QUERY, "fresh_seconds": 1000}
    async with pillar_site(tmp_path, pillar={"ext": [source]}) as site:
        site.hello("cam-2")
        assert await site.pillar("cam-2") == {"net": {"port": 81}}
    source["query"] = "SELECT name, value FROM settings WHERE camera = ?"
    async with pillar_site(tmp_path, pillar={"ext": [source]}) as site:
        site.hello("cam-2")
        assert await site.pillar("cam-2") == {"port": 81}


async def test_who_asks_does_not_choose_what_files_are_told_by_sources(tmp_path: Path) -> None:
    files = {
        "top.sls": "base:\n  'net:port:81':\n    - match: pillar\n    - b\n  '*': [a]",
        "a.sls": "seen: {{ pillar.net.port }}",
        "b.sls": f"secret: {SECRET}",
    }
    roots = write_tree(tmp_path / "roots", files)
    pillar = {"ext": [{"sql": database(tmp_path), "query": QUERY}], "ext_first": True}
    async with pillar_site(tmp_path, pillar_roots={"base": [str(roots)]}, pillar=pillar) as site:
        site.hello("cam-1")
        told = await site.pillar("cam-1", given={"net": {"port": 81}, "more": 1})
        assert (told["seen"], told["more"], "secret" in told) == (80, 1, False)


async def test_a_source_that_never_ends_its_answer_holds_up_nobody_else(desk: Desk, tmp_path: Path) -> None:
    desk.put("/", b'{"k": 1}')
    desk.slow = Event()
    slow = {"http": f"{desk.address}/", "seconds": 1.5, "when_away": "omit"}
    ext = [slow, {"sql": database(tmp_path), "query": QUERY}]
    async with pillar_site(tmp_path, pillar={"ext": ext}) as site:
        names = [f"cam-{number}" for number in range(1, 30)]
        for name in names:
            site.hello(name)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(site.pillar(name)) for name in names]
            assert tasks[0].result()["net"]["port"] == 80
            assert all("_errors" in task.result() for task in tasks)
            # It is left alone for a while, and then asked again.
            asked = len(desk.asked)
            assert asked <= AT_ONCE
            [error] = (await site.pillar("cam-1"))["_errors"]
            assert "asked again in 15 s" in error
            assert len(desk.asked) == asked
        finally:
            desk.slow.set()
        desk.slow = None
        site.clock.move(16.0)
        assert (await site.pillar("cam-1"))["k"] == 1


async def test_a_clock_that_is_set_makes_no_answer_old(desk: Desk, tmp_path: Path) -> None:
    desk.put("/", b'{"k": 1}')
    source = {"http": f"{desk.address}/", "fresh_seconds": 10, "max_age_seconds": 100}
    async with pillar_site(tmp_path, pillar={"ext": [source]}) as site:
        site.clock.step_wall(-56 * 365 * 86_400.0)
        site.hello("cam-1")
        assert await site.pillar("cam-1") == {"k": 1}
        site.clock.step_wall(56 * 365 * 86_400.0)
        await site.pillar("cam-1")
        assert len(desk.asked) == 1
        desk.put("/", b"", 503)
        site.clock.move(50.0)
        assert await site.pillar("cam-1") == {"k": 1}
        site.clock.move(51.0)
        with pytest.raises(Refused, match="its last answer is 101 s old"):
            await site.pillar("cam-1")


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT 'a', zeroblob(100000000) WHERE ? = ?1", "DataError"),
        ("SELECT value, hex(zeroblob(100000)) FROM generate WHERE camera = ?", "more than 1048576 bytes"),
        ("WITH RECURSIVE n(x) AS (SELECT ? UNION ALL SELECT 1 FROM n) SELECT x, 1 FROM n", "more than 10000 rows"),
    ],
)
async def test_a_query_that_says_too_much_is_stopped(query: str, why: str, tmp_path: Path) -> None:
    source = {"sql": database(tmp_path), "query": query.replace("?1", "'cam-1'")}
    with closing(sqlite3.connect(tmp_path / "cameras.db")) as store, store:
        store.execute("CREATE TABLE generate (camera TEXT, value)")
        store.executemany("INSERT INTO generate VALUES ('cam-1', ?)", [(number,) for number in range(100)])
    async with pillar_site(tmp_path, pillar={"ext": [source]}) as site:
        site.hello("cam-1")
        with pytest.raises(Refused, match=why):
            await site.pillar("cam-1")


async def test_a_name_and_a_password_are_said_to_the_source_and_to_nobody_else(
    desk: Desk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk.put("/a?x", b"", 302, Location="/b")
    desk.put("/b", b'{"k": 1}')
    address = desk.address.replace("://", "://desk:p%40ss-word@")
    async with pillar_site(tmp_path, pillar={"ext": [{"http": f"{address}/a?x", "fresh_seconds": 0}]}) as site:
        site.hello("cam-1")
        assert await site.pillar("cam-1") == {"k": 1}
        assert desk.said == ["Basic ZGVzazpwQHNzLXdvcmQ="] * 2
        desk.put("/b", b"", 500)
        site.hello("cam-2")
        with pytest.raises(Refused) as error:
            await site.pillar("cam-2")
    assert "ss-word" not in f"{error.value} {caplog.text}"
