"""A join token has leaked before it was used: it lets one foreign device in, at its site, within its time.

Everything else that a thief may try with it ends in a sentence that says why, at the device and at the gateway.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from device_agent.errors import EXIT_REFUSED
from device_agent.identity import IdentityFile
from device_agent.trust.token import JoinToken
from gateway.cli.key_client import KeyClient
from tests.peers.finished import Finished
from tests.peers.system import System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

LISBON, PORTO = "lisbon", "porto"
SHORT_SECONDS = 0.2


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with whole_system() as made:
        for site in (LISBON, PORTO):
            made.add_gateway(site)
            # As long as somebody is expected the door is open, and everybody is told why he does not come in.
            new_token(made, site, name="somebody")
        yield made


def broker(system: System, site: str) -> dict[str, Any]:
    """A site's broker, as its station says."""
    return system.stations[site].station().broker or {}


def new_token(system: System, site: str, **wish: Any) -> JoinToken:
    """A token as an operator makes it."""
    address = f"127.0.0.1:{broker(system, site)['enroll_port']}"
    [made] = KeyClient(system.stations[site]).new_tokens({"uses": 1, "address": address, **wish})
    return JoinToken.from_text(made.text)


def join(system: System, thief: str, token: JoinToken) -> Finished:
    """A device of the thief's, with keys of its own, joins with a token."""
    path = system._write(thief, {"serial": thief, "state_dir": str(system.folder / thief)})
    return system.command("agent", "join", token.text(), "--config", path, "--wait", "100s", station=LISBON)


def devices(system: System, site: str) -> dict[str, dict[str, Any]]:
    """Every device that a site has let in, by name."""
    return {key["name"]: key for key in system.view(site, "/keys?kind=device&state=accepted")["keys"]}


def state(system: System, token: JoinToken) -> str:
    """How far a token is, as the gateway lists it."""
    listed = KeyClient(system.stations[LISBON]).tokens()
    return next(each.state for each in listed if each.id == token.id.hex())


def test_it_lets_one_foreign_device_in_and_everything_else_is_told_why_not(system: System) -> None:
    leaked = new_token(system, LISBON, name="camera-of-the-thief")
    bound = new_token(system, LISBON, serial="cam-7", name="bound")
    late = new_token(system, LISBON, seconds=SHORT_SECONDS, name="late")
    unused = new_token(system, LISBON, name="unused")
    elsewhere = replace(unused, site=PORTO, address=f"127.0.0.1:{broker(system, PORTO)['enroll_port']}")
    assert join(system, "first", leaked).status == 0
    taken = devices(system, LISBON)["camera-of-the-thief"]
    assert (taken["proof"], taken["token"], taken["serial"]) == ("token", leaked.id.hex(), "first")
    system.until(lambda: state(system, late) == "expired", "its time is up")
    tried = {
        "second": (leaked, LISBON, "has a token that was used already"),
        "another-serial": (bound, LISBON, "has a token that is for another serial number"),
        "too-late": (late, LISBON, "has a token that has expired"),
        "elsewhere": (elsewhere, PORTO, "has a token that the gateway does not know"),
    }
    with ThreadPoolExecutor(2) as pool:
        ended = dict(zip(tried, pool.map(lambda name: join(system, name, tried[name][0]), tried), strict=True))
    for name, (token, site, words) in tried.items():
        assert ended[name].status == EXIT_REFUSED, ended[name]
        assert words in ended[name].error
        assert not joined(system, name)
        said = [(row["verdict"], row["why"]) for row in system.view(site, "/audit?action=keys.join")["rows"]]
        assert [verdict for verdict, why in said if token.id.hex() in why] == ["deny"]
    assert devices(system, PORTO) == {}
    assert {*tried, "bound", "late", "unused"}.isdisjoint(devices(system, LISBON))


def test_its_name_without_its_secret_lets_nobody_in_and_does_not_use_it_up(system: System) -> None:
    """The name of a token is said in the open when it is used; whoever heard it may be quicker than its owner."""
    token = new_token(system, LISBON, name="owner")
    system.start_agent("guesser", {}, replace(token, secret=bytes(16)).text(), {"drain_seconds": 0.1})
    system.until(lambda: system.refusals(LISBON)["enrollment", "bad_tag"], "the gateway has seen through it")
    assert not joined(system, "guesser")
    assert state(system, token) == "open"
    assert join(system, "owner", token).status == 0
    assert [name for name, key in devices(system, LISBON).items() if key["token"] == token.id.hex()] == ["owner"]


def joined(system: System, name: str) -> bool:
    """Whether a device of the thief's belongs to a site."""
    identity = IdentityFile(system.folder / name).load()
    assert identity is not None
    return identity.joined
