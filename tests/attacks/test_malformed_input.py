"""Bytes that are nothing, on every topic of a site and at every door of its API: they are counted, and nothing ends.

Beside what was never a message there is what once was one: every genuine payload with a bit turned, a byte too few and
a byte too many, on the topic where it was said.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from device_agent.protocol import topics
from gateway.cli.key_client import KeyClient
from gateway.devices.openings import DEVICE_BURST
from tests.peers.broker import free_port
from tests.peers.forgeries import SEED, of_the_release_before, rubbish
from tests.peers.hacked_broker import hacked_broker, tapped
from tests.peers.system import SECONDS, System, assert_exactly_once, whole_system
from tests.peers.tap import Message, Tap, lets_ask

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

SITE, AGENT, WAITING = "lisbon", "cam-gate", "cam-waits"
SWARM = 2
NOBODY = "a" * 26
FLIPS = 3


class Site:
    """A site with devices, one more that waits to be let in, and somebody with every right at its broker."""

    def __init__(self, system: System, tap: Tap, door: int, api_port: int) -> None:
        self.system = system
        self.tap = tap
        self.door = door
        self.api_port = api_port
        self.devices = [*system.add_swarm(SWARM, SITE), AGENT]
        system.add_agent(AGENT, SITE)
        system.present(len(self.devices))
        self.pids = {name: child.process.pid for name, child in system.children.items()}
        self.works_on()
        self.said = tap.heard()
        """What was said before anybody said what he should not."""

    def works_on(self) -> None:
        """Everybody is as he was, and does what he is told."""
        self.system.present(len(self.devices))
        target = ",".join(self.devices)
        jid = self.system.issue(SITE, target, "test.ping", tgt_type="list")
        assert_exactly_once(self.system.ended(SITE, jid), self.devices)
        assert {name: self.system.children[name].process.pid for name in self.pids} == self.pids

    @contextmanager
    def put_right(self) -> Iterator[None]:
        """What the broker keeps for who comes later is afterwards what the site has said."""
        with tapped(self.door, topics.trust(SITE)) as late:
            kept = late.heard()
        yield
        self.tap.say(kept, retain=True)

    def dids(self) -> list[str]:
        keys = self.system.view(SITE, "/keys?kind=device")["keys"]
        return [key["did"] for key in keys]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    port = free_port()
    with whole_system() as system:
        with hacked_broker(system.temporary()) as door:
            system.add_gateway(SITE, api={"listen": f"127.0.0.1:{port}"})
        with tapped(door) as tap:
            yield Site(system, tap, door, port)


def bent(said: list[Message]) -> list[Message]:
    """Every genuine payload with a bit turned here and there, a byte too few, and a byte too many."""
    randomness = random.Random(SEED)
    made = []
    for topic, payload in dict.fromkeys(said):
        made += [(topic, payload[:-1]), (topic, payload + b"\0"), (topic, payload[: len(payload) // 2])]
        for _ in range(FLIPS):
            place = randomness.randrange(len(payload))
            turned = payload[place] ^ 1 << randomness.randrange(8)
            made.append((topic, payload[:place] + bytes((turned,)) + payload[place + 1 :]))
    return made


def test_what_is_no_message_is_counted_on_every_topic_and_ends_nothing(site: Site) -> None:
    system = site.system
    nothing = [*rubbish(), *of_the_release_before("20200101000000000000")]
    places = [topics.enrol_request(SITE), topics.group_job(SITE), topics.group_ack(SITE), topics.trust(SITE)]
    for did in [*site.dids(), NOBODY, "x", "..", "$"]:
        places += [topics.device_up(SITE, did, kind) for kind in ("f", "ses", "bye", "else")]
        places += [topics.device_job(SITE, did), topics.device_sok(SITE, did), topics.device_ep(SITE, did)]
        places.append(topics.enrol_response(SITE, did))
    before, refused = system.refusals(SITE), sum(system.report()["refused"].values())
    with site.put_right():
        count = site.tap.say((place, payload) for place in places for payload in nothing)
        assert count == len(places) * len(nothing)
        site.tap.say([(place, payload) for place in places for payload in nothing[1:5]], retain=True)
    site.works_on()
    counted = system.refusals(SITE) - before
    heard = [place for place in places if "/up/" in place]
    # Of openings that come at once the newest is judged; only so many are let that far.
    unjudged = len(site.dids()) * int(DEVICE_BURST)
    assert (
        sum(number for (link, _), number in counted.items() if link == "mqtt") >= len(heard) * len(nothing) - unjudged
    )
    assert sum(number for (link, _), number in counted.items() if link == "enrollment") >= len(nothing)
    # Each device of the swarm hears three topics that are all devices', and three of its own.
    assert sum(system.report()["refused"].values()) - refused >= SWARM * 6 * len(nothing)
    assert "refused reason=malformed " in system.log(AGENT)


def test_what_was_a_message_once_is_none_any_more_when_one_bit_has_changed(site: Site) -> None:
    keys = {(key["did"], key["state"]) for key in site.system.view(SITE, "/keys?kind=device")["keys"]}
    executed = site.system.report()["executed"]
    site.tap.say(bent(site.said))
    site.works_on()
    after = site.system.report()["executed"]
    assert {jid: after[jid] for jid in executed} == executed
    assert {count["most"] for count in after.values()} == {1}
    assert {(key["did"], key["state"]) for key in site.system.view(SITE, "/keys?kind=device")["keys"]} == keys


def test_who_waits_to_be_let_in_hears_it_too_and_waits_on(site: Site) -> None:
    system, keys = site.system, KeyClient(site.system.stations[SITE])
    keys.open_window({"seconds": 600.0, "max": 1})
    broker = system.stations[SITE].station().broker or {}
    system.until(lambda: lets_ask(broker["enroll_port"]), "the door for joining is open")
    place = {"host": "127.0.0.1", "port": broker["enroll_port"]}
    given = {"site": SITE, "root": system.view(SITE, "/fleet")["root"], "broker": place, "drain_seconds": 0.1}
    system.start_agent(WAITING, {}, None, given)
    system.until(lambda: keys.find(WAITING, "device"), "it waits")
    [waiting] = keys.find(WAITING, "device")
    answers = [payload for topic, payload in site.said if topic.startswith(f"os/{SITE}/enr/rsp/")]
    response = topics.enrol_response(SITE, waiting.did)
    site.tap.say((response, payload) for payload in [*rubbish(), *answers])
    site.tap.say(bent([(response, answer) for answer in answers]))
    system.until(lambda: "an answer that proves nothing was ignored" in system.log(WAITING), "it has heard it")
    keys.decide(WAITING, "accept", {"fingerprint": waiting.fingerprint})
    system.until(lambda: system.is_here(WAITING, SITE), "it is let in all the same")
    assert system.stop(WAITING) == 0
    keys.decide(WAITING, "revoke", {"why": "the test is over"})
    site.works_on()


def test_the_doors_of_the_api_answer_or_hang_up_and_go_on(site: Site) -> None:
    """At the port nobody is believed, whatever he shows; on the socket a body that is none is refused."""
    for raw in rubbish():
        hang_up(site.api_port, raw)
    before = site.system.refusals(SITE)
    paths = site.system.view(SITE, "/openapi.json")["paths"]
    operations = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    asked = 0
    for method, path in operations:
        for shown in ("", "Bearer x", f"Bearer {'A' * 4000}", "Basic cm9vdDpyb290", "Bearer \xff\xfe"):
            authorization = f"Authorization: {shown}\r\n" if shown else ""
            head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n"
            answer = hang_up(site.api_port, f"{head}{authorization}\r\n{{}}".encode("latin-1"), wait=True)
            assert answer[9:12] in {b"401", b"429"}, (method, path, shown[:20], answer[:200])
            asked += 1
    counted = site.system.refusals(SITE) - before
    assert sum(number for (link, _), number in counted.items() if link == "api") == asked
    # An empty body is one, and so is JSON.
    bodies = [body for body in rubbish() if body and not body.startswith(b"{")]
    for method, path in operations:
        if method == "POST":
            for body in bodies:
                status, answer = site.system.ask(SITE, "POST", path, body)
                assert 400 <= status < 500, (path, body[:20], status, answer)
    site.works_on()


def hang_up(port: int, raw: bytes, *, wait: bool = False) -> bytes:
    """Say this at the API's port, and hear what comes back until it is over; or say it and turn away at once."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), SECONDS) as connection, suppress(ConnectionError):
        connection.sendall(raw)
        if not wait:
            connection.shutdown(socket.SHUT_WR)
        while data := connection.recv(65_536):
            answer += data
    return answer
