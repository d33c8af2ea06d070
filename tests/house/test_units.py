"""The systemd units agree with the code: exit statuses, commands, folders and time to stop."""

from __future__ import annotations

import subprocess
import sys
from configparser import RawConfigParser
from importlib import import_module
from pathlib import Path

import pytest

from device_agent import next_start
from device_agent.config import AgentSettings
from device_agent.errors import EXIT_CONFIG
from device_agent.parts import Part
from device_agent.swarm import Swarm
from gateway.broker.start import RUNTIME, SETTINGS
from tests.house.tree import ROOT, name, python_files

NO_DAEMONS = {"outstation-upgrade-guard", "outstation-check", "outstation-join-usb"}
UNITS = sorted(path for path in (ROOT / "systemd").glob("*.service") if path.stem not in NO_DAEMONS)
STATIONS = ("gateway", "master")


def service(path: Path) -> dict[str, str]:
    # What may stand several times, as SystemCallFilter=, is not asked for here.
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # the documented way to keep the case of keys
    unit.read_string(path.read_text(encoding="utf-8"))
    return dict(unit["Service"])


def role(path: Path) -> str:
    return path.stem.removeprefix("outstation-")


def parts(kind: type[Part] = Part) -> set[type[Part]]:
    return {kind}.union(*(parts(below) for below in kind.__subclasses__()))


def test_there_is_a_unit_for_each_daemon() -> None:
    assert {role(path) for path in UNITS} == {"agent", "broker", *STATIONS}


@pytest.mark.parametrize("path", UNITS, ids=role)
def test_a_unit_does_not_restart_when_its_settings_are_wrong(path: Path) -> None:
    settings = service(path)
    # Whoever sends a daemon SIGTERM past systemd does not mean it to stay away; the gateway ends its broker like that.
    assert settings["Restart"] == "always"
    assert str(EXIT_CONFIG) in settings["RestartPreventExitStatus"].split()


@pytest.mark.parametrize("path", [path for path in UNITS if role(path) in STATIONS], ids=role)
def test_a_station_whose_memory_a_stranger_fills_is_ended_by_its_own_limits(path: Path) -> None:
    settings = service(path)
    assert settings["MemoryMax"] == "2G"
    assert settings["MemorySwapMax"] == "256M", "or it goes on into all swap that there is"
    # One that the kernel ended is started again: Restart= is above.
    assert settings["OOMPolicy"] == "continue"


@pytest.mark.parametrize("path", UNITS, ids=role)
def test_a_unit_that_fails_waits_longer_and_longer(path: Path) -> None:
    settings = service(path)
    program, isolated, *module = settings["ExecStopPost"].split()
    library = "outstation-agent" if role(path) == "agent" else "outstation"
    # What goes wrong with it must not make an end that was asked for a failure.
    assert program == f"-/usr/lib/{library}/bin/python3"
    assert (isolated, module) == ("-I", ["-m", next_start.__name__, "%n"])
    assert float(settings["RestartSec"]) == next_start.RESTART_SECONDS
    # After the pause it has all its time to start.
    assert float(settings["TimeoutStartSec"]) <= next_start.START_SECONDS
    # The broker's sees no /proc/sys.
    assert settings["Environment"] == f"{next_start.BOOT_VARIABLE}=%b"
    unit = RawConfigParser(strict=False)
    unit.read_string(path.read_text(encoding="utf-8"))
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"


@pytest.mark.parametrize("path", UNITS, ids=role)
def test_a_unit_starts_a_command_that_exists(path: Path) -> None:
    program, *arguments = service(path)["ExecStart"].split()
    settings = ["--config", f"/etc/outstation/{role(path)}.yaml"]
    if role(path) == "broker":
        assert (program, arguments) == ("/usr/lib/outstation/bin/python3", ["-I", "-m", "gateway.broker.start"])
        import_module(arguments[-1])
        return
    if role(path) in STATIONS:
        assert (program, arguments) == ("/usr/bin/outstation", [role(path), "run", *settings])
        command = ["gateway.cli.main", *arguments[:2]]
    else:
        assert (program, arguments) == (f"/usr/bin/{path.stem}", ["run", *settings])
        command = ["device_agent", "run"]
    result = subprocess.run(
        [sys.executable, "-m", *command, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "--config" in result.stdout


@pytest.mark.parametrize("path", UNITS, ids=role)
def test_a_unit_makes_the_folder_where_its_daemon_keeps_its_state(path: Path) -> None:
    default = AgentSettings().state_dir if role(path) == "agent" else f"/var/lib/outstation/{role(path)}"
    # The gateway writes the broker's folder as well.
    assert [f"/var/lib/{each}" for each in service(path)["StateDirectory"].split()][:1] == [default]
    assert service(path)["StateDirectoryMode"] == "0700"


@pytest.mark.parametrize("path", [path for path in UNITS if role(path) != "broker"], ids=role)
def test_a_unit_gives_every_part_its_time_to_stop(path: Path) -> None:
    floors = ("upstream", "gateway") if role(path) in STATIONS else ("device_agent",)
    for file in python_files(*floors):
        import_module(name(file).removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    # A drain that is late is cut off and gets as long again to notice. No station has all of these parts.
    stopping = [part for part in parts() - {Part, Swarm} if part.__module__.partition(".")[0] in floors]
    worst = sum(2 * part.drain_seconds for part in stopping)
    assert float(service(path)["TimeoutStopSec"]) >= worst


@pytest.mark.parametrize("path", UNITS, ids=role)
def test_a_unit_is_ready_only_when_it_says_so(path: Path) -> None:
    assert (service(path)["Type"], service(path)["NotifyAccess"]) == ("notify", "main")
    # mosquitto has no word for it; the gateway ends one that hangs.
    assert ("WatchdogSec" in service(path)) == (role(path) != "broker")


def test_the_gateway_and_the_unit_of_its_broker_mean_the_same_places() -> None:
    broker, gateway = (service(ROOT / "systemd" / f"outstation-{each}.service") for each in ("broker", "gateway"))
    assert Path(f"/var/lib/{broker['StateDirectory']}") == SETTINGS.parent
    assert Path(f"/run/{broker['RuntimeDirectory']}") == RUNTIME
    assert broker["StateDirectory"] in gateway["StateDirectory"].split()
    assert broker["User"] == gateway["User"]
