"""What functions see and do on a machine with interfaces, a name and processes of its own, and BusyBox alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from device_agent import loader
from device_agent.ended import Ended
from device_agent.facts import collect
from device_agent.links import interfaces_of
from device_agent.readings.addresses import from_ifconfig
from tests.peers.small_machine import SmallMachine, allowed, small_machine
from tests.peers.waiting import until

pytestmark = pytest.mark.skipif(not allowed(), reason="only root can make namespaces")

CAM0 = {
    "up": True,
    "hwaddr": "02:00:00:00:00:07",
    "inet": [{"address": "10.7.0.2", "netmask": "255.255.255.0", "broadcast": "10.7.0.255", "label": "cam0"}],
    "secondary": [
        {"type": "inet", "address": "10.7.0.3", "netmask": "255.255.255.0", "broadcast": None, "label": "cam0"}
    ],
}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[SmallMachine]:
    with small_machine(tmp_path / "root") as made:
        yield made


async def call(machine: SmallMachine, name: str, *arg: Any, **kwarg: Any) -> Ended:
    async with asyncio.timeout(60):
        return await loader.call(name, machine, list(arg), kwarg)


async def value(machine: SmallMachine, name: str, *arg: Any, **kwarg: Any) -> Any:
    ended = await call(machine, name, *arg, **kwarg)
    assert ended.outcome == "ok", ended
    return ended.value


async def test_interfaces_addresses_and_routes_are_those_it_has(machine: SmallMachine) -> None:
    found = await value(machine, "network.interfaces")
    assert {"lo", "cam0", "cam1"} <= found.keys()
    inet6 = found["cam0"].pop("inet6")
    assert {"address": "2001:db8:7::2", "prefixlen": "64", "scope": "global"} in inet6
    assert found["cam0"] == CAM0
    assert found["cam1"] == {"up": False, "hwaddr": "02:00:00:00:00:08"}
    assert await value(machine, "network.ip_addrs") == ["10.7.0.2", "10.7.0.3"]
    assert await value(machine, "network.ip_addrs", cidr="10.7.0.3/32") == ["10.7.0.3"]
    assert await value(machine, "network.ip_addrs6", "cam0", cidr="2001:db8::/32") == ["2001:db8:7::2"]
    assert await value(machine, "network.ip_addrs", type="public") == []
    assert await value(machine, "network.subnets", interfaces=["cam0"]) == ["10.7.0.0/24"]
    assert await value(machine, "network.subnets", interfaces="cam1") == []
    assert await value(machine, "network.in_subnet", "10.7.0.0/29") is True
    assert await value(machine, "network.default_route", family="inet") == [
        {
            "addr_family": "inet",
            "destination": "0.0.0.0",
            "gateway": "10.7.0.1",
            "netmask": "0.0.0.0",
            "flags": "UG",
            "interface": "cam0",
        }
    ]
    way = {"destination": "192.0.2.9", "gateway": "10.7.0.1", "interface": "cam0", "source": "10.7.0.2"}
    assert await value(machine, "network.get_route", "192.0.2.9") == way


async def test_the_old_ifconfig_says_the_same_but_for_second_addresses(machine: SmallMachine) -> None:
    new = await interfaces_of(machine)
    old = from_ifconfig((await machine.run(["ifconfig", "-a"])).stdout.decode())
    assert {name: (each.up, each.hardware) for name, each in old.items()} == {
        name: (each.up, each.hardware) for name, each in new.items()
    }
    assert old["cam0"].shown()["inet"] == new["cam0"].shown()["inet"]
    assert {each.address for each in old["cam0"].six} == {each.address for each in new["cam0"].six}
    assert [each.address for each in old["cam0"].four] == ["10.7.0.2"]


async def test_its_grains_are_its_own(machine: SmallMachine) -> None:
    grains = await collect(machine, "cam-7")
    assert (grains["nodename"], grains["host"], grains["fqdn"], grains["domain"]) == (
        "cam-7",
        "cam-7",
        "cam-7.old",
        "old",
    )
    assert (grains["ip4_gw"], grains["ip_gw"]) == ("10.7.0.1", True)
    assert (grains["os"], grains["ps"], grains["username"]) == ("Linux", "ps w", "root")


async def test_it_pings_and_traces_itself(machine: SmallMachine) -> None:
    assert "4 packets" in await value(machine, "network.ping", "127.0.0.1")
    assert await value(machine, "network.ping", "127.0.0.1", timeout=1, return_boolean=True) is True
    assert await value(machine, "network.ping", "10.7.0.2", return_boolean="true") is True
    [hop] = await value(machine, "network.traceroute", "127.0.0.1")
    assert (hop["count"], hop["ip"]) == (1, "127.0.0.1")


async def test_its_name_is_changed_now_and_for_its_next_start(machine: SmallMachine) -> None:
    assert await value(machine, "network.get_fqdn") == "cam-7.old"
    assert await value(machine, "network.mod_hostname", "cam-17.site.example") is True
    assert await value(machine, "network.get_hostname") == "cam-17.site.example"
    assert (machine.root / "etc/hostname").read_text() == "cam-17.site.example\n"
    hosts = (machine.root / "etc/hosts").read_text()
    assert hosts == "127.0.0.1\tlocalhost\n# cam-7 is below\n127.0.1.1\tcam-7.old cam-17.site.example\n"


async def test_a_machine_called_localhost_keeps_localhost_when_it_gets_a_name(machine: SmallMachine) -> None:
    before = await value(machine, "network.get_hostname")
    await machine.run(["hostname", "localhost.localdomain"])
    hosts = machine.root / "etc/hosts"
    hosts.write_text("127.0.0.1 localhost localhost.localdomain\n10.7.0.3 localhost.localdomain\n10.7.0.9 localhost\n")
    assert await value(machine, "system.set_computer_name", "cam-7") is True
    expected = (
        "127.0.0.1 localhost localhost.localdomain cam-7\n10.7.0.3 localhost.localdomain cam-7\n10.7.0.9 localhost\n"
    )
    assert hosts.read_text() == expected
    assert await value(machine, "system.set_computer_name", before) is True


async def test_a_long_list_of_hosts_is_not_cut_short_with_its_name(machine: SmallMachine) -> None:
    long = "127.0.1.1\tcam-7\n" + "".join(f"0.0.0.0 no-{number}.example # \xe4\n" for number in range(50_000))
    (machine.root / "etc/hosts").write_bytes(long.encode("latin-1"))
    before = await value(machine, "network.get_hostname")
    assert await value(machine, "network.mod_hostname", "cam-18") is True
    now = (machine.root / "etc/hosts").read_bytes().decode("latin-1")
    assert now.splitlines()[1:] == long.splitlines()[1:]
    assert await value(machine, "network.mod_hostname", before) is True


async def test_processes_are_found_described_and_ended(machine: SmallMachine) -> None:
    await machine.run("sleep 7777 >/dev/null 2>&1 & sleep 8888 >/dev/null 2>&1 &", shell=True)
    found = await value(machine, "ps.pgrep", "sleep 7777", full=True)
    assert found is not None
    [pid] = found
    told = await value(machine, "ps.proc_info", pid, attrs=["pid", "name", "cmdline", "username", "uids", "status"])
    assert told == {
        "pid": pid,
        "name": "sleep",
        "cmdline": ["sleep", "7777"],
        "username": "root",
        "uids": [0, 0, 0],
        "status": "sleeping",
    }
    assert await value(machine, "status.pid", "sleep 7777") == str(pid)
    assert (await value(machine, "status.procs"))[str(pid)] == {"user": "root", "cmd": "sleep 7777"}
    assert await value(machine, "ps.kill_pid", pid) is True

    async def gone() -> bool:
        seen = (await call(machine, "ps.proc_info", pid, attrs=["status"])).value
        return seen is None or seen == {"status": "zombie"}  # Its first process does not wait for its children.

    await until(gone, what="the end of the process")
    [other] = (await value(machine, "ps.pkill", "sleep 8{4}", full=True))["killed"]
    assert other != pid
    assert await value(machine, "ps.pkill", "sleep 8{4}", user="nobody", full=True) is None


async def test_the_disks_it_has_mounted_are_shown(machine: SmallMachine) -> None:
    await machine.run("mkdir '/mnt a' && mount -t tmpfs -o size=1m 'my disk' '/mnt a'", shell=True)
    await machine.run("cp /bin/busybox '/mnt a/x'", shell=True)
    row = (await value(machine, "disk.usage"))["/mnt a"]
    assert (row["1K-blocks"], row["filesystem"]) == ("1024", "my disk")
    assert await value(machine, "disk.percent", "/mnt a") == row["capacity"]
    assert (await value(machine, "status.diskusage", "/mnt*"))["/mnt a"]["total"] == 2**20
    assert (await value(machine, "ps.disk_usage", "/mnt a"))["total"] == 2**20
    listed = [each for each in await value(machine, "ps.disk_partitions", all=True) if each["mountpoint"] == "/mnt a"]
    assert [(each["device"], each["fstype"]) for each in listed] == [("my disk", "tmpfs")]
