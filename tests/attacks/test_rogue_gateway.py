"""Somebody between a camera and its gateway answers its request to join first, as the gateway of a fleet of his own.

A token, a pinned root, or neither: he gets no camera. With ``trust_on_first_use`` he gets it, and it is said on both
sides: by the camera, and to the operator of whichever gateway it asked.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from device_agent.clock import Clock
from device_agent.errors import EXIT_CONFIG
from device_agent.identity import Identity, IdentityFile
from device_agent.protocol import topics
from device_agent.trust.join import is_confirm, read_request
from gateway.cli.key_client import KeyClient
from gateway.rehearsal import join_token
from tests.peers.fleet import Fleet
from tests.peers.hacked_broker import hacked_broker, tapped
from tests.peers.system import System, whole_system
from tests.peers.tap import Tap, lets_ask
from tests.peers.trusted_site import TrustedSite

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

SITE = "lisbon"
IGNORED = "an answer that proves nothing was ignored"
REMARK = "it believes whoever answers first (trust_on_first_use)"


class Rogue:
    """He hears every request at the site's broker, and sees to it that he is the quicker of two gateways."""

    def __init__(self, system: System, tap: Tap) -> None:
        self._system = system
        self._tap = tap
        self.site = TrustedSite(Fleet(SITE, now=Clock().wall()))
        self.site.terms = {"port": system.ports[SITE]}
        self._read = 0

    @contextmanager
    def first(self) -> Iterator[None]:
        """While this lasts the gateway says nothing."""
        station = self._system.children[SITE].process.pid
        os.kill(station, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(station, signal.SIGCONT)

    def answers(self) -> bool:
        """Turn everybody away who has asked, for good, and then let him in all the same."""
        heard = self._tap.heard()
        fresh, self._read = heard[self._read :], len(heard)
        for topic, payload in fresh:
            if topic == topics.enrol_request(SITE) and not is_confirm(payload):
                request = read_request(payload)
                self.site.requests[request.did] = request
                for state in ("rejected", None):
                    self.site.state = state
                    self._tap.say([(topics.enrol_response(SITE, request.did), self.site.answer(request))])
        return bool(self.site.requests)


@pytest.fixture(scope="module")
def rogue() -> Iterator[Rogue]:
    with whole_system() as system:
        with hacked_broker(system.temporary()) as door:
            system.add_gateway(SITE)
        KeyClient(system.stations[SITE]).open_window({"seconds": 600.0, "max": 10})
        system.until(lambda: lets_ask(broker(system)["enroll_port"]), "the door for joining is open")
        with tapped(door) as tap:
            yield Rogue(system, tap)


@pytest.fixture
def system(rogue: Rogue) -> System:
    return rogue._system


def broker(system: System) -> dict[str, Any]:
    """The site's broker, as its station says."""
    return system.stations[SITE].station().broker or {}


def way_in(system: System, **given: Any) -> dict[str, Any]:
    """An agent's way to the site without a token."""
    place = {"host": "127.0.0.1", "port": broker(system)["enroll_port"]}
    return {"site": SITE, "broker": place, "drain_seconds": 0.5, **given}


def identity(system: System, name: str) -> Identity:
    found = IdentityFile(system.folder / name).load()
    assert found is not None
    return found


def root_of(system: System) -> bytes:
    return bytes.fromhex(system.view(SITE, "/fleet")["root"])


def accepted(system: System, name: str) -> str:
    """What an operator does who compares the fingerprint; the remark that he sees beside the device."""
    keys = KeyClient(system.stations[SITE])
    system.until(lambda: keys.find(name, "device"), f"{name} waits")
    [waiting] = keys.find(name, "device")
    assert (waiting.state, waiting.fingerprint) == ("pending", identity(system, name).fingerprint)
    keys.decide(name, "accept", {"fingerprint": waiting.fingerprint})
    return waiting.detail


def test_a_camera_with_a_token_or_a_pinned_root_ignores_him_and_joins_its_own_gateway(
    rogue: Rogue, system: System
) -> None:
    token = join_token(system.stations[SITE], uses=1, name="cam-token")
    root, before = root_of(system), system.stations[SITE].station().present
    given = way_in(system, root=root.hex())
    with rogue.first():
        system.start_agent("cam-token", {}, token, {"drain_seconds": 0.5})
        system.start_agent("cam-root", {}, None, given)
        for name in ("cam-token", "cam-root"):
            system.until(lambda: rogue.answers() and IGNORED in system.log(name), f"{name} ignores him")  # noqa: B023 - called at once
            assert not identity(system, name).joined
    assert accepted(system, "cam-root") == ""
    system.present(before + 2)
    for name in ("cam-token", "cam-root"):
        camera = identity(system, name)
        assert camera.did in rogue.site.requests
        assert (camera.name, camera.anchor.pinned) == (name, root)


def test_a_camera_with_neither_asks_nobody(rogue: Rogue, system: System) -> None:
    path = system._write("cam-bare", {"serial": "cam-bare", "state_dir": str(system.folder / "bare"), **way_in(system)})
    ended = system.command("agent", "run", "--config", path, station=SITE)
    assert ended.status == EXIT_CONFIG
    assert "there is nothing to join one by (root)" in ended.error
    rogue.answers()
    assert "cam-bare" not in {request.serial for request in rogue.site.requests.values()}


def test_a_camera_that_trusts_on_first_use_is_his_and_it_is_said_on_both_sides(rogue: Rogue, system: System) -> None:
    given = way_in(system, trust_on_first_use=True)
    with rogue.first():
        system.start_agent("cam-his", {}, None, given)
        said = "believed on first use, as trust_on_first_use says: root="
        system.until(lambda: rogue.answers() and said in system.log("cam-his"), "it believes him")
        his = rogue.site.fleet.fingerprint
        assert f"{said}{his.hex()}" in system.log("cam-his")
        assert identity(system, "cam-his").anchor.pinned == his
    assert his != root_of(system)
    # The gateway that it might have been meant for heard it as well, and says what it heard.
    system.until(lambda: REMARK in remarks(system), "the operator sees it")
    system.stop("cam-his")

    before = system.stations[SITE].station().present
    system.start_agent("cam-lucky", {}, None, given)
    assert accepted(system, "cam-lucky") == REMARK
    system.present(before + 1)
    assert f"{said}{root_of(system).hex()}" in system.log("cam-lucky")
    assert "this device believes whoever answers first name=cam-lucky" in system.log(SITE)


def remarks(system: System) -> str:
    """What an operator sees of those who wait."""
    return system.command("keys", "list", "--state", "pending", station=SITE, status=0).out
