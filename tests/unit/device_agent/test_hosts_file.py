"""A new host name in hosts(5): the lines of this machine change, and nothing else."""

from __future__ import annotations

import pytest

from device_agent.hosts_file import renamed


@pytest.mark.parametrize(
    ("before", "now", "hosts", "expected"),
    [
        ("cam-7", "dock-9", "127.0.1.1\tcam-7.lan cam-7\n", "127.0.1.1\tcam-7.lan dock-9\n"),
        ("cam-7.lan", "dock-9.lan", "127.0.1.1\tcam-7.lan cam-7\n", "127.0.1.1\tdock-9.lan dock-9\n"),
        ("CAM-7", "dock-9", "127.0.1.1 cam-7", "127.0.1.1 dock-9"),
        ("throwaway", "dock-9", "127.0.0.1 throwaway localhost\n", "127.0.0.1 dock-9 localhost\n"),
        ("localhost.site", "dock-9", "127.0.0.1 localhost localhost.site\n", "127.0.0.1 localhost dock-9\n"),
        ("127.0.0.1", "dock-9", "127.0.0.1 localhost 127.0.0.1\n", "127.0.0.1 localhost dock-9\n"),
    ],
)
def test_the_old_name_is_replaced_beside_a_loopback_address(before: str, now: str, hosts: str, expected: str) -> None:
    assert renamed(hosts, before, now) == expected


@pytest.mark.parametrize("before", ["localhost.localdomain", "localhost", "LOCALHOST"])
def test_localhost_stays_and_the_new_name_is_added_behind_it(before: str) -> None:
    hosts = "127.0.0.1 localhost localhost.localdomain # loopback\n::1\tlocalhost ip6-localhost\n"
    changed = renamed(hosts, before, "cam-7").splitlines()
    assert changed[0] == "127.0.0.1 localhost localhost.localdomain cam-7 # loopback"
    assert changed[1].startswith("::1\tlocalhost ip6-localhost")
    assert renamed("\n".join(changed), before, "cam-7") == "\n".join(changed)


def test_a_name_of_another_machine_stays_though_its_short_form_is_the_same() -> None:
    hosts = "127.0.1.1 cam.here.example cam\n192.0.2.7 cam.there.example cam\n"
    assert renamed(hosts, "cam.here.example", "dock") == "127.0.1.1 dock dock\n192.0.2.7 cam.there.example cam\n"
    assert renamed(hosts, "cam", "dock") == "127.0.1.1 cam.here.example dock\n192.0.2.7 cam.there.example cam\n"


def test_the_line_of_an_address_of_this_machine_changes() -> None:
    hosts = "192.0.2.7 cam.example cam\n2001:DB8::7 cam\n192.0.2.70 cam\n"
    expected = "192.0.2.7 cam.example dock\n2001:DB8::7 dock\n192.0.2.70 cam\n"
    assert renamed(hosts, "cam", "dock", {"192.0.2.7", "2001:db8::7"}) == expected


def test_a_line_with_the_whole_old_name_changes_whatever_its_address() -> None:
    hosts = "203.0.113.5 cam.site.example cam\n"
    assert renamed(hosts, "cam.site.example", "dock.site.example") == "203.0.113.5 dock.site.example dock\n"


@pytest.mark.parametrize(
    "hosts", ["# 127.0.1.1 cam\n", "127.0.0.1 localhost # cam\n", "\n", "", "cam\n", "nonsense cam\n"]
)
def test_comments_and_lines_without_an_address_stay(hosts: str) -> None:
    assert renamed(hosts, "cam", "dock") == hosts


def test_lines_and_blanks_are_those_of_the_c_library() -> None:
    hosts = "  127.0.1.1 \t cam\r\n127.0.1.1 a\u2028cam b\u00a0cam\n"
    assert renamed(hosts, "cam", "dock") == "  127.0.1.1 \t dock\r\n127.0.1.1 a\u2028cam b\u00a0cam\n"


def test_a_machine_that_is_to_be_called_localhost_takes_no_name_from_the_file() -> None:
    assert renamed("127.0.1.1 cam\n", "cam", "localhost") == "127.0.1.1 cam\n"
