"""gateway/cli/keys.py."""

from __future__ import annotations

import json

import pytest

from tests.peers.api_double import ISSUED, ApiDouble, Fields
from tests.unit.gateway.cli.conftest import Shell

PENDING: Fields = {
    "site": "lisbon",
    "state": "pending",
    "fingerprint": "ab:cd",
    "key": "k" * 40,
    "first_seen": ISSUED,
    "last_seen": ISSUED + 60,
    "address": "192.0.2.7",
}


@pytest.fixture(autouse=True)
def lisbon(api: ApiDouble) -> None:
    api.keys = [PENDING]


def test_keys_are_a_table_and_the_stations_own_is_said_beside_it(shell: Shell) -> None:
    finished = shell.run("keys", "list")
    assert finished.out.splitlines() == [
        "SITE    STATE    FINGERPRINT  FIRST SEEN            LAST SEEN             ADDRESS",
        "lisbon  pending  ab:cd        2026-11-21T03:15:00Z  2026-11-21T03:16:00Z  192.0.2.7",
    ]
    assert finished.error.splitlines() == [f"this station's public key:  {'k' * 40}", "             fingerprint:  own"]


def test_no_keys_says_so(api: ApiDouble, shell: Shell) -> None:
    api.keys = []
    finished = shell.here("keys", "list")
    assert (finished.status, finished.out) == (0, "")
    assert finished.error.startswith("no keys")


def test_json_is_the_stations_key_and_then_the_others(shell: Shell) -> None:
    own, lisbon = map(json.loads, shell.here("keys", "list", "--json").out.splitlines())
    assert own == {"type": "station", "public_key": "k" * 40, "fingerprint": "own"}
    assert lisbon == {"type": "key", **PENDING}


@pytest.mark.parametrize(("verdict", "state"), [("accept", "accepted"), ("reject", "rejected")])
@pytest.mark.parametrize("fingerprint", [None, "ab:cd"])
def test_a_verdict_reaches_the_station_and_is_repeated(
    api: ApiDouble, shell: Shell, verdict: str, state: str, fingerprint: str | None
) -> None:
    options = [] if fingerprint is None else ["--fingerprint", fingerprint]
    finished = shell.here("keys", verdict, "lisbon", *options)
    assert (finished.status, finished.out) == (0, f"{state} lisbon ab:cd\n")
    assert api.asked("POST", f"/keys/lisbon/{verdict}") == [({}, {"fingerprint": fingerprint})]
    assert json.loads(shell.here("keys", verdict, "lisbon", "--json").out)["state"] == state


def test_a_verdict_that_changes_nothing_is_an_error(shell: Shell) -> None:
    finished = shell.here("keys", "accept", "faro")
    assert (finished.status, finished.out) == (2, "")
    assert "outstation keys list" in finished.error


def test_two_keys_of_one_name_are_a_conflict_with_its_facts(api: ApiDouble, shell: Shell) -> None:
    facts = {"id": "keys.several", "what": "two keys wait", "hint": "outstation keys accept lisbon --fingerprint ab:cd"}
    api.refusals["/keys/lisbon/accept"] = (409, {"error": facts})
    finished = shell.here("keys", "accept", "lisbon")
    assert (finished.status, finished.out) == (1, "")
    assert finished.error == f"error: two keys wait\n  try:     {facts['hint']}\n"
