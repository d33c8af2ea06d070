"""device_agent/custom: what was signed is brought, kept, verified at every call and run; nothing else is."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from device_agent import loader
from device_agent.custom import facts, loading
from device_agent.custom.modules import CustomModules
from device_agent.custom.sync import Synced, sync
from device_agent.ended import Ended
from device_agent.errors import Refused
from device_agent.local_host import LocalHost
from device_agent.own import Own
from device_agent.protocol import limits
from device_agent.trust.root_list import RootList
from tests.peers.fleet import Fleet, signing_key
from tests.peers.released import DOOR, LENS, RELEASE_KEY, FolderSource, lay, release

HOST = LocalHost({"os": "Debian"})
OTHER = signing_key("release 2")
KINDS = ("modules", "grains")


class Site:
    """A file root, and a device that brings modules from it."""

    def __init__(self, folder: Path) -> None:
        self.root: RootList | None = replace(Fleet().root, releases=(RELEASE_KEY.public,))
        self.base = lay(folder / "base", {"_modules/door.py": DOOR, "_grains/lens.py": LENS})
        self.source = FolderSource(base=self.base)
        self.folder = folder / "custom"
        self.restart()

    def restart(self) -> None:
        """Another process with the same folder."""
        self.modules = CustomModules(self.folder, lambda: self.root, source=lambda _station: self.source)

    async def sync(self, *kinds: str, saltenvs: Any = ("base",)) -> Synced:
        return await sync(self.modules, self.source, kinds or KINDS, saltenvs)

    async def call(self, fun: str, *arg: Any, **kwarg: Any) -> Ended:
        return await loader.call(fun, HOST, list(arg), kwarg, Own(custom=self.modules))

    async def why(self, fun: str) -> str:
        """Why a call is refused."""
        ended = await self.call(fun)
        assert (ended.outcome, ended.value) == ("refused", None), ended
        return ended.why


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
async def signed(site: Site) -> Site:
    release(site.base)
    assert await site.sync() == Synced({"modules": ["modules.door"], "grains": ["grains.lens"]}, {})
    return site


async def test_a_rightly_signed_module_is_brought_once_and_runs(signed: Site) -> None:
    assert await signed.call("door.status") == Ended({"door": "shut", "times": 1})
    assert await signed.call("door.status", "3") == Ended({"door": "shut", "times": 3})
    assert await signed.call("door.open") == Ended("open")
    assert (await signed.call("door.status", depth=1)).why.startswith("bad_arguments: door.status takes (times=1)")
    assert await signed.sync() == Synced({"modules": [], "grains": []}, {})
    assert signed.source.read_paths.count("_modules/door.py") == 1
    signed.restart()
    assert await signed.call("door.open") == Ended("open")


async def test_an_unsigned_module_is_not_fetched_and_does_not_run(site: Site) -> None:
    synced = await site.sync()
    assert synced.changed == {"modules": [], "grains": []}
    assert {path: refusal.reason for path, refusal in synced.refused.items()} == dict.fromkeys(
        ["_modules/door.py", "_grains/lens.py"], "no_release_list"
    )
    assert site.source.read_paths == []
    assert "no_release_list" in await site.why("door.status")
    release(site.base)
    lay(site.base, {"_modules/evil.py": "async def f(host):\n    return 1\n"})
    synced = await site.sync()
    assert synced.changed["modules"] == ["modules.door"]
    assert synced.why == "unsigned: _modules/evil.py is not in version 1 of the release list"
    assert (await site.why("evil.f")).startswith("module_refused: unsigned: _modules/evil.py")
    assert "_modules/evil.py" not in site.source.read_paths


async def test_a_module_that_was_altered_where_it_is_served_is_refused(site: Site) -> None:
    release(site.base)
    lay(site.base, {"_modules/door.py": DOOR.replace("shut", "ajar")})
    assert (await site.sync()).refused["_modules/door.py"].reason == "altered"
    assert "module_refused: altered: _modules/door.py has the hash" in await site.why("door.status")
    # One that says it is the signed one is looked at when it is here.
    lay(site.base, {"_modules/door.py": DOOR})
    found = await site.source.find("base", "_modules/door.py")
    lay(site.base, {"_modules/door.py": DOOR.replace("shut", "ajar")})

    class Liar(FolderSource):
        async def find(self, saltenv: str, path: str) -> Any:
            return found if path == "_modules/door.py" else await super().find(saltenv, path)

    site.source = Liar(base=site.base)
    assert (await site.sync()).refused["_modules/door.py"].reason == "altered"
    assert not (site.folder / "_modules" / "door.py").exists()


async def test_a_module_that_is_altered_on_disk_stops_at_once_and_after_a_restart(signed: Site) -> None:
    assert (await signed.call("door.status")).outcome == "ok"
    place = signed.folder / "_modules" / "door.py"
    place.write_text(DOOR.replace("shut", "ajar"))
    for _ in range(2):
        assert (await signed.why("door.status")).startswith("module_refused: altered: _modules/door.py")
        assert "door.status" not in await signed.modules.functions()
        signed.restart()
    # The sync mends it, and says so.
    assert (await signed.sync()).changed["modules"] == ["modules.door"]
    assert (await signed.call("door.status")).outcome == "ok"


async def test_what_somebody_puts_into_the_folder_does_not_run(signed: Site, tmp_path: Path) -> None:
    lay(signed.folder, {"_modules/evil.py": "async def f(host):\n    return 1\n"})
    assert "unsigned" in await signed.why("evil.f")
    elsewhere = lay(tmp_path / "elsewhere", {"door.py": DOOR})
    (signed.folder / "_modules" / "door.py").unlink()
    (signed.folder / "_modules" / "door.py").symlink_to(elsewhere / "door.py")
    assert "unreadable" in await signed.why("door.status")
    (signed.folder / "_modules" / "evil.py").unlink()
    assert "unknown_function" in await signed.why("evil.f")


async def test_what_a_revoked_key_released_runs_no_more(signed: Site) -> None:
    assert signed.root is not None
    standing = signed.root
    signed.root = replace(standing, releases=(OTHER.public,), revoked=(RELEASE_KEY.kid,))
    assert (await signed.why("door.status")).startswith("module_refused: release_key_revoked")
    assert signed.modules.reach("door.status") is None
    synced = await signed.sync()
    assert {refusal.reason for refusal in synced.refused.values()} == {"release_key_revoked"}
    # Its successor signs the same files anew, from its own first version on.
    release(signed.base, 1, OTHER)
    assert (await signed.sync()).refused == {}
    assert (await signed.call("door.status")).outcome == "ok"


async def test_an_older_list_is_refused_and_what_it_brings_back_does_not_run(signed: Site) -> None:
    old = (signed.base / "_release").read_bytes()
    lay(signed.base, {"_modules/door.py": DOOR.replace("shut", "mended")})
    release(signed.base, 2)
    assert (await signed.sync()).changed["modules"] == ["modules.door"]
    (signed.base / "_release").write_bytes(old)
    lay(signed.base, {"_modules/door.py": DOOR})
    signed.restart()
    synced = await signed.sync()
    assert synced.refused["_release"].reason == "rollback"
    assert synced.refused["_modules/door.py"].reason == "altered"
    assert (await signed.call("door.status")).value["door"] == "mended"


async def test_a_list_of_a_stranger_is_refused_and_the_one_that_is_known_stays(signed: Site) -> None:
    release(signed.base, 9, OTHER)
    assert (await signed.sync()).refused["_release"].reason == "unknown_release_key"
    assert (await signed.call("door.status")).outcome == "ok"


async def test_a_list_that_was_altered_on_disk_counts_for_nothing(signed: Site) -> None:
    place = signed.folder / "list"
    body = bytearray(place.read_bytes())
    body[-20] ^= 1
    place.write_bytes(body)
    signed.restart()
    assert (await signed.call("door.status")).outcome == "refused"
    assert (await signed.sync()).refused == {}
    assert (await signed.call("door.status")).outcome == "ok"


async def test_what_is_served_no_more_goes(signed: Site) -> None:
    (signed.base / "_modules" / "door.py").unlink()
    assert await signed.sync("modules") == Synced({"modules": []}, {})
    assert "unknown_function" in await signed.why("door.status")


async def test_of_two_environments_the_later_one_counts(signed: Site, tmp_path: Path) -> None:
    dev = lay(tmp_path / "dev", {"_modules/door.py": DOOR.replace("shut", "new"), "_modules/lamp.py": DOOR})
    release(dev, 2)
    signed.source = FolderSource(base=signed.base, dev=dev)
    assert (await signed.sync("modules", saltenvs=["base", "dev"])).changed["modules"] == [
        "modules.door",
        "modules.lamp",
    ]
    assert (await signed.call("door.status")).value["door"] == "new"


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("_modules/test.py", "shadows"),
        ("_modules/Door.py", "bad_name"),
        ("_modules/../../identity", "passed over"),
        ("_modules/deep/er.py", "bad_name"),
        ("_modules/x.txt", "bad_name"),
        ("_other/x.py", "bad_name"),
        ("/etc/passwd", "bad_name"),
    ],
)
async def test_a_hostile_path_touches_nothing(signed: Site, path: str, reason: str) -> None:
    class Hostile(FolderSource):
        async def paths(self, saltenv: str, under: str) -> list[str]:
            return [path] if under == "_modules" else []

    kept = signed.folder.parent / "identity"
    kept.write_text("precious")
    signed.source = Hostile(base=signed.base)
    refused = (await signed.sync("modules")).refused
    assert [refusal.reason for refusal in refused.values()] == ([] if reason == "passed over" else [reason])
    assert kept.read_text() == "precious"
    with pytest.raises(Refused):
        signed.modules.keep(path, b"")
    if reason != "shadows":
        with pytest.raises(Refused):
            signed.modules.remove(path)


async def test_a_module_of_the_release_keeps_its_name_even_against_a_signed_file_on_disk(signed: Site) -> None:
    lay(signed.folder, {"_modules/test.py": "async def ping(host):\n    return 'mine'\n"})
    assert await signed.call("test.ping") == Ended(value=True)
    assert signed.modules.reach("test.other") is None
    assert "test.other" not in await loader.known(Own(custom=signed.modules))


# --- classes ---------------------------------------------------------------------------------------------------------


async def test_the_list_says_the_class_of_a_function_and_shell_is_what_it_does_not_say(signed: Site) -> None:
    assert signed.modules.reach("door.status") == "looks"
    assert signed.modules.reach("door.open") == signed.modules.reach("door.anything") == "shell"
    assert signed.modules.reach("lamp.on") is None


# --- loading ---------------------------------------------------------------------------------------------------------


async def test_a_plain_def_is_refused_with_the_form_to_write(signed: Site) -> None:
    why = await signed.why("door.hello")
    assert why.startswith("module_refused: plain_function: door.hello is a plain def")
    assert "async def hello(host, …)" in why


async def test_a_module_that_fails_or_hangs_harms_nothing_else(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading.loaded, "__defaults__", (0.2,))
    lay(
        site.base,
        {
            "_modules/broken.py": "import no_such_thing\nasync def f(host): ...\n",
            "_modules/leaves.py": "raise SystemExit(3)\nasync def f(host): ...\n",
            "_modules/hangs.py": "while True:\n    pass\nasync def f(host): ...\n",
            "_grains/sick.py": "1 / 0\nasync def f(host): ...\n",
        },
    )
    release(site.base)
    assert (await site.sync()).refused == {}
    assert "does_not_load: _modules/broken.py: ModuleNotFoundError" in await site.why("broken.f")
    assert "does_not_load: _modules/leaves.py: SystemExit" in await site.why("leaves.f")
    async with asyncio.TaskGroup() as group:
        hanging = group.create_task(site.why("hangs.f"))
        # Others run meanwhile.
        assert (await site.call("door.status")).outcome == "ok"
    assert "hangs: _modules/hangs.py: it did not load within" in hanging.result()
    assert "not begun again before a restart" in await site.why("hangs.f")
    for thread in threading.enumerate():
        if thread.name == "load _modules/hangs.py":
            thread.join(60)
            assert not thread.is_alive()
    assert sorted(await site.modules.functions()) == ["door.open", "door.status"]


async def test_a_module_sees_its_own_classes_and_types(site: Site) -> None:
    text = (
        "from __future__ import annotations\nimport msgspec\nfrom device_agent.host import Host\n"
        "class Lamp(msgspec.Struct):\n    watt: int\n"
        "async def on(host: Host, lamp: Lamp) -> int:\n    return lamp.watt\n"
    )
    lay(site.base, {"_modules/lamp.py": text})
    release(site.base)
    await site.sync()
    assert await site.call("lamp.on", {"watt": 7}) == Ended(7)
    assert (await site.call("lamp.on", {"watt": "many"})).why.startswith("bad_arguments: lamp.on takes (lamp)")


async def test_what_a_device_has_is_told_with_what_was_brought(signed: Site) -> None:
    own = Own(custom=signed.modules)

    async def sys(fun: str, *arg: Any) -> Any:
        return (await loader.call(f"sys.{fun}", HOST, list(arg), {}, own)).value

    assert await sys("list_functions", "door") == ["door.open", "door.status"]
    assert "door" in await sys("list_modules")
    assert (await sys("doc", "door.status"))["door.status"].startswith("door.status takes (times=1)\nlooks")
    assert (await sys("argspec", "door.status"))["door.status"]["args"] == ["times"]


# --- grains ----------------------------------------------------------------------------------------------------------


async def test_custom_facts_stand_above_the_others_and_what_fails_is_named(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "FUNCTION_SECONDS", 2.0)
    lay(
        site.base,
        {
            "_grains/a.py": "async def f(host):\n    return {'os': 'Own', 'id': 'other', 'cores': 3}\n",
            "_grains/b.py": "async def f(host):\n    return 1 / 0\n",
            "_grains/c.py": "import asyncio\nasync def f(host):\n    await asyncio.sleep(600)\n",
            "_grains/d.py": "async def f(host):\n    return [1]\n",
            "_grains/e.py": "async def f(host):\n    return {'x': object()}\n",
            "_grains/g.py": f"async def f(host):\n    return {{'x': 'y' * {limits.GRAINS_BYTES}}}\n",
            "_grains/h.py": "def plain():\n    return {}\nasync def f(host):\n    return {'h': 1}\n",
        },
    )
    release(site.base)
    await site.sync()
    told = await site.modules.told(HOST, {"os": "Debian", "id": "cam-7"})
    assert told == {"os": "Own", "id": "cam-7", "cores": 3, "h": 1, "lens": {"mm": 35}}
    problems = site.modules.grain_problems
    assert sorted(problems) == [f"_grains/{name}.py" for name in "bcdeg"]
    assert "ZeroDivisionError" in problems["_grains/b.py"]
    assert "took longer than" in problems["_grains/c.py"]
    (site.folder / "_grains" / "lens.py").write_text(LENS.replace("35", "36"))
    assert "lens" not in await site.modules.told(HOST, {})
    assert "altered" in site.modules.grain_problems["_grains/lens.py"]
