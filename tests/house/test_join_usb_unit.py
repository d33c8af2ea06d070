"""The unit that reads a stick agrees with the code: its command, when it looks, and what starts it."""

from __future__ import annotations

import re
from configparser import RawConfigParser

from typer.main import get_command

from device_agent.errors import EXIT_USAGE, NotFound, UsageInvalid
from gateway.cli.program import app
from gateway.fleet.usb_stick import KINDS
from tests.house.tree import ROOT

UNIT = "outstation-join-usb.service"


def unit() -> RawConfigParser:
    found = RawConfigParser(strict=False)
    found.optionxform = str  # type: ignore[assignment,method-assign]  # the documented way to keep the case of keys
    found.read_string((ROOT / "systemd" / UNIT).read_text(encoding="utf-8"))
    return found


def test_it_starts_a_command_that_exists_and_takes_another_stick_for_no_failure() -> None:
    service = unit()["Service"]
    program, *words = service["ExecStart"].split()
    assert (program, words) == ("/usr/bin/outstation", ["gateway", "join", "--usb", "--no-wait"])
    join = get_command(app).commands["gateway"].commands["join"]  # type: ignore[attr-defined]  # groups of commands
    assert {"--usb", "--no-wait"} <= {option for parameter in join.params for option in parameter.opts}
    assert NotFound.exit_status == UsageInvalid.exit_status == EXIT_USAGE == int(service["SuccessExitStatus"])


def test_it_looks_only_where_nothing_has_joined_and_mounts_where_nobody_sees_it() -> None:
    text = (ROOT / "systemd" / UNIT).read_text(encoding="utf-8")
    asked = set(re.findall(r"^ConditionPathExists=!/var/lib/outstation/gateway/(\S+)$", text, re.MULTILINE))
    joined = (ROOT / "gateway" / "cli" / "join.py").read_text(encoding="utf-8")
    marks = re.search(r"for name in \(([^)]*)\)\)", joined)
    assert marks is not None
    assert asked == set(re.findall(r'"([^"]+)"', marks[1]))
    service = unit()["Service"]
    assert (service["PrivateMounts"], service["PrivateNetwork"], service["DevicePolicy"]) == ("yes", "yes", "closed")
    assert re.findall(r"^DeviceAllow=(.+)$", text, re.MULTILINE) == ["block-sd r", "block-mmc r"]
    assert "Install" not in unit()


def test_udev_starts_it_for_the_media_and_the_file_systems_that_it_reads() -> None:
    rules = (ROOT / "debian" / "outstation.udev").read_text(encoding="utf-8").splitlines()
    stick, card = [rule for rule in rules if not rule.startswith("#")]
    for rule in (stick, card):
        assert rule.startswith('ACTION=="add", SUBSYSTEM=="block", ')
        assert rule.endswith(f'TAG+="systemd", ENV{{SYSTEMD_WANTS}}+="{UNIT}"')
        kinds = re.search(r'ENV\{ID_FS_TYPE\}=="([^"]+)"', rule)
        assert kinds is not None
        assert kinds[1].split("|") == KINDS.split(",")
    assert 'KERNEL=="sd*", ATTRS{removable}=="1"' in stick
    assert 'KERNEL=="mmcblk*", SUBSYSTEMS=="mmc", ATTRS{type}=="SD"' in card


def test_its_rules_come_after_those_that_find_the_file_system() -> None:
    built = (ROOT / "debian" / "rules").read_text(encoding="utf-8")
    priority = re.search(r"^\tdh_installudev --priority=(\d+)$", built, re.MULTILINE)
    assert priority is not None, (
        "without it they are 60-outstation.rules, which udev reads before the file system is known"
    )
    assert f"{priority[1]}-outstation.rules" > "60-persistent-storage.rules"
