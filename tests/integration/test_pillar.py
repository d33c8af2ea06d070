"""Pillar at a station: compiled once for each distinct input, told to its device alone, kept sealed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from device_agent.errors import NotFound, Refused
from device_agent.protocol.messages import encode_value
from device_agent.protocol.pillar import ITEMS, OF, PillarOfWanted, PillarTold
from device_agent.protocol.targeting import compile_target
from device_agent.questions import Unanswered
from gateway.api.operation import Asked
from gateway.api.pillar import PillarApi
from gateway.devices.policy import Operator
from gateway.devices.ssh_secrets import Secret
from tests.peers.pillar_site import PillarSite, pillar_site, write_tree
from tests.peers.ssh_site import ALICE, ssh_site
from upstream.frames import DeviceRecord

MODELS = 5
SECRET = "a secret of cam-1 alone"


def fifty_files() -> dict[str, str]:
    """A top, a file for each model, and files for all: fifty."""
    top = "base:\n  '*':\n" + "".join(f"    - all.f{number}\n" for number in range(44))
    top += "".join(f"  'model:m{number}':\n    - match: grain\n    - model.m{number}\n" for number in range(MODELS))
    files = {"top.sls": top}
    files |= {f"all/f{number}.sls": f"f{number}: {{a: {number}, os: {{{{ grains.os }}}}}}" for number in range(44)}
    files |= {f"model/m{number}.sls": f"model: {{number: {number}}}" for number in range(MODELS)}
    return files


async def test_two_thousand_devices_of_five_models_are_compiled_five_times(tmp_path: Path) -> None:
    roots = write_tree(tmp_path / "roots", fifty_files())
    assert len(fifty_files()) == 50
    async with pillar_site(tmp_path, pillar_roots={"base": [str(roots)]}) as site:
        for number in range(2000):
            site.hello(f"cam-{number}", os="Linux", model=f"m{number % MODELS}", serial=str(number))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(site.pillar(f"cam-{number}")) for number in range(2000)]
        for number, task in enumerate(tasks):
            assert task.result()["model"] == {"number": number % MODELS}
        assert (site.counted("pillar_compiled"), site.kept.renderer.tasks) == (MODELS, MODELS)
        # A file that changes is seen at once, and by whoever reads it alone: all compile anew, each model once.
        (roots / "all" / "f3.sls").write_text("f3: other")
        assert (await site.pillar("cam-1"))["f3"] == "other"
        assert (await site.pillar("cam-6"))["f3"] == "other"
        assert site.counted("pillar_compiled") == MODELS + 1


async def test_what_reads_the_name_is_compiled_for_each_name(tmp_path: Path) -> None:
    roots = write_tree(
        tmp_path / "roots",
        {"top.sls": "base:\n  'cam-*': [a]\n  'door-*': [b]", "a.sls": "x: {{ grains.id }}", "b.sls": "y: 1"},
    )
    async with pillar_site(tmp_path, pillar_roots={"base": [str(roots)]}) as site:
        for name in ("cam-1", "cam-2", "door-1", "door-2"):
            site.hello(name)
        assert [await site.pillar(name) for name in ("cam-1", "cam-2", "cam-1")] == [
            {"x": "cam-1"},
            {"x": "cam-2"},
            {"x": "cam-1"},
        ]
        assert [await site.pillar(name) for name in ("door-1", "door-2")] == [{"y": 1}, {"y": 1}]
        assert site.counted("pillar_compiled") == 3
        assert await site.pillar("cam-1", given={"z": 2}) == {"z": 2, "x": "cam-1"}


async def test_one_model_that_never_ends_is_refused_and_the_others_are_served(tmp_path: Path) -> None:
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    roots = write_tree(
        tmp_path / "roots",
        {"top.sls": "base:\n  'model:bad': [{match: grain}, bad]\n  '*': [a]", "bad.sls": loop, "a.sls": "x: 1"},
    )
    async with pillar_site(tmp_path, pillar_roots={"base": [str(roots)]}, render={"seconds": 1.0}) as site:
        for number in range(20):
            site.hello(f"cam-{number}", model="bad" if number % 2 else "good")
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(outcome(site, f"cam-{number}")) for number in range(20)]
        assert {task.result() for task in tasks[1::2]} == {"too_slow"}
        assert {task.result() for task in tasks[::2]} == {"{'x': 1}"}
        assert site.counted("pillar_compiled") == 2
        # It is tried again when the files changed.
        (roots / "bad.sls").write_text("x: 2")
        assert await outcome(site, "cam-1") == "{'x': 1}"


async def outcome(site: PillarSite, device: str) -> str:
    try:
        return str(await site.pillar(device))
    except Refused as refused:
        return refused.reason


async def test_a_link_that_leads_out_of_the_roots_is_left_out(tmp_path: Path) -> None:
    outside = tmp_path / "outside.sls"
    outside.write_text(f"x: {SECRET}")
    roots = write_tree(tmp_path / "roots", {"top.sls": "base:\n  '*': [a, b]", "b.sls": "y: 1"})
    (roots / "a.sls").symlink_to(outside)
    (roots / "c.sls").write_bytes(bytes(2 * 1024 * 1024))
    async with pillar_site(tmp_path, pillar_roots={"base": [str(roots)]}) as site:
        site.hello("cam-1")
        told = await site.pillar("cam-1")
        assert told["y"] == 1
        assert told["_errors"] == ["Specified SLS 'a' in environment 'base' is not available on the salt master"]


# --- from a master ------------------------------------------------------------------------------------------------


class Rope:
    """The way to a master, that can be cut."""

    def __init__(self, master: PillarSite, site: str) -> None:
        self.master = master
        self.site = site
        self.cut = False

    async def ask(self, about: str, body: bytes = b"") -> bytes:
        if self.cut:
            raise Unanswered("no master is there to be asked")
        return await self.master.kept.to_sites.ask(self.site, about, body)


async def tell(master: PillarSite, link: str, *devices: str) -> None:
    """A site has told its master of its devices."""
    records = [
        DeviceRecord(
            id=name,
            site=link,
            link="mqtt",
            agent="",
            grains=encode_value({"id": name}),
            present=True,
            first_seen=0.0,
            last_seen=0.0,
            revision=number + 1,
        )
        for number, name in enumerate(devices)
    ]
    await master.rooms.registry.keep_records(link, records, [])


FILES = {"top.sls": "base:\n  'cam-1': [one]\n  '*': [all]", "one.sls": f"secret: {SECRET}", "all.sls": "x: 1"}


async def test_a_gateway_asks_its_master_and_serves_what_it_kept_sealed_while_cut_off(tmp_path: Path) -> None:
    roots = write_tree(tmp_path / "roots", FILES)
    ropes: list[Rope] = []
    async with pillar_site(tmp_path, role="master", name="hq", pillar_roots={"base": [str(roots)]}) as master:
        await tell(master, "lisbon", "cam-1", "cam-2")
        await tell(master, "porto", "door-1")
        ropes.append(Rope(master, "lisbon"))
        async with pillar_site(tmp_path, above=lambda: ropes[0]) as site:
            for name in ("cam-1", "cam-2", "cam-3"):
                site.hello(name)
            assert await site.pillar("cam-1") == {"secret": SECRET, "x": 1}
            assert await site.pillar("cam-2") == {"x": 1}
            with pytest.raises(Refused, match="not known here yet"):
                await site.pillar("cam-3")
            ropes[0].cut = True
            site.clock.move(60.0)
            told = await site.told("cam-1")
            assert (told.value(), told.age) == ({"secret": SECRET, "x": 1}, 60.0)
            with pytest.raises(Refused, match="no master"):
                await site.pillar("cam-3")
        # After a restart as well, out of the store; and there it is sealed.
        async with pillar_site(tmp_path, above=lambda: ropes[0]) as site:
            site.hello("cam-1")
            assert (await site.pillar("cam-1"))["secret"] == SECRET
            for file in site.folder.iterdir():
                if file.is_file():
                    assert SECRET.encode() not in file.read_bytes(), file.name


async def test_a_site_is_told_nothing_of_another_sites_devices(tmp_path: Path) -> None:
    roots = write_tree(tmp_path / "roots", FILES)
    async with pillar_site(tmp_path, role="master", name="hq", pillar_roots={"base": [str(roots)]}) as master:
        await tell(master, "lisbon", "cam-1")
        await tell(master, "porto", "door-1")

        async def asks(asker: str, **wanted: Any) -> PillarTold:
            body = msgspec.msgpack.encode(PillarOfWanted(**wanted))
            return msgspec.msgpack.decode(await master.kept.to_sites.ask(asker, OF, body), type=PillarTold)

        assert (await asks("lisbon", site="lisbon", device="cam-1", grains={})).value()["secret"] == SECRET
        for asker, site in (("porto", "lisbon"), ("nobody", "lisbon")):
            with pytest.raises(Refused, match="foreign_device"):
                await asks(asker, site=site, device="cam-1", grains={})
        # The name alone is worth nothing: it is the site's own device of that name.
        with pytest.raises(Refused, match="not known"):
            await asks("porto", site="porto", device="cam-1", grains={})
        for body in (b"", b"\xc1", b"\x81\xa4site\xa1x", msgspec.msgpack.encode([1])):
            with pytest.raises(Refused, match=r"malformed|wrong_type"):
                await master.kept.to_sites.ask("lisbon", OF, body)


async def test_a_device_nobody_knows_is_told_nothing(tmp_path: Path) -> None:
    async with pillar_site(tmp_path) as site:
        with pytest.raises(Refused, match="hello"):
            await site.pillar("cam-1")
        site.hello("cam-1")
        assert await site.pillar("cam-1") == {}
        with pytest.raises(NotFound):
            await site.kept.pillars.to_device("cam-9", b"")


async def test_what_one_device_lays_over_its_own_pushes_out_nothing(tmp_path: Path) -> None:
    roots = write_tree(tmp_path / "roots", {"top.sls": "base:\n  '*': [a]", "a.sls": "x: {{ pillar.get('n', 0) }}"})
    async with pillar_site(tmp_path, pillar_roots={"base": [str(roots)]}) as site:
        site.hello("cam-1")
        site.hello("cam-2")
        assert await site.pillar("cam-1") == {"x": 0}
        for number in range(1, 20):
            assert await site.pillar("cam-2", given={"n": number}) == {"n": number, "x": number}
        assert await site.pillar("cam-1") == {"x": 0}
        assert await site.pillar("cam-2") == {"x": 0}
        assert site.counted("pillar_compiled") == 1


async def test_a_pillar_that_no_answer_can_carry_is_refused(tmp_path: Path) -> None:
    large = "{% for n in range(300) %}\nk{{ n }}: {{ 'x' * 1000 }}\n{% endfor %}"
    roots = write_tree(tmp_path / "roots", {"top.sls": "base:\n  'cam-1': [a]", "a.sls": large})
    async with pillar_site(tmp_path, pillar_roots={"base": [str(roots)]}) as site:
        site.hello("cam-1")
        site.hello("cam-2")
        assert await outcome(site, "cam-1") == "too_large"
        assert await outcome(site, "cam-2") == "{}"


async def test_what_a_device_nests_too_deep_is_refused_and_the_station_goes_on(tmp_path: Path) -> None:
    roots = write_tree(tmp_path / "roots", {"top.sls": "base:\n  '*': [a]", "a.sls": "x: 1"})
    async with pillar_site(tmp_path, pillar_roots={"base": [str(roots)]}) as site:
        site.hello("cam-1")
        # Near the end of the stack it is read, and cannot be written any more.
        for depth in (20, 500, *range(940, 1000), 20_000):
            body = b"\x81\xa5given" + b"\x81\xa1a" * depth + b"\x01"
            with pytest.raises(Refused, match=r"too_deep|malformed"):
                await site.kept.to_devices.ask("cam-1", ITEMS, body)
        assert await site.pillar("cam-1") == {"x": 1}
    async with pillar_site(tmp_path, role="master", name="hq", pillar_roots={"base": [str(roots)]}) as master:
        await tell(master, "lisbon", "cam-1")
        for depth in (20, *range(940, 1000)):
            body = b"\x83\xa4site\xa6lisbon\xa6device\xa5cam-1\xa6grains" + b"\x81\xa1a" * depth + b"\x01"
            with pytest.raises(Refused, match=r"too_deep|malformed"):
                await master.kept.to_sites.ask("lisbon", OF, body)


async def test_a_revoked_device_is_told_nothing_and_nothing_of_it_stays_kept(tmp_path: Path) -> None:
    roots = write_tree(tmp_path / "roots", FILES)
    pillar: dict[str, Any] = {"pillar_roots": {"base": [str(roots)]}}
    async with pillar_site(tmp_path, role="master", name="hq", **pillar) as master:
        await tell(master, "lisbon", "cam-1")
        await master.kept.pillars._kept.keep("a source", "lisbon", "cam-1", b"x")
        await master.kept.pillars._kept.keep("a source", "lisbon", "cam-9", b"x")
        known = master.rooms.registry.known("lisbon", "cam-1")
        assert known is not None
        known.state = "revoked"
        body = msgspec.msgpack.encode(PillarOfWanted("lisbon", "cam-1", {}))
        with pytest.raises(Refused, match="not known"):
            await master.kept.to_sites.ask("lisbon", OF, body)
        known.state = ""
    async with pillar_site(tmp_path, role="master", name="hq", **pillar) as master:
        assert await master.kept.pillars._kept.find("a source", "lisbon", "cam-1") is not None
        assert await master.kept.pillars._kept.find("a source", "lisbon", "cam-9") is None
    async with ssh_site(tmp_path / "gateway") as site:
        await site.add("cam-1", 1, (), Secret(password="x"), known=False, fingerprints=("SHA256:" + "A" * 43,))
        await site.kept.pillars._kept.keep("", "lisbon", "cam-1", b"x")
        await site.kept.pillars._kept.keep("", "lisbon", "cam-2", b"x")
        await site.site.enrollment.verdicts.revoke("cam-1", "stolen", ALICE)
        assert await site.kept.pillars._kept.find("", "lisbon", "cam-1") is None
        assert await site.kept.pillars._kept.find("", "lisbon", "cam-2") is not None


async def test_what_is_no_file_is_left_out_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    roots = write_tree(
        tmp_path / "roots", {"top.sls": "base:\n  '*': [a, sub.b]", "a.sls": "x: 1", "sub/b.sls": "y: 1"}
    )
    os.mkfifo(roots / "pipe.sls")
    (roots / "linked").symlink_to(roots / "sub")
    missing = tmp_path / "missing"
    async with pillar_site(tmp_path, pillar_roots={"base": [str(roots), str(missing)]}) as site:
        site.hello("cam-1")
        assert await site.pillar("cam-1") == {"x": 1, "y": 1}
    named = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    for path, why in ((roots / "pipe.sls", "no file"), (roots / "linked", "link to a folder"), (missing, "read")):
        assert any(str(path) in line and why in line for line in named), path


async def test_the_same_file_is_read_anew_whatever_its_time_says(tmp_path: Path) -> None:
    roots = write_tree(tmp_path / "roots", {"top.sls": "base:\n  '*': [a]", "a.sls": "x: 1"})
    async with pillar_site(tmp_path, pillar_roots={"base": [str(roots)]}) as site:
        site.hello("cam-1")
        assert await site.pillar("cam-1") == {"x": 1}
        told = (roots / "a.sls").stat()
        (roots / "a.sls").write_text("x: 2")
        os.utime(roots / "a.sls", ns=(told.st_atime_ns, told.st_mtime_ns))
        assert await site.pillar("cam-1") == {"x": 2}


async def test_names_that_are_no_text_are_shown_as_text(tmp_path: Path) -> None:
    roots = write_tree(tmp_path / "roots", {"top.sls": "base:\n  '*': [a]", "a.sls": "? !!binary aGVsbG8=\n: 1\n2: x"})
    async with pillar_site(tmp_path, pillar_roots={"base": [str(roots)]}) as site:
        site.hello("cam-1")
        [operation] = PillarApi(pillars=site.kept.pillars, registry=site.rooms.registry).operations()
        asked = Asked({"id": "cam-1"}, {}, None, Operator("root", frozenset({"admin"}), "socket"))
        answer = await operation.handler(asked)
        assert isinstance(answer, dict)
        assert answer["pillars"][0]["pillar"] == {"\"b'hello'\"": 1, "2": "x"}


async def test_a_site_cannot_have_its_device_taken_for_one_of_another_site(tmp_path: Path) -> None:
    files = {
        "top.sls": "base:\n  '*': [own]\n{% if opts.site == 'lisbon' %}\n  'cam-1': [one]\n{% endif %}\n",
        "own.sls": "{% if grains.id == 'cam-1' or grains['id'] == 'cam-1' %}by_grain: true{% endif %}\nx: 1",
        "one.sls": f"secret: {SECRET}",
    }
    roots = write_tree(tmp_path / "roots", files)
    async with pillar_site(tmp_path, role="master", name="hq", pillar_roots={"base": [str(roots)]}) as master:
        await tell(master, "lisbon", "cam-1")
        await tell(master, "porto", "cam-1", "door-1")

        async def told(site: str, device: str, **grains: Any) -> dict[Any, Any]:
            body = msgspec.msgpack.encode(PillarOfWanted(site, device, grains))
            answer = msgspec.msgpack.decode(await master.kept.to_sites.ask(site, OF, body), type=PillarTold)
            return answer.value()

        assert await told("lisbon", "cam-1") == {"by_grain": True, "secret": SECRET, "x": 1}
        assert await told("porto", "cam-1") == {"by_grain": True, "x": 1}
        assert await told("porto", "door-1", id="cam-1") == {"x": 1}
        assert await told("lisbon", "cam-1", id="door-1") == {"by_grain": True, "secret": SECRET, "x": 1}


async def test_what_is_known_of_a_pillar_stays_known_when_the_device_comes_back(tmp_path: Path) -> None:
    roots = write_tree(tmp_path / "roots", {"top.sls": "base:\n  '*': [a]", "a.sls": "area: gate"})
    async with pillar_site(tmp_path, pillar_roots={"base": [str(roots)]}) as site:
        registry, target = site.rooms.registry, compile_target("area:gate", "pillar")
        registry.stand("station", "lisbon-station", "station", {"id": "lisbon-station"})
        site.hello("cam-1")
        await registry.know(target)
        site.hello("cam-1", os="new")
        registry.stand("station", "lisbon-station", "station", {"id": "lisbon-station", "os": "new"})
        for name in ("cam-1", "lisbon-station"):
            device = registry.own_device(name)
            assert device is not None
            assert device.grains["os"] == "new"
            assert target.matches(name, device.grains)
        # Whoever names a target has it looked at anew.
        (roots / "a.sls").write_text("area: yard")
        await registry.know(target)
        assert not any(target.matches(device.id, device.grains) for device in registry.own())
