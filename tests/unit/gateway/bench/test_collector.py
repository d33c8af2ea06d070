"""The reference in its own process: it publishes what it is given, and every answer must be there."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Self

import pytest

from device_agent.errors import StationFailed
from gateway.bench import collector as collecting
from gateway.bench.collector import Collector
from gateway.bench.reference import CONNACK_ACCEPTED, SUBACK_GRANTED, publish

Answers = Callable[[bytes], list[bytes]]
"""What a broker sends back for what was published."""

SECONDS = 60.0


class ScriptedBroker:
    """Takes one connection, grants a subscription, and answers each message as told."""

    def __init__(self, connack: bytes = CONNACK_ACCEPTED) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(SECONDS)
        self._connack = connack
        self.port = int(self._listener.getsockname()[1])
        self.answers: Answers = lambda published: []
        self.received: list[bytes] = []
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(SECONDS)
        self._listener.close()
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection, connection.makefile("rb") as stream:
            connection.settimeout(SECONDS)
            while packet := self._packet(stream):
                if packet[0] == 0x10:
                    connection.sendall(self._connack)
                elif packet[0] == 0x82:
                    connection.sendall(SUBACK_GRANTED)
                elif packet[0] == 0x30:
                    self.received.append(packet)
                    connection.sendall(b"".join(self.answers(packet)))

    def _packet(self, stream: object) -> bytes:
        read = stream.read  # type: ignore[attr-defined]  # a file of a socket, which has no type of its own
        kind = read(1)
        if not kind:
            return b""
        length, shift = 0, 0
        while True:
            digit = read(1)[0]
            length |= (digit & 0x7F) << shift
            shift += 7
            if digit < 128:
                return bytes(kind + read(length))


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as running:
        yield running


def started(broker: ScriptedBroker) -> Collector:
    return Collector("127.0.0.1", broker.port, "up/+", "job", "ack")


def answers(count: int, payload: bytes = b"jid ok") -> Answers:
    return lambda published: [publish(f"up/{number}", payload) for number in range(count)] if b"go" in published else []


def test_a_round_publishes_the_job_takes_the_time_and_acknowledges(broker: ScriptedBroker) -> None:
    broker.answers = answers(300)
    with started(broker) as running:
        seconds = running.round(b"go" * 100, b"thanks", 300, 6)
        assert 0.0 < seconds < collecting.ROUND_SECONDS
        assert running.round(b"go", b"thanks", 300, 1) > 0.0
    assert [packet.endswith((b"go", b"thanks")) for packet in broker.received] == [True] * 4
    assert [b"ack" in packet for packet in broker.received] == [False, True, False, True]


def test_the_same_device_twice_is_not_two_answers(broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "ROUND_SECONDS", 2.0)
    broker.answers = lambda published: [publish("up/1", b"ok"), publish("up/1", b"ok")] if b"go" in published else []
    with started(broker) as running, pytest.raises(StationFailed) as failed:
        running.round(b"go", b"thanks", 2, 2)
    assert failed.value.found is not None
    assert failed.value.found.startswith("1 answers")
    assert failed.value.allowed == "2 answers"


def test_what_is_too_small_for_an_answer_is_none(broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "ROUND_SECONDS", 2.0)
    broker.answers = answers(10, b"beat")
    with started(broker) as running, pytest.raises(StationFailed) as failed:
        running.round(b"go", b"thanks", 10, 5)
    assert failed.value.found is not None
    assert failed.value.found.startswith("0 answers")


def test_a_broker_that_refuses_is_named() -> None:
    with (
        ScriptedBroker(connack=b"\x20\x02\x00\x05") as broker,
        pytest.raises(StationFailed, match="the reference failed") as failed,
        started(broker),
    ):
        raise AssertionError("it was not refused")
    assert "CONNACK" in str(failed.value.found)


def test_a_broker_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(StationFailed) as failed, Collector("127.0.0.1", port, "up/+", "job", "ack"):
        raise AssertionError("it was not refused")
    assert "refused" in str(failed.value.found)
