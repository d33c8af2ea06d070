"""The station's own brokers: the managed mosquitto as a process, and the embedded one. Their rules are in
test_broker_rules.py.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from device_agent.errors import EXIT_NOT_ALL_OK, ConfigInvalid, StartDeferred, StationFailed
from device_agent.mqtt import BrokerAddress, MqttLink
from device_agent.parts import leaves
from device_agent.protocol import limits
from gateway.broker import embedded, mosquitto
from gateway.broker.embedded import COMFORTABLE_DEVICES, EmbeddedBroker
from gateway.broker.mosquitto import Mosquitto
from tests.peers.broker import free_ports
from tests.peers.waiting import until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def settings_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the broker puts its settings. Not below tmp_path, which only its owner may enter: the broker has a user."""
    with tempfile.TemporaryDirectory(prefix="outstation-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield folder


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that is taken is tried twice."""
    monkeypatch.setattr(mosquitto, "PORT_RETRIES", 2)
    monkeypatch.setattr(mosquitto, "PORT_RETRY_SECONDS", 0.05)


def managed(port: int | None = None, enroll_port: int | None = None) -> Mosquitto:
    """A mosquitto of ours."""
    free = free_ports(2)
    return Mosquitto(
        site="lisbon",
        state_dir=Path("/nowhere"),
        host="127.0.0.1",
        port=port or free[0],
        enroll_port=enroll_port or free[1],
    )


def embedded_broker(port: int | None = None) -> EmbeddedBroker:
    """An embedded one."""
    free = free_ports(2)
    return EmbeddedBroker(site="lisbon", host="127.0.0.1", port=port or free[0], enroll_port=free[1])


def alive(pid: int) -> bool:
    """Whether there is such a process, and it is not only waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Ear:
    """The station's client, which hears what it says."""

    def __init__(self, address: BrokerAddress, topic: str) -> None:
        self.heard: list[bytes] = []
        self.topic = topic
        self.link = MqttLink(
            address,
            f"ear-{topic}",
            subscriptions=[topic],
            on_message=lambda _, payload: self.heard.append(payload),
            on_connected=self.nothing,
            on_lost=lambda: None,
            count=lambda _: None,
        )

    async def nothing(self) -> None:
        return


@asynccontextmanager
async def ear(address: BrokerAddress) -> AsyncIterator[Ear]:
    """The station, connected."""
    made = Ear(address, "os/lisbon/topic")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(made.link.run())
        try:
            await until(lambda: made.link.state.connected, what="the connection")
            yield made
        finally:
            running.cancel()


async def test_a_managed_broker_carries_messages_and_leaves_nothing_behind(settings_folder: Path) -> None:
    async with managed() as broker:
        status = broker.status()
        assert (status["mode"], status["port"]) == ("managed", broker.port)
        assert alive(status["pid"])
        async with ear(broker.station_address()) as station:
            largest = bytes(limits.MESSAGE_BYTES)
            await station.link.publish(station.topic, largest)
            await until(lambda: station.heard == [largest], what="the largest message")
    assert not alive(status["pid"])
    assert list(settings_folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user to be")
async def test_a_managed_broker_does_not_run_as_root() -> None:
    async with managed() as broker:
        assert Path(f"/proc/{broker.status()['pid']}").stat().st_uid != 0


async def test_its_files_can_be_read_by_its_user_and_by_nobody_else(settings_folder: Path) -> None:
    async with managed() as broker:
        owner = Path(f"/proc/{broker.status()['pid']}").stat().st_uid
        (folder,) = settings_folder.iterdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        files = [each for each in folder.iterdir() if each.is_file()]
        assert {"mosquitto.conf", "devices.acl", "devices.passwords"} < {file.name for file in files}
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        assert {each.stat().st_uid for each in [folder, *files]} == {owner}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("door", ["port", "enroll_port"])
@pytest.mark.parametrize("answers", [True, False], ids=["by one that accepts", "by one that is only bound"])
async def test_a_port_that_is_taken_stops_the_start(answers: bool, door: str, settings_folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        if answers:
            taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ExceptionGroup) as error:
            async with managed(**{door: port}):
                raise AssertionError("it started on a port that is taken")
    (reason,) = leaves(error.value)
    assert isinstance(reason, StartDeferred), "whoever has the port may end"
    assert reason.where == f"broker.{door} {port}"
    assert "in use" in str(reason.found)
    assert f"sport = :{port}" in str(reason.hint)
    assert list(settings_folder.iterdir()) == []


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "broker.invalid"])
async def test_an_address_that_is_not_here_yet_stops_the_start_and_the_unit_tries_again(host: str) -> None:
    broker = managed()
    broker.host = host
    with pytest.raises(ExceptionGroup) as error:
        async with broker:
            raise AssertionError("it started on an address that is not here")
    (reason,) = leaves(error.value)
    assert isinstance(reason, StartDeferred)
    assert reason.exit_status == EXIT_NOT_ALL_OK
    assert (reason.where, reason.hint) == (f"broker.host {host}", "see: ip address")
    assert "address of this machine" in str(reason.allowed)


