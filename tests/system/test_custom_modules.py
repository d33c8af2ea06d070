"""Modules of a site's own over a whole system: a master serves them, a gateway fetches them; an agent, an SSH device
and the master itself run what was signed and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from device_agent.clock import Clock
from device_agent.trust.keys import fingerprint
from gateway.cli.views import OutcomeView
from tests.peers.fleet import signing_key
from tests.peers.released import DOOR, LENS, RELEASE_KEY, lay, release
from tests.peers.ssh_beds import openssh
from tests.peers.system import System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

SITE, AGENT, SSH, STATION = "lisbon", "cam-agent", "cam-ssh", "central-station"
DEVICES = (AGENT, SSH, STATION)
GRANTS = ["looks", "saltutil.*", "door.*", "evil.*"]
"""What the master, as a device, lets itself be told."""
OTHER = signing_key("release 2")
CHANGED = DOOR.replace("shut", "mended")


class Plant:
    """A master with a file root, which is a device as well, a gateway, an agent and a device without one."""

    def __init__(self, system: System, root: Path) -> None:
        self.system = system
        self.root = root

    def call(self, fun: str, *arg: Any, devices: tuple[str, ...] = DEVICES) -> dict[str, OutcomeView]:
        """Order it of each device, from the master; how it ended."""
        jid = self.system.issue("central", ",".join(devices), fun, *arg, tgt_type="list")
        found = self.system.ended("central", jid).by_device()
        assert set(found) == set(devices)
        return found

    def values(self, fun: str, *arg: Any) -> list[Any]:
        """What each device returned, all being well."""
        ended = self.call(fun, *arg)
        assert {each.outcome for each in ended.values()} == {"ok"}, ended
        return [ended[device].value for device in DEVICES]

    def refused(self, fun: str, why: str, outcome: str = "refused") -> list[Any]:
        """Each device refuses it for this reason; what it returned."""
        ended = self.call(fun)
        for each in ended.values():
            assert (each.outcome, why in (each.why or "")) == (outcome, True), each
        return [ended[device].value for device in DEVICES]

    def until_refused(self, fun: str, why: str, outcome: str = "refused") -> None:
        """Order it until each device refuses it for this reason: listings and root lists take a moment."""
        self.system.until(
            lambda: all((each.outcome, why in (each.why or "")) == (outcome, True) for each in self.call(fun).values()),
            why,
        )

    def kept(self) -> list[Path]:
        """Where the module lies on the disks of the devices."""
        folders = (self.system.folder / AGENT, self.system.state_of(SITE), self.system.state_of("central"))
        return [folder / "custom" / "_modules" / "door.py" for folder in folders]


def all_here(system: System) -> None:
    """Wait for the devices; a station is here when it answers."""
    system.until(lambda: all(system.is_here(device) for device in (AGENT, SSH)), "both devices are here")


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    root = lay(tmp_path / "salt", {"_modules/door.py": DOOR, "_grains/lens.py": LENS})
    with whole_system() as system, openssh(tmp_path / "bed") as bed:
        system.add_master(
            "central", file_roots={"base": [str(root)]}, files={"fresh_seconds": 0.0}, station={"grants": GRANTS}
        )
        roots = sorted(system.fleet.ceremony.folder.glob("root-*.key"))
        for key in (RELEASE_KEY, OTHER):
            system.fleet.ceremony.add_release_key(key.public, roots, Clock().wall())
        system.publish_fleet("central")
        system.add_gateway(SITE, "central", files={"fresh_seconds": 0.0})
        system.join(SITE)
        line = ("--ssh", f"root@127.0.0.1:{bed.port}", "--key", str(bed.client_key), "--yes")
        system.command("devices", "add", SSH, *line, station=SITE, status=0)
        system.add_agent(AGENT, SITE)
        all_here(system)
        yield Plant(system, root)


def test_only_what_was_signed_is_brought_and_runs_on_an_agent_over_ssh_and_on_a_station(plant: Plant) -> None:
    system, root = plant.system, plant.root
    # Nothing was signed.
    assert plant.refused("saltutil.sync_modules", "no_release_list", "failed") == [[], [], []]
    plant.refused("door.status", "no_release_list")
    # Signed, and one that was not, beside it.
    release(root)
    assert plant.values("saltutil.sync_modules") == [["modules.door"]] * 3
    lay(root, {"_modules/evil.py": "async def f(host):\n    return 1\n"})
    plant.until_refused("saltutil.sync_modules", "unsigned: _modules/evil.py", "failed")
    assert plant.values("door.status") == [{"door": "shut", "times": 1}] * 3
    plant.refused("evil.f", "module_refused: unsigned: _modules/evil.py")
    assert plant.values("saltutil.sync_grains") == [["grains.lens"]] * 3
    assert plant.values("grains.get", "lens:mm") == [35] * 3
    (root / "_modules" / "evil.py").unlink()
    # Altered where it is served: it does not come, and what was signed goes on.
    lay(root, {"_modules/door.py": DOOR.replace("shut", "ajar")})
    assert plant.refused("saltutil.sync_modules", "altered: _modules/door.py", "failed") == [[], [], []]
    assert plant.values("door.status")[0]["door"] == "shut"
    # Altered where it is kept: at once, and after a restart.
    for place in plant.kept():
        place.write_text(DOOR.replace("shut", "ajar"))
    plant.refused("door.status", "module_refused: altered: _modules/door.py")
    system.stop(AGENT)
    system.stop(SITE)
    system.stop("central")
    system.restart("central")
    system.restart(SITE)
    system.add_agent(AGENT, SITE)
    system.connected(SITE)
    all_here(system)
    plant.refused("door.status", "module_refused: altered: _modules/door.py")
    # The next list; then the one before, with its file.
    old = (root / "_release").read_bytes()
    lay(root, {"_modules/door.py": CHANGED})
    release(root, 2)
    assert plant.values("saltutil.sync_all")[0] == {
        "modules": ["modules.door"], "grains": [], "beacons": [], "engines": [], "runners": [], "states": []
    }  # fmt: skip
    assert [value["door"] for value in plant.values("door.status")] == ["mended"] * 3
    (root / "_release").write_bytes(old)
    lay(root, {"_modules/door.py": DOOR})
    plant.refused("saltutil.sync_modules", "rollback: _release: version 1", "failed")
    assert [value["door"] for value in plant.values("door.status")] == ["mended"] * 3
    # The key is dropped: what it signed ends, and another one signs anew.
    roots = sorted(system.fleet.ceremony.folder.glob("root-*.key"))
    system.fleet.ceremony.drop_release_key(fingerprint(RELEASE_KEY.public), roots, Clock().wall())
    system.publish_fleet("central")
    plant.until_refused("door.status", "release_key_revoked")
    release(root, 1, OTHER)
    assert plant.values("saltutil.sync_modules") == [["modules.door"]] * 3
    assert [value["door"] for value in plant.values("door.status")] == ["shut"] * 3
