"""The station's own brokers: the managed mosquitto as a process, and the embedded one."""

from __future__ import annotations

import asyncio
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

from device_agent.errors import ConfigInvalid, StationFailed
from device_agent.mqtt import BrokerAddress, MqttLink
from device_agent.parts import leaves
from device_agent.protocol import limits
from gateway.broker import embedded, mosquitto
from gateway.broker.embedded import COMFORTABLE_DEVICES, EmbeddedBroker
from gateway.broker.external import ExternalBroker
from gateway.broker.mosquitto import Mosquitto
from tests.peers.broker import free_port
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


def alive(pid: int) -> bool:
    """Whether there is such a process, and it is not only waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Ear:
    """A client that hears what it says."""

    def __init__(self, port: int, topic: str) -> None:
        self.heard: list[bytes] = []
        self.topic = topic
        self.link = MqttLink(
            BrokerAddress("127.0.0.1", port),
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
async def ears(port: int, count: int = 1) -> AsyncIterator[list[Ear]]:
    """Clients that are connected."""
    made = [Ear(port, f"topic/{number}") for number in range(count)]
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(ear.link.run()) for ear in made]
        try:
            await until(lambda: all(ear.link.state.connected for ear in made), what="every connection")
            yield made
        finally:
            for task in running:
                task.cancel()


async def test_a_managed_broker_carries_messages_and_leaves_nothing_behind(settings_folder: Path) -> None:
    port = free_port()
    async with Mosquitto("127.0.0.1", port) as broker:
        status = broker.status()
        assert (status["mode"], status["port"]) == ("managed", port)
        assert alive(status["pid"])
        async with ears(port) as (ear,):
            largest = bytes(limits.MESSAGE_BYTES)
            await ear.link.publish("topic/0", largest)
            await until(lambda: ear.heard == [largest], what="the largest message")
    assert not alive(status["pid"])
    assert list(settings_folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user to be")
async def test_a_managed_broker_does_not_run_as_root() -> None:
    async with Mosquitto("127.0.0.1", free_port()) as broker:
        assert Path(f"/proc/{broker.status()['pid']}").stat().st_uid != 0


async def test_its_settings_can_be_read_by_its_user_and_written_by_nobody_else(settings_folder: Path) -> None:
    async with Mosquitto("127.0.0.1", free_port()):
        (folder,) = settings_folder.iterdir()
        (file,) = folder.iterdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o755
        assert not stat.S_IMODE(file.stat().st_mode) & 0o022


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("answers", [True, False], ids=["by one that accepts", "by one that is only bound"])
async def test_a_port_that_is_taken_stops_the_start(answers: bool, settings_folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        if answers:
            taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ExceptionGroup) as error:
            async with Mosquitto("127.0.0.1", port):
                raise AssertionError("it started on a port that is taken")
    (reason,) = leaves(error.value)
    assert isinstance(reason, ConfigInvalid)
    assert reason.where == f"broker.port {port}"
    assert "in use" in str(reason.found)
    assert f"sport = :{port}" in str(reason.hint)
    assert list(settings_folder.iterdir()) == []


async def test_a_port_that_becomes_free_in_a_moment_is_waited_for() -> None:
    """A broker whose station was killed a moment ago still holds it."""
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    asked: list[str | None] = []

    class Counting(Mosquitto):
        def _taken(self) -> str | None:
            if len(asked) == 2:
                taken.close()
            asked.append(super()._taken())
            return asked[-1]

    async with Counting("127.0.0.1", port) as broker:
        assert alive(broker.status()["pid"])
    assert asked == ["Address already in use", "Address already in use", None]


async def test_a_broker_that_ends_by_itself_ends_its_station() -> None:
    async def hold() -> None:
        async with Mosquitto("127.0.0.1", free_port()) as broker:
            os.kill(broker.status()["pid"], signal.SIGKILL)
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as error:
        async with asyncio.timeout(10):
            await hold()
    (reason,) = leaves(error.value)
    assert isinstance(reason, StationFailed)
    assert reason.error_id == "broker.ended"


async def test_an_address_that_others_could_reach_is_refused() -> None:
    for part in (Mosquitto, EmbeddedBroker):
        with pytest.raises(ExceptionGroup) as error:
            async with part("0.0.0.0", free_port()):
                raise AssertionError("it serves everybody")
        assert error.group_contains(ConfigInvalid, match="serves only this machine")


STATION_WITH_A_BROKER = """
import asyncio, sys
from gateway.broker.mosquitto import Mosquitto

async def run(port):
    async with Mosquitto("127.0.0.1", port) as broker:
        print(broker.status()["pid"], flush=True)
        await asyncio.Event().wait()

asyncio.run(run(int(sys.argv[1])))
"""


async def test_a_managed_broker_dies_with_a_station_that_was_killed() -> None:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STATION_WITH_A_BROKER, str(port), stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    async with asyncio.timeout(20):
        pid = int(await process.stdout.readline())
    assert alive(pid)
    process.send_signal(signal.SIGKILL)
    assert await process.wait() == -signal.SIGKILL
    await until(lambda: not alive(pid), what="the end of the broker")
    # The next station finds the port free, or waits for it.
    async with Mosquitto("127.0.0.1", port) as broker:
        assert alive(broker.status()["pid"])


async def test_the_embedded_broker_serves_a_few_devices() -> None:
    port = free_port()
    async with EmbeddedBroker("127.0.0.1", port) as broker:
        assert broker.status() == {"mode": "embedded", "host": "127.0.0.1", "port": port}
        async with ears(port, 5) as clients:
            for number, ear in enumerate(clients):
                await ear.link.publish(f"topic/{(number + 1) % 5}", b"%d" % number)
            await until(
                lambda: [ear.heard for ear in clients] == [[b"4"], [b"0"], [b"1"], [b"2"], [b"3"]],
                what="every message at its device",
            )
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

    broker = EmbeddedBroker("127.0.0.1", free_port())
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
            async with EmbeddedBroker("127.0.0.1", port):
                raise AssertionError("it started on a port that is taken")
    (reason,) = leaves(error.value)
    assert isinstance(reason, ConfigInvalid)
    assert reason.where == f"broker.port {port}"


async def test_an_external_broker_is_only_an_address() -> None:
    async with ExternalBroker("broker.example", 8883) as broker:
        assert broker.status() == {"mode": "external", "host": "broker.example", "port": 8883}
