"""``devices import``: the real command line, API and store; every line looked at before anything is changed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import StationFailed
from device_agent.trust.policy import SitePolicy
from gateway.cli.ssh_import import in_order, pages
from gateway.cli.ssh_inventory import Listed
from tests.peers.ssh_desk import SshDesk, a_print, opened_desk

PASSWORD = "made up for this test"
OTHER = "SHA256:" + "A" * 43


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[SshDesk]:
    folder = tmp_path / "site"
    folder.mkdir()
    async with opened_desk(folder) as opened:
        yield opened


CSV = """\
# the cameras of the north side
name,address,port,user,login,password_file,fingerprint,jump
cam-1,192.0.2.1,,admin,,word,{0},gate
cam-2,192.0.2.2,2222,admin,,word,{1},gate

gate,gate.example,,jump,agent,,{2},
"""


def csv_of(folder: Path) -> Path:
    (folder / "word").write_text(f"{PASSWORD}\n")
    (folder / "cameras.csv").write_text(CSV.format(a_print(), a_print(), a_print()))
    return folder / "cameras.csv"


async def test_an_inventory_is_tried_imported_and_then_says_nothing_new(desk: SshDesk, tmp_path: Path) -> None:
    file = csv_of(tmp_path)
    tried = await desk.type("devices", "import", str(file), "--dry-run")
    assert tried.status == 0
    assert tried.out.splitlines() == ["would be added  gate", "would be added  cam-1", "would be added  cam-2"]
    assert tried.error == "nothing was changed: 3 to add, 0 changed, 0 left, 0 bad\n"
    assert desk.count() == 0
    done = await desk.type("devices", "import", str(file), "--json")
    assert done.status == 0
    assert done.json("summary") == [{"type": "summary", "done": True, "added": 3, "changed": 0, "left": 0, "bad": 0}]
    device = desk.book.by_name("cam-2")
    assert device is not None
    assert (device.address, device.jump, device.login) == ("admin@192.0.2.2:2222", "gate", "password")
    assert desk.book.secret("cam-2").password == PASSWORD
    again = await desk.type("devices", "import", str(file))
    assert (again.status, again.out, again.error) == (0, "", "0 added, 0 changed, 3 left, 0 bad\n")
    file.write_text(file.read_text().replace("192.0.2.1", "192.0.2.9").replace("192.0.2.2,2222", "192.0.2.2,22"))
    changed = await desk.type("devices", "import", str(file))
    assert changed.out.splitlines() == ["changed  cam-1", "changed  cam-2"]
    (tmp_path / "word").write_text("another\n")
    assert "2 changed, 1 left" in (await desk.type("devices", "import", str(file))).error
    assert PASSWORD not in tried.out + done.out + changed.out


YAML = """\
gate: {{address: gate.example, user: jump, login: agent, fingerprint: '{0}'}}
cam-1:
  address: 192.0.2.1
  port: 2222
  user: admin
  password: '{3}'
  jump: gate
  fingerprint: ['{1}', '{2}']
