"""Whoever sits on the same network as a camera hears every byte of it: he learns its name and its password at the
broker, and with these he can throw it out for as long as he stays; he reads nothing, and says nothing that counts.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from device_agent.identity import Identity, IdentityFile
from device_agent.protocol import topics
from device_agent.trust.token import JoinToken
from gateway.cli.key_client import KeyClient
from tests.peers.broker import free_port
from tests.peers.canaries import Canary, found_in
from tests.peers.forgeries import Forger, rubbish
from tests.peers.sniffer import Sniffer
from tests.peers.system import System, whole_system
from tests.peers.tap import Tap

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

SITE, CAMERA, NEIGHBOUR = "lisbon", "cam-gate", "cam-yard"
THERE = "127.0.0.2"
"""Where the camera believes its broker to be."""


class Street:
    """A site, a camera whose cable somebody has tapped, and one beside it."""

    def __init__(self, system: System, sniffer: Sniffer, canaries: dict[str, Canary]) -> None:
        self.system = system
        self.sniffer = sniffer
        self.canaries = canaries

    def identity(self, name: str = CAMERA) -> Identity:
        found = IdentityFile(self.system.folder / name).load()
        assert found is not None
        return found

    def run(self, tgt: str, fun: str, *arg: str, **given: Any) -> dict[str, object]:
        """A job of the site; what each device returned."""
        jid = self.system.issue(SITE, tgt, fun, *arg, **given)
        ended = self.system.ended(SITE, jid)
        assert set(ended.words().values()) == {"ok"}, ended
        return {name: outcome.value for name, outcome in ended.by_device().items()}


@pytest.fixture(scope="module")
def street() -> Iterator[Street]:
    with standing() as made:
        yield made


@contextmanager
def standing() -> Iterator[Street]:
    port, enroll_port = free_port(), free_port()
    canaries = {name: Canary(name) for name in ("a grain", "an argument", "an argument to one")}
    with (
        Sniffer(THERE, [port, enroll_port]) as sniffer,
        whole_system() as system,
    ):
        gateway = system.add_gateway(SITE, broker={"port": port, "enroll_port": enroll_port})
        [token] = KeyClient(gateway).new_tokens({"uses": 1, "name": CAMERA, "address": f"{THERE}:{enroll_port}"})
        (system.folder / f"{CAMERA}.token").write_text(token.text)
        canaries["the token"] = Canary("the token", JoinToken.from_text(token.text).secret)
        for name in (CAMERA, NEIGHBOUR):
            system.add_agent(name, SITE, secret=canaries["a grain"].text)
        system.present(2)
        yield Street(system, sniffer, canaries)


def test_he_reads_nothing_of_what_was_ordered_said_and_returned(street: Street) -> None:
    for sealed in (False, True):
        canary = street.canaries["an argument to one" if sealed else "an argument"]
        assert street.run("cam-*", "test.echo", canary.text, sealed=sealed) == dict.fromkeys(
            (CAMERA, NEIGHBOUR), canary.text
        )
    assert street.run(CAMERA, "grains.get", "secret") == {CAMERA: street.canaries["a grain"].text}
    identity = street.identity()
    keys = {
        "the group key": identity.groups.newest,
        "the key of the camera": identity.sig.private,
        "the sealing key of the camera": identity.kem.private,
    }
    secrets = [*street.canaries.values(), *(Canary(name, octets) for name, octets in keys.items())]
    streams = street.sniffer.captured
    # He did hear it: the name of the camera on each of its topics, its openings, its jobs.
    for topic in (topics.device_up(SITE, identity.did, "f"), topics.device_job(SITE, identity.did)):
        assert any(topic.encode() in stream for stream in streams)
    for stream in streams:
        assert found_in(secrets, stream) == []


def test_with_the_password_he_heard_he_throws_the_camera_out_and_can_do_nothing_else(street: Street) -> None:
    system, did = street.system, street.identity().did
    password = street.sniffer.logins()[did]
    assert password == street.identity().password
    port, before = system.ports[SITE], system.view(SITE, "/devices")["devices"]
    opening = topics.device_up(SITE, did, "ses")
    said = [payload for _, payload in street.sniffer.said()]
    openings = [payload for topic, payload in street.sniffer.said() if topic == opening]
    assert openings
    forger = Forger(SITE)
    agent = system.children[CAMERA].process.pid
    os.kill(agent, signal.SIGSTOP)
    try:
        everything = ("#", f"os/{SITE}/#", f"os/{SITE}/d/+/+", f"os/{SITE}/g/all/+", topics.trust(SITE))
        with Tap(port, *everything, username=did, password=password) as thief:
            assert thief.inside
            system.present(1)
            canary = Canary("to the neighbour")
            assert street.run(NEIGHBOUR, "test.echo", canary.text) == {NEIGHBOUR: canary.text}
            assert street.run(NEIGHBOUR, "test.echo", canary.text, sealed=True) == {NEIGHBOUR: canary.text}
            thief.say((opening, payload) for payload in openings[-1:])
            system.until(lambda: system.refusals(SITE)["mqtt", "replayed"], "what he recorded opens nothing")
            thief.say([(opening, forger.opening())])
            system.until(lambda: system.refusals(SITE)["mqtt", "wrong_topic"], "what he signs opens nothing")
            for kind in ("f", "bye"):
                made = [forger.opening(), forger.bye(), b"\1\1" + bytes(60), *rubbish(), *said]
                thief.say((topics.device_up(SITE, did, kind), payload) for payload in made)
            heard = thief.heard()
        own = f"os/{SITE}/d/{did}/"
        assert {topic for topic, _ in heard if not topic.startswith(own)} <= {
            *(topics.group_job(SITE), topics.group_ack(SITE), topics.trust(SITE)),
        }
        assert not [topic for topic, payload in heard if found_in([canary], payload)]
        system.until(lambda: system.refusals(SITE)["mqtt", "unknown_session"], "his frames are of no session")
        assert not system.is_here(CAMERA, SITE)
    finally:
        os.kill(agent, signal.SIGCONT)
    system.present(2)
    assert street.run(CAMERA, "grains.get", "secret") == {CAMERA: street.canaries["a grain"].text}
    after = system.view(SITE, "/devices")["devices"]
    assert {device["id"] for device in after} == {device["id"] for device in before} == {CAMERA, NEIGHBOUR}