async def test_an_address_that_comes_in_a_moment_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"), None])

    class Late(Mosquitto):
        async def _refused_door(self) -> tuple[str, OSError] | None:
            error = next(looks)
            return ("broker.host 127.0.0.1", error) if error is not None else await super()._refused_door()

    monkeypatch.setattr(mosquitto, "PORT_RETRY_SECONDS", 0.0)
    port, enroll_port = free_ports(2)
    async with Late(
        site="lisbon", state_dir=Path("/nowhere"), host="127.0.0.1", port=port, enroll_port=enroll_port
    ) as broker:
        assert alive(broker.status()["pid"])


@pytest.mark.usefixtures("impatient")
async def test_a_broker_that_does_not_come_up_is_no_wrong_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "mosquitto"
    program.write_text("#!/bin/sh\necho 'Error: Out of memory.' >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(mosquitto, "find_mosquitto", lambda: str(program))
    monkeypatch.setattr(mosquitto, "_prefix", list)
    with pytest.raises(ExceptionGroup) as error:
        async with managed():
            raise AssertionError("it started with a broker that ended")
    (reason,) = leaves(error.value)
    assert isinstance(reason, StartDeferred)
    assert reason.found == "Error: Out of memory."


async def test_it_serves_the_sites_network() -> None:
    broker = managed()
    broker.host = "0.0.0.0"
    async with broker:
        assert Path(f"/proc/{broker.status()['pid']}").exists()
        with socket.create_connection((socket.gethostbyname(socket.gethostname()), broker.port)):
            pass


async def test_a_port_that_becomes_free_in_a_moment_is_waited_for() -> None:
    """A broker whose station was killed a moment ago still holds it."""
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    asked: list[str | None] = []

    class Counting(Mosquitto):
        async def _refused_door(self) -> tuple[str, OSError] | None:
            if len(asked) == 2:
                taken.close()
            found = await super()._refused_door()
            asked.append(found[1].strerror if found else None)
            return found

    settings = managed(port)
    async with Counting(
        site="lisbon", state_dir=Path("/nowhere"), host="127.0.0.1", port=port, enroll_port=settings.enroll_port
    ) as broker:
        assert alive(broker.status()["pid"])
    assert asked == ["Address already in use", "Address already in use", None]


async def test_a_broker_that_ends_by_itself_ends_its_station() -> None:
    async def hold() -> None:
        async with managed() as broker:
            os.kill(broker.status()["pid"], signal.SIGKILL)
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as error:
        async with asyncio.timeout(60):
            await hold()
    (reason,) = leaves(error.value)
    assert isinstance(reason, StationFailed)
    assert reason.error_id == "broker.ended"


async def test_the_embedded_broker_refuses_an_address_that_others_could_reach() -> None:
    broker = embedded_broker()
    broker.host = "0.0.0.0"
    with pytest.raises(ExceptionGroup) as error:
        async with broker:
            raise AssertionError("it serves everybody")
    assert error.group_contains(ConfigInvalid, match="serves only this machine")


STATION_WITH_A_BROKER = """
import asyncio, sys
from pathlib import Path
from gateway.broker.mosquitto import Mosquitto

async def run(port, enroll_port):
    async with Mosquitto(
        site="lisbon", state_dir=Path("/nowhere"), host="127.0.0.1", port=port, enroll_port=enroll_port
    ) as broker:
        print(broker.status()["pid"], flush=True)
        await asyncio.Event().wait()

asyncio.run(run(int(sys.argv[1]), int(sys.argv[2])))
"""


async def test_a_managed_broker_dies_with_a_station_that_was_killed() -> None:
    ports = free_ports(2)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", STATION_WITH_A_BROKER, *map(str, ports)),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        # It leaves its folder behind.
        env={**os.environ, "TMPDIR": tempfile.gettempdir()},
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        pid = int(await process.stdout.readline())
    assert alive(pid)
    process.send_signal(signal.SIGKILL)
    assert await process.wait() == -signal.SIGKILL
    await until(lambda: not alive(pid), what="the end of the broker")
    # The next station finds the port free, or waits for it.
    async with managed(*ports) as broker:
        assert alive(broker.status()["pid"])


async def test_the_embedded_broker_carries_messages_and_leaves_its_ports() -> None:
    async with embedded_broker() as broker:
        assert (broker.status()["mode"], broker.status()["port"]) == ("embedded", broker.port)
        async with ear(broker.station_address()) as station:
            await station.link.publish(station.topic, b"said")
            await until(lambda: station.heard == [b"said"], what="the message")
    for port in (broker.port, broker.enroll_port):
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", port))


async def test_the_embedded_broker_warns_once_when_there_are_more_devices_than_it_is_fine_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "LOOK_SECONDS", 0.005)
    looks: list[int] = []

    def devices() -> int:
        looks.append(COMFORTABLE_DEVICES + bool(looks))
        return looks[-1]

    broker = embedded_broker()
    broker.count_devices(devices)
    async with broker:
        await until(lambda: len(looks) > 8, what="a few looks")
    assert looks[0] == COMFORTABLE_DEVICES
    assert caplog.text.count(f"{COMFORTABLE_DEVICES + 1} devices on the embedded broker") == 1


async def test_the_embedded_broker_tells_when_its_port_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ExceptionGroup) as error:
            async with embedded_broker(port):
                raise AssertionError("it started on a port that is taken")
    (reason,) = leaves(error.value)
    assert isinstance(reason, StartDeferred)
    assert reason.where == f"broker.port {port}"