"""


async def test_yaml_says_the_same(desk: SshDesk, tmp_path: Path) -> None:
    first, second = a_print(), a_print()
    (tmp_path / "cameras.yaml").write_text(YAML.format(a_print(), first, second, PASSWORD))
    done = await desk.type("devices", "import", str(tmp_path / "cameras.yaml"))
    assert (done.status, done.error) == (0, "2 added, 0 changed, 0 left, 0 bad\n")
    device = desk.book.by_name("cam-1")
    assert device is not None
    assert device.fingerprints == (first, second)
    assert desk.book.secret("cam-1").password == PASSWORD


BAD_ROWS: list[tuple[dict[str, str], str, str]] = [
    ({"name": ""}, "name", "letters"),
    ({"name": "a b"}, "name", "letters"),
    ({"name": "good"}, "name", "line 2"),
    ({"address": ""}, "address", "host name"),
    ({"address": "1.2.3.4.5"}, "address", "host name"),
    ({"port": "ssh"}, "port", "65535"),
    ({"port": "70000"}, "port", "65535"),
    ({"user": ""}, "user", "spaces"),
    ({"user": "a b"}, "user", "spaces"),
    ({"login": "telnet"}, "login", "certificate"),
    ({"login": "", "password": ""}, "login", "agent"),
    ({"login": "key", "password": ""}, "private_key", "private key"),
    ({"login": "agent"}, "password", "nothing"),
    ({"password_file": "word"}, "password_file", "twice"),
    ({"password": "", "password_file": "none"}, "password_file", "No such file"),
    ({"password": "", "key_file": "word"}, "private_key", "PKCS#8"),
    ({"fingerprint": ""}, "fingerprint", "ssh-keygen"),
    ({"fingerprint": "SHA256:short"}, "fingerprint", "ssh-keygen"),
    ({"jump": "nobody"}, "jump", "added before"),
    ({"jump": "bad"}, "jump", "circle"),
    ({"poll_seconds": "often"}, "poll_seconds", "seconds"),
    ({"poll_seconds": "0"}, "poll_seconds", "86400"),
    ({"poll_seconds": "nan"}, "poll_seconds", "no number"),
    ({"poll_seconds": "1e400"}, "poll_seconds", "no number"),
]


@pytest.mark.parametrize("kind", ["csv", "yaml"])
async def test_every_bad_line_is_named_and_nothing_is_added_for_it(kind: str, desk: SshDesk, tmp_path: Path) -> None:
    fields = ["name", "address", "port", "user", "login", "password", "password_file", "key_file", "fingerprint",
              "jump", "poll_seconds"]  # fmt: skip
    (tmp_path / "word").write_text(f"{PASSWORD}\n")
    rows: list[dict[str, str]] = []
    for number, (change, _, _) in enumerate([({"name": "good"}, "", ""), *BAD_ROWS]):
        name = "bad" if change == {"jump": "bad"} else f"cam-{number}"
        fine = {"name": name, "address": "192.0.2.1", "user": "root", "password": PASSWORD, "fingerprint": OTHER}
        rows.append({**dict.fromkeys(fields, ""), **fine, **change})
    file = tmp_path / f"cameras.{kind}"
    if kind == "csv":
        file.write_text("\n".join([",".join(fields), *(",".join(row[each] for each in fields) for row in rows)]))
        first = 2
    else:
        file.write_text("".join(f"- {json.dumps(row)}\n" for row in rows))
        first = 1
    refused = await desk.type("devices", "import", str(file), "--json")
    assert refused.status == 2
    assert desk.count() == 0
    told = refused.json("bad")
    assert [bad["line"] for bad in told] == [first + 1 + number for number in range(len(BAD_ROWS))]
    for bad, (_, field, words) in zip(told, BAD_ROWS, strict=True):
        words = words.replace("line 2", f"line {first}")  # noqa: PLW2901 - where the good one is
        assert bad["field"] == field, bad
        assert words in f"{bad['what']} {bad['found']} {bad['allowed']}", bad
    assert PASSWORD not in refused.out + refused.error
    plain = await desk.type("devices", "import", str(file))
    assert f"{file}:{first + 1}: name:" in plain.error
    assert plain.error.splitlines()[-1].startswith("nothing was changed: 1 to add")
    skipped = await desk.type("devices", "import", str(file), "--skip-bad")
    assert skipped.status == 1
    assert skipped.out == "added  good\n"
    assert desk.count() == 1


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "name,adress\n", "adress"),
        ("a.csv", "name,name\n", "each once"),
        ("a.csv", "address,user\n", "name among them"),
        ("a.csv", 'name,user\n"a,b\n', "a.csv:2"),
        ("a.csv", "name,user\n", "no device is in this file"),
        ("a.yaml", "a: [1", "a.yaml:"),
        ("a.yaml", "just text", "a mapping of names"),
        ("a.yaml", "", "no device is in this file"),
        ("a.json", "{}", ".csv"),
        ("a.csv", "name\n\udcff", "a.csv:2"),
        ("a.yaml", "[" * 100_000, "nested too deep"),
    ],
)
async def test_a_file_that_is_no_inventory(name: str, text: str, words: str, desk: SshDesk, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    refused = await desk.type("devices", "import", str(tmp_path / name))
    assert refused.status == 2
    assert words in refused.error
    assert "Traceback" not in refused.error


async def test_a_password_is_taken_as_it_is_with_the_blanks_around_it(desk: SshDesk, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        f'name, address,user,password,fingerprint\na, 192.0.2.1 , root ," in , out ",{OTHER}\n'
    )
    (tmp_path / "b.yaml").write_text(
        f"- {{name: b, address: 192.0.2.1, user: root, password: ' x ', fingerprint: {OTHER}}}"
    )
    for file in ("a.csv", "b.yaml"):
        done = await desk.type("devices", "import", str(tmp_path / file))
        assert (done.status, done.error) == (0, "1 added, 0 changed, 0 left, 0 bad\n")
    assert [desk.book.secret(name).password for name in "ab"] == [" in , out ", " x "]


async def test_nothing_is_shown_of_a_first_line_that_may_be_a_device(desk: SshDesk, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"cam-1,192.0.2.1,root,{PASSWORD}\ncam-2,192.0.2.2,root,{PASSWORD}\n")
    refused = await desk.type("devices", "import", str(tmp_path / "a.csv"))
    assert refused.status == 2
    assert "no column with the name name" in refused.error
    assert PASSWORD not in refused.out + refused.error


async def test_another_host_key_does_not_come_in_by_an_inventory(desk: SshDesk, tmp_path: Path) -> None:
    file = csv_of(tmp_path)
    assert (await desk.type("devices", "import", str(file))).status == 0
    before = {device.name: device.fingerprints for device in desk.book.all()}
    csv_of(tmp_path)
    refused = await desk.type("devices", "import", str(file))
    assert refused.status == 2
    assert "devices key cam-1 --accept" in refused.error
    assert {device.name: device.fingerprints for device in desk.book.all()} == before


async def test_five_thousand_lines_come_in_one_go(desk: SshDesk, tmp_path: Path) -> None:
    lines = [f"cam-{number},192.0.2.1,{1 + number},root,p{number},{a_print()}" for number in range(5000)]
    (tmp_path / "all.csv").write_text("\n".join(["name,address,port,user,password,fingerprint", *lines]))
    before = desk.site.writer.commits
    done = await desk.type("devices", "import", str(tmp_path / "all.csv"), "--json")
    assert done.json("summary")[0]["added"] == 5000
    assert desk.count() == 5000
    assert desk.site.writer.commits - before < 100, "one commit for each batch, and what the registry writes"
    assert desk.book.secret("cam-4999").password == "p4999"


def an_inventory(folder: Path, count: int) -> str:
    lines = [f"cam-{number},192.0.2.1,{1 + number},root,secret,{a_print()}" for number in range(count)]
    (folder / "all.csv").write_text("\n".join(["name,address,port,user,password,fingerprint", *lines]))
    return str(folder / "all.csv")


async def test_more_than_the_site_may_have_are_refused_before_anything_is_changed(tmp_path: Path) -> None:
    async with opened_desk(tmp_path, policy=SitePolicy(devmax=600)) as desk:
        file = an_inventory(tmp_path, 601)
        for more in ((), ("--dry-run",), ("--skip-bad",)):
            refused = await desk.type("devices", "import", file, *more)
            assert (refused.status, refused.out) == (8, "")
            assert "601 to add" in refused.error
            assert "600 more" in refused.error
        assert desk.count() == 0
        assert (await desk.type("devices", "import", an_inventory(tmp_path, 600))).status == 0
        assert (await desk.type("devices", "import", an_inventory(tmp_path, 600))).status == 2, "other host keys"


async def test_what_was_added_before_something_broke_is_told(
    desk: SshDesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = desk.book.put

    async def once(wanted: Any, asker: Any) -> Any:
        if desk.book.all():
            raise StationFailed("the disk is full")
        return await put(wanted, asker)

    monkeypatch.setattr(desk.book, "put", once)
    broken = await desk.type("devices", "import", an_inventory(tmp_path, 501))
    assert broken.status == 1
    assert len(broken.out.splitlines()) == 500
    assert "500 added" in broken.error
    assert "the disk is full" in broken.error


def test_a_device_comes_after_its_jump_host_and_a_page_fits_a_request() -> None:
    def listed(name: str, jump: str = "", **wish: Any) -> Listed:
        return Listed(1, name, {"name": name, "jump": jump, **wish})

    chain = [listed("c", "b"), listed("b", "a"), listed("x", "y"), listed("y", "x"), listed("a")]
    assert [entry.name for entry in in_order(chain)] == ["a", "b", "c", "y", "x"]
    big = [listed(f"cam-{number}", private_key="k" * 16_000) for number in range(100)]
    sizes = [len(json.dumps([entry.wish for entry in page])) for page in pages(big)]
    assert max(sizes) < 1024 * 1024
    assert sum(map(len, pages(big))) == 100
