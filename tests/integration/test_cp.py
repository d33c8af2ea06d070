"""cp.* on real hosts and a real file server: what is fetched is right, and whole or not there at all."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from device_agent import files, loader, local_files
from device_agent.ended import Ended
from device_agent.errors import Refused
from device_agent.own import Own
from device_agent.protocol.file_questions import (
    CHUNK,
    CHUNK_BYTES,
    LIST,
    AskChunk,
    Listing,
    decode,
    encode,
)
from device_agent.questions import Unanswered
from gateway.files.settings import FilesSettings
from tests.peers.file_server import Server, server, settled, sha256
from tests.peers.host_places import KINDS, Beds, Place, place

LARGE = CHUNK_BYTES * 3 + 77


class Link:
    """The station as a device reaches it: a link that a test can break."""

    def __init__(self, made: Server) -> None:
        self.made = made
        self.chunks = 0
        self.before: Any = None
        self.cut = False

    async def ask(self, about: str, body: bytes = b"", *, patience: float = 60.0) -> bytes:
        if self.cut:
            raise Unanswered("nobody answers")
        if self.before is not None:
            await self.before(about, body)
        answer = await self.made.ask(about, body)
        self.chunks += about == CHUNK
        return answer


class Scene:
    """A device, its link, and the folder that is served."""

    def __init__(self, there: Place, link: Link, srv: Path) -> None:
        self.there, self.link, self.srv = there, link, srv
        self.own = Own(station=link, cache_dir=there.at("cache"))

    async def call(self, fun: str, *arg: Any, **kwarg: Any) -> Ended:
        return await loader.call(f"cp.{fun}", self.there.host, list(arg), kwarg, self.own)

    async def ok(self, fun: str, *arg: Any, **kwarg: Any) -> Any:
        ended = await self.call(fun, *arg, **kwarg)
        assert ended.outcome == "ok", ended
        return ended.value

    async def failed(self, why: str, fun: str, *arg: Any, **kwarg: Any) -> Any:
        ended = await self.call(fun, *arg, **kwarg)
        assert (ended.outcome, why in ended.why) == ("failed", True), ended
        return ended.value

    def names(self) -> list[str]:
        return sorted(path.name for path in self.there.outside.iterdir())


async def scene_on(kind: str, beds: Beds, folder: Path) -> AsyncIterator[Scene]:
    (folder / "place").mkdir()
    settings = FilesSettings(receive=True, receive_megabytes=1)
    roots = {"base": [folder / "srv"], "next": [folder / "next"]}
    async with (
        place(kind, beds, folder / "place") as there,
        server(folder / "up", roots, settings=settings) as made,
    ):
        yield Scene(there, Link(made), folder / "srv")


@pytest.fixture(params=KINDS)
async def scene(request: pytest.FixtureRequest, host_beds: Beds, tmp_path: Path) -> AsyncIterator[Scene]:
    async for made in scene_on(request.param, host_beds, tmp_path):
        yield made


@pytest.fixture
async def here(host_beds: Beds, tmp_path: Path) -> AsyncIterator[Scene]:
    async for made in scene_on("local", host_beds, tmp_path):
        yield made


async def test_a_file_is_fetched_and_nothing_but_it_is_left(scene: Scene) -> None:
    data = settled(scene.srv / "camera/fw.bin", os.urandom(LARGE))
    target = scene.there.at("fw.bin")
    assert await scene.ok("get_file", "salt://camera/fw.bin", target) == target
    assert (scene.there.outside / "fw.bin").read_bytes() == data
    assert scene.names() == ["fw.bin"]
    # What is there already is not fetched again.
    before = scene.link.chunks
    assert await scene.ok("get_file", "salt://camera/fw.bin", target) == target
    assert scene.link.chunks == before
    (scene.there.outside / "folder").mkdir()
    assert await scene.ok("get_file", "salt://camera/fw.bin", scene.there.at("folder")) == scene.there.at(
        "folder/fw.bin"
    )
    deep = scene.there.at("not/there/file")
    assert await scene.failed("no folder", "get_file", "salt://camera/fw.bin", deep) is False
    assert await scene.ok("get_file", "salt://camera/fw.bin", deep, makedirs=True) == deep
    assert (scene.there.outside / "not/there/file").read_bytes() == data
    assert await scene.failed("there is no absent", "get_file", "salt://absent", target) == ""
    assert await scene.failed("is a character", "get_file", "salt://camera/fw.bin", "/dev/null") is None


async def test_a_fetch_that_was_cut_goes_on_and_the_old_file_stays_until_it_is_whole(scene: Scene) -> None:
    data = settled(scene.srv / "a", os.urandom(LARGE))
    (scene.there.outside / "a").write_bytes(b"the old one")
    asked: list[int] = []

    async def stop(about: str, body: bytes) -> None:
        if about == CHUNK:
            asked.append(decode(body, AskChunk).offset)
            if len(asked) == 3:
                raise Refused("cache_full", "as if")

    scene.link.before = stop
    await scene.failed("cache_full", "get_file", "salt://a", scene.there.at("a"))
    assert (scene.there.outside / "a").read_bytes() == b"the old one"
    assert len(scene.names()) == 2
    asked.clear()
    scene.link.before = None
    before = scene.link.chunks
    await scene.ok("get_file", "salt://a", scene.there.at("a"))
    assert scene.link.chunks - before == 2
    assert (scene.there.outside / "a").read_bytes() == data
    assert scene.names() == ["a"]


async def test_a_file_that_becomes_another_one_is_begun_anew(here: Scene) -> None:
    settled(here.srv / "a", os.urandom(LARGE))
    turns = count(1)
    second = os.urandom(LARGE)

    async def change(about: str, _: bytes) -> None:
        if about == CHUNK and next(turns) == 3:
            settled(here.srv / "a", second)

    here.link.before = change
    await here.ok("get_file", "salt://a", here.there.at("a"))
    assert (here.there.outside / "a").read_bytes() == second
    assert here.names() == ["a"]
    assert here.link.made.refused("changed") == 1


async def test_what_is_left_of_another_content_is_gone_on_with_by_nobody(here: Scene) -> None:
    data = settled(here.srv / "a", os.urandom(LARGE))
    left = here.there.outside / f".a.outstation-{'0' * 32}.part"
    left.write_bytes(b"of another one")
    same = here.there.outside / f".a.outstation-{sha256(data)[:32]}.part"
    same.write_bytes(b"\0" * (2 * CHUNK_BYTES + 5))
    # Whatever spoiled it: the whole is judged, and fetched anew.
    await here.ok("get_file", "salt://a", here.there.at("a"))
    assert (here.there.outside / "a").read_bytes() == data
    assert here.names() == ["a"]


async def test_a_server_that_sends_something_else_is_not_believed(here: Scene) -> None:
    settled(here.srv / "a", b"promised")

    class Liar(Link):
        async def ask(self, about: str, body: bytes = b"", *, patience: float = 60.0) -> bytes:
            return b"poisoned" if about == CHUNK else await super().ask(about, body)

    here.own = Own(station=Liar(here.link.made), cache_dir="/nowhere")
    await here.failed("not what was promised", "get_file", "salt://a", here.there.at("a"))
    assert here.names() == []


async def test_a_script_of_the_file_server_runs_on_the_device(scene: Scene) -> None:
    settled(scene.srv / "s.sh", b"echo got $1\n")
    settled(scene.srv.parent / "next/s.sh", b"exit 7\n")

    async def script(**kwarg: Any) -> Ended:
        return await loader.call("cmd.script", scene.there.host, ["salt://s.sh", "one"], kwarg, scene.own)

    assert (await script()).value["stdout"] == "got one"
    assert (await script(saltenv="next")).value["retcode"] == 7
    scene.link.cut = True
    assert (await script()).value["cache_error"] is True


async def test_a_silent_station_ends_a_fetch_and_what_came_stays(here: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "STALLED_SECONDS", 2.0)
    settled(here.srv / "a", os.urandom(LARGE))

    async def cut(about: str, _: bytes) -> None:
        here.link.cut = about == CHUNK and here.link.chunks == 0

    here.link.before = cut
    await here.failed(f"{CHUNK_BYTES} of {LARGE} bytes are here", "get_file", "salt://a", here.there.at("a"))
    assert len(here.names()) == 1
    await here.failed("nobody answers", "hash_file", "salt://a")


async def test_two_jobs_with_one_target_do_not_spoil_each_other(here: Scene) -> None:
    data = settled(here.srv / "a", os.urandom(LARGE))
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(here.ok("get_file", "salt://a", here.there.at("a")))
    assert (here.there.outside / "a").read_bytes() == data
    assert here.link.chunks == 4


async def test_a_link_at_the_target_is_followed(scene: Scene) -> None:
    settled(scene.srv / "a", b"new")
    (scene.there.outside / "real").mkdir()
    (scene.there.outside / "real/file").write_bytes(b"old")
    (scene.there.outside / "a").symlink_to("real/file")
    await scene.ok("get_file", "salt://a", scene.there.at("a"))
    assert (scene.there.outside / "a").is_symlink()
    assert (scene.there.outside / "real/file").read_bytes() == b"new"


async def test_a_folder_comes_with_all_that_is_in_it(scene: Scene) -> None:
    for name in ("conf/a", "conf/deep/b", "conference", "deep/conf/c"):
        settled(scene.srv / name, name.encode())
    (scene.srv / "conf/empty").mkdir()
    at = scene.there.at
    made = await scene.ok("get_dir", "salt://conf", at("out"))
    assert made == [at("out/conf/a"), at("out/conf/deep/b"), at("out/conf/empty")]
    assert (scene.there.outside / "out/conf/deep/b").read_bytes() == b"conf/deep/b"
    assert (scene.there.outside / "out/conf/empty").is_dir()
    assert await scene.ok("get_dir", "salt://deep/conf", at("out")) == [at("out/conf/c")]
    assert await scene.failed("no folder", "get_dir", "salt://none", at("out")) == []


async def test_a_station_that_lists_what_is_in_another_folder_is_not_believed(
    here: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(here.srv / "conf/a", b"x")
    settled(here.srv / "xxxx../b", b"x")
    ask = here.link.ask

    async def lying(about: str, body: bytes = b"", *, patience: float = 60.0) -> bytes:
        return encode(Listing(["xxxx../b"])) if about == LIST else await ask(about, body, patience=patience)

    (here.there.outside / "deep").mkdir()
    monkeypatch.setattr(here.link, "ask", lying)
    await here.failed("that is no listing", "get_dir", "salt://deep/conf", here.there.at("deep/out"))
    assert here.names() == ["deep"]


async def test_a_disk_that_is_full_is_not_filled_with_a_part(here: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    settled(here.srv / "a", os.urandom(LARGE))
    append = local_files.append

    def full(path: str, data: bytes, at: int) -> None:
        if at >= CHUNK_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        append(path, data, at)

    monkeypatch.setattr(local_files, "append", full)
    await here.failed("No space left on device", "get_file", "salt://a", here.there.at("a"))
    assert here.names() == []


async def test_the_cache_of_the_device(scene: Scene) -> None:
    settled(scene.srv / "deep/a", b"text\n")
    settled(scene.srv.parent / "next/deep/a", b"of next\n")
    kept = scene.there.at("cache/files/base/deep/a")
    assert await scene.ok("is_cached", "salt://deep/a") == ""
    assert await scene.ok("cache_file", "salt://deep/a") == kept
    assert await scene.ok("is_cached", "salt://deep/a") == kept
    assert await scene.ok("get_url", "salt://deep/a") == kept
    assert await scene.ok("get_url", "salt://deep/a", None) == "text\n"
    assert await scene.ok("get_url", "salt://deep/a", scene.there.at("b")) == scene.there.at("b")
    assert await scene.ok("get_file_str", "salt://deep/a") == "text\n"
    assert await scene.ok("get_file_str", "salt://deep/a?saltenv=next") == "of next\n"
    assert await scene.ok("get_file_str", "salt://deep/a", saltenv="next") == "of next\n"
    assert await scene.failed("there is no x", "cache_file", "salt://x") is False
    assert await scene.failed("only salt://", "get_url", "https://example.com/a") is False
    assert await scene.failed("has the hash", "cache_file", "salt://deep/a", source_hash="0" * 64) is False
    assert await scene.ok("cache_file", "salt://deep/a", source_hash="sha256=" + sha256(b"text\n")) == kept


async def test_what_the_server_has_is_told(scene: Scene) -> None:
    data = settled(scene.srv / "camera/fw.bin", b"firmware")
    settled(scene.srv / "top", b"x")
    (scene.srv / "empty/inner").mkdir(parents=True)
    settled(scene.srv.parent / "next/n", b"x")
    assert await scene.ok("list_master") == ["camera/fw.bin", "top"]
    assert await scene.ok("list_master", prefix="camera") == ["camera/fw.bin"]
    assert await scene.ok("list_master", "next") == ["n"]
    assert await scene.ok("list_master_dirs") == ["camera", "empty", "empty/inner"]
    wanted = {"hsum": sha256(data), "hash_type": "sha256"}
    assert await scene.ok("hash_file", "salt://camera/fw.bin") == wanted
    (scene.there.outside / "here").write_bytes(data)
    assert await scene.ok("hash_file", scene.there.at("here")) == wanted
    assert await scene.ok("hash_file", "salt://none") == ""
    assert await scene.ok("hash_file", scene.there.at("none")) == {}


async def test_paths_that_lead_out_are_refused(here: Scene) -> None:
    settled(here.srv.parent / "secret", b"secret")
    settled(here.srv / "a", b"x")
    (here.srv / "out").symlink_to("../secret")
    await here.failed("bad_path", "get_file", "salt://../secret", here.there.at("x"))
    await here.failed("outside_root", "get_file", "salt://out", here.there.at("x"))
    (here.there.outside / "cache/files/base").mkdir(parents=True)
    (here.there.outside / "there").write_bytes(b"x")
    await here.failed("bad_path", "is_cached", "salt://../../../there")
    (here.there.outside / "there").unlink()
    shutil.rmtree(here.there.outside / "cache")
    await here.failed("bad_environment", "get_file", "salt://a?saltenv=../x", here.there.at("x"))
    await here.failed("does not begin with salt://", "get_file", "/etc/passwd", here.there.at("x"))
    assert here.names() == []


async def test_a_file_is_handed_over_where_that_is_allowed(scene: Scene, tmp_path: Path) -> None:
    data = os.urandom(LARGE)
    (scene.there.outside / "log").write_bytes(data)
    log = scene.there.at("log")
    kept = tmp_path / "up/received/cam-7/files"
    assert await scene.ok("push", log) is True
    assert (kept / log.lstrip("/")).read_bytes() == data
    assert await scene.ok("push", log, upload_path="logs/today", remove_source=True) is True
    assert (kept / "logs/today").read_bytes() == data
    assert scene.names() == []
    (scene.there.outside / "large").write_bytes(bytes(1_000_001))
    assert await scene.failed("too_large", "push", scene.there.at("large")) is False
    (scene.there.outside / "third").write_bytes(bytes(400_000))
    assert await scene.failed("too_large", "push", scene.there.at("third")) is False
    assert await scene.failed("no file", "push", scene.there.at("none")) is False
    assert await scene.failed("absolute", "push", "relative") is False
    assert await scene.failed("absolute", "push", "/tmp/../etc/passwd") is False
    assert not list((tmp_path / "up/received/cam-7/parts").iterdir())
