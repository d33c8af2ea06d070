"""Two devices come with one join token at the same moment, each on a connection of its own: one of them is let in.

A token that has leaked is good for one device and not for as many as are quick enough. What the gateway has on its disk
says the same as what it has answered.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from device_agent.protocol import topics
from device_agent.trust.join_answer import Accepted, NotYet, open_response
from device_agent.trust.keys import KemKey, SigningKey, new_private
from device_agent.trust.token import JoinToken
from gateway.broker.rules import ENROLL_PASSWORD, ENROLL_USER
from gateway.cli.key_client import KeyClient
from tests.peers.database import look
from tests.peers.joining import JoiningDevice
from tests.peers.system import System, whole_system
from tests.peers.tap import Tap, lets_ask

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

SITE = "lisbon"
RACES = 12
RACERS = 2


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with whole_system() as made:
        made.add_gateway(SITE)
        # As long as somebody is expected the door is open, also for who comes too late.
        new_token(made)
        made.until(lambda: lets_ask(enroll_port(made)), "the door for joining is open")
        yield made


def enroll_port(system: System) -> int:
    port: int = (system.stations[SITE].station().broker or {})["enroll_port"]
    return port


def new_token(system: System) -> JoinToken:
    """It gives no name: two that are let in by it would not be in each other's way."""
    wish = {"uses": 1, "address": f"127.0.0.1:{enroll_port(system)}"}
    [made] = KeyClient(system.stations[SITE]).new_tokens(wish)
    return JoinToken.from_text(made.text)


def a_racer(name: str) -> JoiningDevice:
    """A device that nobody has seen yet."""
    return JoiningDevice(name, SigningKey(new_private()), KemKey(new_private()), name)


def at_the_door(system: System, device: JoiningDevice) -> Tap:
    answers = topics.enrol_response(SITE, device.did)
    return Tap(enroll_port(system), answers, client_id=device.did, username=ENROLL_USER, password=ENROLL_PASSWORD)


def race(system: System, token: JoinToken, racers: list[JoiningDevice]) -> list[Accepted | NotYet]:
    """Everybody asks at once; what each is answered, proven by the root that the token names."""
    line = threading.Barrier(len(racers), timeout=30.0)

    def ask(device: JoiningDevice, tap: Tap) -> None:
        payload = device.request(token)
        line.wait()
        tap.say([(topics.enrol_request(SITE), payload)])

    with ExitStack() as stack:
        taps = [stack.enter_context(at_the_door(system, device)) for device in racers]
        with ThreadPoolExecutor(len(racers)) as pool:
            list(pool.map(ask, racers, taps))
        for device, tap in zip(racers, taps, strict=True):
            system.until(tap.heard, f"the answer to {device.name}")
        return [answer(token, device, tap) for device, tap in zip(racers, taps, strict=True)]


def answer(token: JoinToken, device: JoiningDevice, tap: Tap) -> Accepted | NotYet:
    assert device.asked is not None
    [(_, payload)] = tap.heard()
    return open_response(payload, device.asked, device.kem, site=SITE, pinned=token.root, floor=0.0)


def on_disk(system: System, sql: str, *values: Any) -> list[Any]:
    return look(system.state_of(SITE) / "station.sqlite", sql, *values)


def test_of_two_that_come_with_one_token_at_once_one_is_let_in_and_the_other_is_told_that_it_is_used(
    system: System,
) -> None:
    for number in range(RACES):
        token = new_token(system)
        racers = [a_racer(f"racer-{number}-{lane}") for lane in range(RACERS)]
        answers = race(system, token, racers)
        accepted = [place for place, each in enumerate(answers) if isinstance(each, Accepted)]
        assert len(accepted) == 1, answers
        winner, [loser] = racers[accepted[0]], [each for each in answers if isinstance(each, NotYet)]
        assert (loser.state, loser.verified) == ("token_used", True)

        by_token = on_disk(system, "SELECT did, state FROM enrolled WHERE token = ?", token.id.hex())
        assert by_token == [(winner.did, "accepted")]
        assert on_disk(system, "SELECT left FROM join_tokens WHERE id = ?", token.id.hex()) == [(0,)]
        dids = {device.did for device in racers}
        listed = {key["did"]: key["state"] for key in system.view(SITE, "/keys?kind=device")["keys"]}
        assert {did: state for did, state in listed.items() if did in dids} == {winner.did: "accepted"}
    rows = system.view(SITE, "/audit?action=keys.join")["rows"]
    assert sum(row["verdict"] == "deny" for row in rows) == RACES
