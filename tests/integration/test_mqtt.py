"""The connection that keeps itself alive, against a real mosquitto and against servers that are none."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from device_agent import mqtt, mqtt_client
from device_agent.backlog import BEHIND_SECONDS
from device_agent.mqtt import BrokerAddress, MqttLink, NotConnected
from tests.peers.broker import Broker, free_port
from tests.peers.clock import HandClock
from tests.peers.waiting import until


class Ear:
    """A link, and everything that it was told."""

    def __init__(self, address: BrokerAddress, name: str, *subscriptions: str, **fields: Any) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self.counts: Counter[str] = Counter()
        self.connections = 0
        self.losses = 0
        self.wills = 0
        self.greet = True
        given: dict[str, Any] = {"on_message": self.hear, "will": self.will, "name": name, **fields}
        self.link = MqttLink(
            address,
            name,
            subscriptions=subscriptions,
            on_connected=self.connected,
            on_lost=self.lost,
            count=self.count,
            **given,
        )

    def hear(self, topic: str, payload: bytes) -> None:
        self.heard.append((topic, payload))

    def will(self) -> tuple[str, bytes]:
        self.wills += 1
        return f"wills/{self.link._client_id}", b"%d" % self.wills

    async def connected(self) -> None:
        self.connections += 1
        if self.greet:
            await self.link.publish(f"hello/{self.link._client_id}", b"%d" % self.connections)

    def lost(self) -> None:
        self.losses += 1

    def count(self, name: str) -> None:
        self.counts[name] += 1


@asynccontextmanager
async def running(*ears: Ear) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ear.link.run()) for ear in ears]
        try:
            await until(lambda: all(ear.link.state.connected for ear in ears), what="every link's connection")
            yield
        finally:
            for task in tasks:
                task.cancel()


async def run_until_it_fails(ear: Ear, mouth: Ear, topic: str, payload: bytes) -> None:
    """Run a link, and have another say what makes it fail."""
    async with asyncio.timeout(60), running(ear):
        await mouth.link.publish(topic, payload)
        await asyncio.Event().wait()


async def test_what_is_said_on_connecting_finds_the_subscriptions_made(broker: Broker) -> None:
    ear = Ear(broker.address, "one", "hello/+")
    async with running(ear):
        await until(lambda: ear.heard == [("hello/one", b"1")], what="its own hello")
        assert ear.link.state.last_error is None
        assert ear.counts == {"mqtt_connects": 1}


async def test_a_broker_on_a_unix_socket_is_reached(broker: Broker) -> None:
    ear = Ear(BrokerAddress(unix_socket=str(broker.unix_socket)), "one", "hello/+")
    async with running(ear):
        await until(lambda: ear.heard == [("hello/one", b"1")], what="its own hello")


async def test_publishing_without_a_connection_says_so() -> None:
    ear = Ear(BrokerAddress("127.0.0.1", free_port()), "one")
    with pytest.raises(NotConnected, match=r"not connected to the broker at 127\.0\.0\.1"):
        await ear.link.publish("a", b"x")


async def test_many_messages_arrive_in_the_order_they_were_handed_over(broker: Broker) -> None:
    ear, mouth = Ear(broker.address, "ear", "many"), Ear(broker.address, "mouth")
    async with running(ear, mouth):
        assert await mouth.link.publish_many(("many", b"%d" % number) for number in range(3000)) == 3000
        await until(lambda: len(ear.heard) == 3000, what="3,000 messages")
    assert [payload for _, payload in ear.heard] == [b"%d" % number for number in range(3000)]


async def test_after_a_restart_of_the_broker_it_is_back_subscribed_with_a_new_will(broker: Broker) -> None:
    ear = Ear(broker.address, "ear", "hello/+", "topic")
    async with running(ear):
        await broker.kill()
        await until(lambda: ear.losses == 1, what="the loss")
        with pytest.raises(NotConnected):
            await ear.link.publish("topic", b"x")
        await until(lambda: ear.link.state.next_attempt is not None, what="the plan for the next attempt")
        assert ear.link.state.last_error
        await broker.start()
        await until(lambda: ear.connections == 2, what="the second connection")
        await until(lambda: ("hello/ear", b"2") in ear.heard, what="its second hello")
        assert ear.wills >= 2
        assert ear.link.state.connected
    assert ear.losses == 2
    assert ear.counts["mqtt_connects"] == 2


async def test_a_broker_that_is_not_there_yet_is_waited_for(broker: Broker) -> None:
    await broker.stop()
    ear = Ear(broker.address, "ear")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(ear.link.run())
        await until(lambda: ear.link.state.attempts >= 2, what="two attempts")
        assert "refused" in (ear.link.state.last_error or "")
        assert ear.losses == 0
        await broker.start()
        await until(lambda: ear.link.state.connected, what="the connection")
        task.cancel()


async def test_what_the_incoming_queue_has_no_room_for_is_counted(broker: Broker) -> None:
    gate = asyncio.Event()
    handled: list[bytes] = []

    async def slow(topic: str, payload: bytes) -> None:
        await gate.wait()
        handled.append(payload)

    ear = Ear(broker.address, "ear", "flood", "end", on_message=slow, incoming=10)
    mouth = Ear(broker.address, "mouth")
    async with running(ear, mouth):
        await mouth.link.publish_many(("flood", b"x") for _ in range(500))
        # At most one message is in hand and ten wait.
        await until(lambda: ear.counts["mqtt_incoming_dropped"] >= 489, what="the count of dropped messages")
        gate.set()
        await until(
            lambda: len(handled) + ear.counts["mqtt_incoming_dropped"] == 500, what="every message accounted for"
        )
        await mouth.link.publish("end", b"still here")
        await until(lambda: handled[-1] == b"still here", what="a message after the flood")


async def test_a_link_whose_messages_wait_is_behind_until_they_are_taken(broker: Broker) -> None:
    gate, clock = asyncio.Event(), HandClock()
    handled: list[bytes] = []

    async def slow(topic: str, payload: bytes) -> None:
        handled.append(payload)
        await gate.wait()

    ear = Ear(broker.address, "ear", "returns", on_message=slow, clock=clock)
    mouth = Ear(broker.address, "mouth")
    async with running(ear, mouth):
        await mouth.link.publish_many(("returns", b"%d" % number) for number in range(3))
        await until(lambda: handled, what="the first message in hand")
        clock.move(BEHIND_SECONDS + 1)
        assert ear.link.backlog.clear_since() == clock.monotonic()
        gate.set()
        await until(lambda: not ear.link.backlog.behind, what="an empty queue")
        assert len(handled) == 3
        caught_up = clock.monotonic()
        clock.move(60)
        assert ear.link.backlog.clear_since() == caught_up


async def test_a_clean_end_publishes_no_will_and_a_crash_does(broker: Broker) -> None:
    def wrong(topic: str, payload: bytes) -> None:
        raise ZeroDivisionError(payload.decode())

    witness = Ear(broker.address, "witness", "wills/+", "hello/+")
    crasher = Ear(broker.address, "crasher", "crash", on_message=wrong)
    async with running(witness):
        async with running(Ear(broker.address, "clean")):
            pass
        with pytest.raises(ExceptionGroup) as raised:
            await run_until_it_fails(crasher, witness, "crash", b"by a bug")
        assert raised.group_contains(ZeroDivisionError, match="by a bug")
        await until(lambda: ("wills/crasher", b"1") in witness.heard, what="the will of the crashed one")
        assert not any(topic == "wills/clean" for topic, _ in witness.heard)


async def test_an_error_of_the_one_who_listens_is_not_taken_for_a_lost_connection(broker: Broker) -> None:
    def full_disk(topic: str, payload: bytes) -> None:
        raise OSError("the listener's own trouble")

    ear = Ear(broker.address, "ear", "topic", on_message=full_disk)
    with pytest.raises(ExceptionGroup) as raised:
        await run_until_it_fails(ear, ear, "topic", b"x")
    assert raised.group_contains(OSError, match="own trouble")


@asynccontextmanager
async def server(answer: Callable[[asyncio.StreamWriter], None]) -> AsyncIterator[tuple[BrokerAddress, Counter[str]]]:
    """Something that listens and is no broker; it counts connections and their ends."""
    seen: Counter[str] = Counter()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen["opened"] += 1
        try:
            answer(writer)
            while await reader.read(1000):
                pass
        except ConnectionError:
            seen["reset"] += 1
        seen["closed"] += 1
        writer.close()

    before = asyncio.all_tasks()
    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        host, port = listening.sockets[0].getsockname()
        yield BrokerAddress(host, port), seen
    # A connection that was under way when its client gave up is taken up, and ended, after everybody has gone.
    await until(lambda: asyncio.all_tasks() <= before | {asyncio.current_task()}, what="the end of every connection")


async def test_a_server_that_never_answers_costs_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt, "CONNECT_SECONDS", 0.05)
    monkeypatch.setattr(mqtt, "RECONNECT_FIRST_SECONDS", 0.01)
    async with server(lambda writer: None) as (address, seen), asyncio.TaskGroup() as group:
        ear = Ear(address, "ear")
        task = group.create_task(ear.link.run())
        # An attempt that ends before the server has looked is none that it sees.
        await until(lambda: seen["opened"] >= 3, what="three attempts")
        task.cancel()
        await until(lambda: seen["closed"] == seen["opened"], what="every connection's end")


@pytest.mark.parametrize(
    "noise", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x20\x02\x00\x05", b"\x20\xff\xff\xff\xff\xff"]
)
async def test_a_server_that_speaks_nonsense_is_only_another_failure(
    noise: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt, "CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(mqtt, "RECONNECT_FIRST_SECONDS", 0.01)
    async with server(lambda writer: writer.write(noise)) as (address, seen), asyncio.TaskGroup() as group:
        ear = Ear(address, "ear")
        task = group.create_task(ear.link.run())
        await until(lambda: ear.link.state.attempts >= 2, what="two attempts")
        assert ear.connections == 0
        assert ear.link.state.last_error
        task.cancel()
        await until(lambda: seen["closed"] == seen["opened"], what="every connection's end")


async def test_a_socket_that_is_closed_before_it_is_watched_for_writing_troubles_nobody() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
    client = mqtt_client.Client("127.0.0.1")
    ours, theirs = socket.socketpair()
    with theirs:
        client._on_socket_register_write(None, None, ours)
        ours.close()
        # Its number is another connection's by now, which is nobody's to watch.
        taken, other = socket.socketpair()
        with taken, other:
            for _ in range(3):
                await asyncio.sleep(0)
            assert not asyncio.get_running_loop().remove_writer(taken)
    assert complaints == []
