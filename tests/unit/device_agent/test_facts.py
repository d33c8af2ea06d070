"""The facts of a machine: what the script's answer means, a device's own file of them, and what a message can carry."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from device_agent.facts import (
    BULKY,
    CUSTOM_BYTES,
    FACTS_BYTES,
    LINE_CHARACTERS,
    NODES,
    NoFacts,
    built_in,
    collect,
    custom,
    fitted,
)
from device_agent.facts_script import script, sections
from device_agent.local_host import LocalHost
from device_agent.protocol import limits
from device_agent.protocol.grain_changes import difference
from device_agent.protocol.messages import check_plain, encode_value
from device_agent.readings import resources

ASCII = "".join(map(chr, range(32, 127)))
ROUTES = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"


def _parts() -> set[str]:
    return {line.split()[1].rstrip(";") for line in script("f").splitlines() if line.startswith("part ")} - {"custom"}


async def test_a_machine_reports_its_facts_under_salts_names(tmp_path: Path) -> None:
    grains = await collect(LocalHost({}), "cam-1", str(tmp_path / "none"))
    uname = os.uname()
    assert grains["id"] == "cam-1"
    assert (grains["kernel"], grains["kernelrelease"], grains["kernelversion"], grains["cpuarch"]) == (
        uname.sysname,
        uname.release,
        uname.version,
        uname.machine,
    )
    assert (grains["nodename"], grains["localhost"], grains["host"]) == (
        uname.nodename,
        uname.nodename,
        uname.nodename.split(".")[0],
    )
    assert grains["num_cpus"] == os.cpu_count()
    assert grains["mem_total"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    assert grains["ip4_interfaces"]["lo"] == ["127.0.0.1"]
    assert "127.0.0.1" in grains["ipv4"]
    assert (grains["uid"], grains["gid"]) == (os.getuid(), os.getgid())
    assert isinstance(grains["cpu_flags"], list)
    assert isinstance(grains["kernelparams"], list)
    check_plain(grains)
    assert len(encode_value(grains)) <= limits.GRAINS_BYTES


def test_the_distribution_is_named_as_in_salt() -> None:
    release = 'PRETTY_NAME="Debian GNU/Linux 12"\nNAME="Debian GNU/Linux"\nVERSION_ID="12"\nID=debian\n# end\n'
    grains = built_in({"release": release + "VERSION_CODENAME=bookworm\n"})
    expected = {
        "os": "Debian",
        "os_family": "Debian",
        "osfullname": "Debian GNU/Linux",
        "osrelease": "12",
        "osrelease_info": [12],
        "osmajorrelease": 12,
        "oscodename": "bookworm",
        "osfinger": "Debian-12",
    }
    assert {name: grains[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("release", "system", "family", "finger"),
    [
        ("ID=raspbian\nID_LIKE=debian\nNAME='Raspbian GNU/Linux'\nVERSION_ID=11", "Raspbian", "Debian", "Raspbian-11"),
        ("ID=ubuntu\nID_LIKE=debian\nNAME=Ubuntu\nVERSION_ID='22.04'", "Ubuntu", "Debian", "Ubuntu-22.04"),
        (
            "ID=rocky\nID_LIKE='rhel centos fedora'\nNAME='Rocky Linux'\nVERSION_ID=9.3",
            "Rocky",
            "RedHat",
            "Rocky Linux-9",
        ),
        ("ID=openwrt\nID_LIKE='lede openwrt'\nNAME=OpenWrt\nVERSION_ID='23.05.2'", "OpenWrt", "OpenWrt", "OpenWrt-23"),
        ("ID=alpine\nNAME='Alpine Linux'\nVERSION_ID=3.19.1", "Alpine", "Alpine", "Alpine Linux-3"),
        ("ID=camera-os\nNAME='CamOS Linux'\n", "CamOS", "CamOS", None),
        ("", "Linux", "Linux", None),
        ("\x00\nnonsense\n==\n", "Linux", "Linux", None),
    ],
)
def test_a_distribution_nobody_listed_still_has_a_name(
    release: str, system: str, family: str, finger: str | None
) -> None:
    grains = built_in({"release": release})
    assert (grains["os"], grains["os_family"], grains.get("osfinger")) == (system, family, finger)


def test_an_old_openwrt_without_the_usual_file_has_its_own() -> None:
    grains = built_in({"openwrt": "DISTRIB_ID='OpenWrt'\nDISTRIB_RELEASE='15.05'\nDISTRIB_CODENAME='chaos_calmer'\n"})
    assert (grains["os"], grains["osrelease"], grains["oscodename"]) == ("OpenWrt", "15.05", "chaos_calmer")


def test_a_board_says_what_it_is_in_its_device_tree_and_its_processor() -> None:
    grains = built_in(
        {
            "tree": "serial-number=10000000abcdef01\nmodel=Raspberry Pi 4 Model B Rev 1.4",
            "cpu": "processor\t: 0\nmodel name\t: ARMv7 Processor rev 3 (v7l)\nFeatures\t: half thumb neon\n",
            "cpus": "4",
            "uname": "Linux\n6.1.21-v7+\n#1642 SMP\narmv7l\ncam.site.example",
        }
    )
    assert (grains["productname"], grains["serialnumber"]) == ("Raspberry Pi 4 Model B Rev 1.4", "10000000abcdef01")
    assert (grains["cpu_model"], grains["num_cpus"]) == ("ARMv7 Processor rev 3 (v7l)", 4)
    assert grains["cpu_flags"] == ["half", "thumb", "neon"]
    assert (grains["host"], grains["fqdn"], grains["domain"]) == ("cam", "cam.site.example", "site.example")
    assert (grains["osarch"], grains["virtual"]) == ("armv7l", "physical")


def test_a_pc_says_what_it_is_in_its_dmi_table_and_a_maker_that_wrote_nothing_has_no_grain() -> None:
    dmi = "product_name=Edge  Box\t7\nproduct_serial=To Be Filled By O.E.M.\nsys_vendor=QEMU\nproduct_uuid=ABC-1\n"
    grains = built_in({"dmi": dmi})
    assert (grains["productname"], grains["manufacturer"], grains["uuid"]) == ("Edge Box 7", "QEMU", "abc-1")
    assert "serialnumber" not in grains
    assert grains["virtual"] == "kvm"


@pytest.mark.parametrize(
    ("parts", "virtual"),
    [
        ({"container": "systemd-nspawn"}, {"virtual": "container", "virtual_subtype": "systemd-nspawn"}),
        ({"container": "docker"}, {"virtual": "container", "virtual_subtype": "Docker"}),
        ({"dmi": "sys_vendor=VMware, Inc."}, {"virtual": "VMware"}),
        ({"dmi": "sys_vendor=Microsoft Corporation\nproduct_name=Virtual Machine"}, {"virtual": "HyperV"}),
        ({"cpu": "flags\t: fpu hypervisor"}, {"virtual": "unknown"}),
        ({}, {"virtual": "physical"}),
    ],
)
def test_what_is_no_machine_says_so(parts: dict[str, str], virtual: dict[str, str]) -> None:
    assert {name: value for name, value in built_in(parts).items() if name.startswith("virtual")} == virtual


def test_addresses_routes_and_name_servers_are_those_of_the_machine() -> None:
    grains = built_in(
        {
            "links": "1: lo: <LOOPBACK,UP> mtu 65536\\    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00\n"
            "7: eth0.5@eth0: <BROADCAST> mtu 1500\\    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff",
            "addresses": "1: lo    inet 127.0.0.1/8 scope host lo\n7: eth0.5    inet 10.0.0.9/24 scope global eth0.5\n"
            "7: eth0.5    inet 10.0.0.10/24 brd 10.0.0.255 scope global secondary eth0.5:1\n"
            "7: eth0.5    inet6 2001:db8::9/64 scope global flags 02 ",
            "route": ROUTES + "eth0.5 00000000 0100000A 0003 0 0 20 00000000 0 0 0\n"
            "eth0.5 00000000 FE00000A 0003 0 0 10 00000000 0 0 0",
            "resolv": "# made\nnameserver 10.0.0.1\nnameserver 2001:db8::1\nsearch a.example b.example\n",
            "hosts": "127.0.1.1 gate.site.example gate\n",
            "uname": "Linux\n6\n#1\nmips\ngate",
        }
    )
    assert grains["ip_interfaces"] == {"lo": ["127.0.0.1"], "eth0.5": ["10.0.0.9", "10.0.0.10", "2001:db8::9"]}
    assert grains["ipv4"] == ["10.0.0.9", "10.0.0.10", "127.0.0.1"]
    assert grains["hwaddr_interfaces"]["eth0.5"] == "02:00:00:00:00:01"
    assert (grains["ip_gw"], grains["ip4_gw"], grains["ip6_gw"]) == (True, "10.0.0.254", False)
    assert grains["dns"]["ip6_nameservers"] == ["2001:db8::1"]
    assert grains["dns"]["search"] == ["a.example", "b.example"]
    assert (grains["fqdn"], grains["domain"]) == ("gate.site.example", "site.example")


def test_a_machine_of_the_other_byte_order_has_the_same_gateway() -> None:
    line = ROUTES + "br-lan 00000000 0A000001 0003 0 0 0 00000000 0 0 0"
    assert built_in({"route": line, "order": "\x02"})["ip4_gw"] == "10.0.0.1"


def test_a_machine_without_any_file_reports_what_it_knows() -> None:
    grains = built_in({})
    assert grains["os"] == "Linux"
    assert not {"mem_total", "swap_total", "machine_id", "osmajorrelease", "num_cpus", "serialnumber"} & grains.keys()
    assert grains["ipv6"] == []


def test_the_script_is_plain_posix_shell() -> None:
    for shell in (["sh", "-n"], ["busybox", "sh", "-n"]):
        checked = subprocess.run(shell, input=script("/etc/a b'c").encode(), capture_output=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, b"")


# --- a device's own ----------------------------------------------------------------------------------------------


async def test_a_file_on_the_device_adds_to_its_facts_and_wins_but_for_its_name(tmp_path: Path) -> None:
    own = tmp_path / "it's own"
    own.write_text("floor: 3\nos: CamOS\nid: cam-99\nroles: [gate, edge]\nnote: '%%end'\n1: one\nsince: 2024-01-02\n")
    grains = await collect(LocalHost({}), "cam-1", str(own))
    assert (grains["floor"], grains["os"], grains["id"], grains["roles"]) == (3, "CamOS", "cam-1", ["gate", "edge"])
    assert (grains["1"], grains["since"]) == ("one", "2024-01-02")


def bomb(merged: str) -> str:
    """A little file that would become a large value."""
    lines = ["a0: &a0 {x: 1}"]
    for level in range(1, 12):
        inner = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} " + (f"{{<<: [{inner}]}}" if merged else f"[{inner}]"))
    return "\n".join(lines)


WRONG = {
    "a list": "- a\n- list\n",
    "broken": "a: [\n",
    "a tab": "\t\n a",
    "a program": "!!python/object:os.system {}",
    "no text": "\x00",
    "too large": "a: " + "x" * CUSTOM_BYTES,
    "too deep": "a: " + "[" * 500 + "]" * 500,
    "too deep for any reader": "a: " + "[" * 30_000,
    "too long to be read whole": "a: 1\n" + "# and so on\n" * 3000,
    "two documents": "a: 1\n---\nb: 2\n",
    "a number past all bounds": "a: " + "9" * 5000,
    "itself": "a: &a [*a]",
    "aliases of aliases": bomb(""),
    "merges of merges": bomb("yes"),
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_file_that_is_wrong_takes_nothing_with_it(text: str, caplog: pytest.LogCaptureFixture) -> None:
    assert custom(text, "/etc/outstation/grains") == {}
    assert "/etc/outstation/grains" in caplog.text


@pytest.mark.parametrize(
    ("line", "kept", "told"),
    [
        ("bad: 99999999999999999999999", {"bad": "99999999999999999999999"}, ""),
        ("bad: {when: 2026-11-27, 5: 6}", {"bad": {"when": "2026-11-27", "5": 6}}, ""),
        ("bad: " + "x" * CUSTOM_BYTES, {}, "own grains would have"),
        ("bad: {1: a, '1': b}", {}, "bad: two keys are '1' as text"),
        ("1: a\n'1': b", {"1": "a"}, "another grain has this name"),
    ],
)
def test_a_value_that_no_message_can_carry_costs_that_grain_alone(
    line: str, kept: dict[str, Any], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = custom(f"rack: 7\n{line}\nrow: b\n", "/etc/outstation/grains")
    assert found == {"rack": 7, "row": "b", **kept}
    encode_value(found)
    assert told in caplog.text
    assert ("/etc/outstation/grains" in caplog.text) == bool(told)


def test_of_what_a_hostile_machine_says_no_more_is_read_than_honest_ones_say(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    taken = resources.parameters

    def parameters(line: str) -> list[list[str | None]]:
        read.append(line)
        return taken(line)

    monkeypatch.setattr(resources, "parameters", parameters)
    built_in(dict.fromkeys(_parts(), "x" * FACTS_BYTES))
    assert list(map(len, read)) == [LINE_CHARACTERS]


def test_a_file_of_too_many_values_is_given_up_when_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0

    def events(*given: Any, **how: Any) -> Iterator[yaml.Event]:
        nonlocal seen
        for event in parse(*given, **how):
            seen += 1
            yield event

    parse = yaml.parse
    monkeypatch.setattr(yaml, "parse", events)
    assert custom("a: [" + "1," * 16_000 + "]", "f") == {}
    assert seen <= 2 * NODES + 1


@given(st.dictionaries(st.sampled_from(sorted(_parts())), st.text(ASCII + "\n\t", max_size=300)))
def test_whatever_a_machine_says_of_itself_can_be_carried_or_is_refused(parts: dict[str, str]) -> None:
    try:
        grains = built_in(parts)
    except (ValueError, OverflowError):
        return
    check_plain(grains)
    encode_value(grains)


def test_an_empty_file_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert custom("# nothing\n", "f") == {}
    assert not caplog.text


def test_bulky_facts_make_room_for_those_that_targets_match(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    grains: dict[str, Any] = {
        "id": "cam-1",
        "role": "gate",
        "cpu_flags": ["x" * 9] * 2000,
        "kernelparams": [["a", "b"]],
    }
    kept = fitted(grains, 1000)
    assert kept == {"id": "cam-1", "role": "gate", "kernelparams": [["a", "b"]]}
    assert "cpu_flags" in caplog.text
    assert fitted(dict.fromkeys(BULKY, "x" * 100) | {"big": "x" * 5000}, 1000).keys() == {"big"}


async def test_what_is_no_shell_has_no_facts() -> None:
    class Stubborn(LocalHost):
        async def run(self, argv: Any, **options: Any) -> Any:
            return await super().run(["echo", "% Unknown command"])

    with pytest.raises(NoFacts, match="no POSIX shell"):
        await collect(Stubborn({}), "cam-1")


def test_an_answer_that_breaks_off_has_the_parts_that_came() -> None:
    parts = sections("\n%%uname\nLinux\n\n%%release\nID=debian\n\n%%custom\nfloor: 3\n")
    assert parts == {"uname": "Linux", "release": "ID=debian"}


# --- changes -----------------------------------------------------------------------------------------------------


def test_a_change_is_told_with_what_was_and_what_is() -> None:
    old = {"a": 1, "b": [1], "gone": "x", "same": {"k": 1}, "path": "/bin", "uid": 0}
    new = {"a": 2, "b": [1, 2], "came": None, "same": {"k": 1}, "path": "/sbin", "shell": "/bin/ash"}
    assert difference(old, new) == {
        "a": {"old": 1, "new": 2},
        "b": {"old": [1], "new": [1, 2]},
        "came": {"new": None},
        "gone": {"old": "x"},
    }
    assert difference({"a": "x" * 5000}, {"a": 1}) == {"a": {"old": "[5000 characters]", "new": 1}}
