"""What looks at a machine sees the same on it over every way: this process, OpenSSH, dropbear with BusyBox alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from device_agent import loader
from device_agent.facts import collect
from device_agent.host import Host
from device_agent.local_host import LocalHost
from device_agent.own import NO_GRAINS_FILE
from device_agent.protocol.grain_changes import PASSING
from gateway.downlinks.ssh_host import SshHost
from tests.peers.function_case import Case
from tests.peers.function_cases_looks import CASES, SAME
from tests.peers.played_camera import PASSWORD, PICTURE, USER, PlayedCamera, played_camera
from tests.peers.ssh_beds import SshBed, dropbear, openssh

OF_ITS_ROOT = {"os", "os_family", "osfullname", "osrelease", "osrelease_info", "osmajorrelease", "oscodename"} | {
    "osfinger",
    "osarch",
    "machine_id",
    "locale_info",
    "timezone",
    "systemd",
    "init",
    "ps",
    "dns",
    "fqdn",
    "domain",
    "virtual",
    "virtual_subtype",
    "disks",
    "ssds",
    "lsb_distrib_id",
    "lsb_distrib_codename",
    "lsb_distrib_release",
}
"""Facts that are those of the file system and of the processes, which a bed has of its own."""


@pytest.fixture(scope="module")
def beds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, SshBed]]:
    with openssh(tmp_path_factory.mktemp("openssh")) as whole, dropbear(tmp_path_factory.mktemp("busybox")) as small:
        yield {"openssh": whole, "busybox": small}


@asynccontextmanager
async def host_of(kind: str, beds: dict[str, SshBed]) -> AsyncIterator[Host]:
    if kind == "local":
        yield LocalHost({"id": "here"})
        return
    async with await beds[kind].connect() as connection:
        yield SshHost(connection, {"id": "there"})


async def test_what_has_one_right_answer_has_it_everywhere(beds: dict[str, SshBed]) -> None:
    async with host_of("local", beds) as here, host_of("openssh", beds) as there, host_of("busybox", beds) as small:
        for fun in SAME:
            ends = [await loader.call(fun, host, [], {}) for host in (here, there, small)]
            assert ends[0].outcome == "ok", ends[0]
            assert ends[1] == ends[0], fun
            assert ends[2] == ends[0], fun


async def test_a_machine_tells_the_same_facts_over_every_way(beds: dict[str, SshBed]) -> None:
    async with host_of("local", beds) as here, host_of("openssh", beds) as there, host_of("busybox", beds) as small:
        found = [await collect(host, "cam", NO_GRAINS_FILE) for host in (here, there, small)]
    kept = [{name: told[name] for name in told.keys() - PASSING - OF_ITS_ROOT} for told in found]
    assert {"ip_interfaces", "mem_total", "num_cpus", "cpu_model", "hwaddr_interfaces", "boot_id"} <= kept[0].keys()
    assert kept[1] == kept[0]
    assert kept[2] == kept[0]
    assert found[2]["ps"] == "ps w"


async def test_an_ssh_device_has_a_file_of_its_own_grains(beds: dict[str, SshBed]) -> None:
    async with host_of("busybox", beds) as host:
        await host.run(["mkdir", "-p", "/etc/outstation"])
        await host.write("/etc/outstation/grains", b"room: dock\nid: other\n")
        facts = await host.facts()
        assert (facts["room"], facts["id"]) == ("dock", "there")


@pytest.mark.parametrize("kind", ["openssh", "busybox"])
async def test_a_camera_behind_an_ssh_device_is_asked_from_there(kind: str, beds: dict[str, SshBed]) -> None:
    async with played_camera(PlayedCamera(login="SHA-256")) as camera, host_of(kind, beds) as host:
        login = {"username": USER, "password": PASSWORD}
        ports = {"rtsp_port": camera.port, "http_port": camera.port}
        probed = await loader.call("camera.probe", host, [], {"path": "/stream1", **ports, **login})
        taken = await loader.call(
            "camera.snapshot", host, [], {"http_port": camera.port, "save_to": "/tmp/door.jpg", **login}
        )
        assert (probed.outcome, len(probed.value["rtsp"]["streams"])) == ("ok", 2), probed
        assert taken.value["file"] == "/tmp/door.jpg", taken
        assert await host.read("/tmp/door.jpg") == PICTURE


def test_no_case_is_there_twice() -> None:
    def key(case: Case) -> str:
        return f"{case.fun} {case.arg} {case.kwarg}"

    assert len({key(case) for case in CASES}) == len(CASES)
