"""gateway/cli/tokens.py."""

from __future__ import annotations

import json

import pytest

from tests.peers.api_double import ISSUED, ApiDouble, Fields
from tests.unit.gateway.cli.conftest import Shell

TOKEN: Fields = {
    "id": "3f2a91c07be4",
    "user": "anna",
    "state": "valid",
    "role": "operator",
    "made_by": "root",
    "made": ISSUED,
    "expires": ISSUED + 86_400,
    "used": None,
    "revoked": None,
}


def test_one_is_told_who_one_is(api: ApiDouble, shell: Shell) -> None:
    assert shell.run("operators", "me").out.splitlines() == [
        "name:        alice",
        "door:        socket",
        "roles:       admin",
        "may:         view, run",
        "policy:      no file: root and the station's own user do everything, others look",
    ]
    api.operator = {"name": "bob", "door": "api", "policy": "/etc/outstation/policy.yaml"}
    assert json.loads(shell.here("operators", "me", "--json").out)["roles"] == []
    assert "roles:       none" in shell.here("operators", "me").out


def test_a_new_token_alone_is_on_stdout(api: ApiDouble, shell: Shell) -> None:
    finished = shell.run("operators", "new", "anna", "--role", "operator", "--for", "30d")
    assert (finished.status, finished.out) == (0, "os1_secret\n")
    assert finished.error.splitlines() == [
        "token 3f2a91c07be4 of anna, until 2026-11-21T03:15:00Z; it is not shown again",
        "end it:  outstation operators revoke 3f2a91c07be4",
    ]
    assert api.asked("POST", "/operators/tokens") == [
        ({}, {"user": "anna", "role": "operator", "seconds": 30 * 86_400.0})
    ]


def test_without_a_role_the_policy_decides_and_ninety_days_are_the_default(api: ApiDouble, shell: Shell) -> None:
    assert json.loads(shell.here("operators", "new", "anna", "--json").out)["token"] == "os1_secret"
    assert api.asked("POST", "/operators/tokens")[0][1] == {"user": "anna", "role": None, "seconds": 90 * 86_400.0}


@pytest.mark.parametrize("words", [["--for", "ever"], ["--role", "boss"], []])
def test_what_cannot_be_a_token_is_a_mistake(shell: Shell, words: list[str]) -> None:
    assert shell.here("operators", "new", *(["anna", *words] if words else [])).status == 2


def test_tokens_are_a_table(api: ApiDouble, shell: Shell) -> None:
    assert shell.here("operators", "list").error.startswith("no tokens")
    api.tokens = [TOKEN, {**TOKEN, "id": "0", "role": None, "state": "revoked", "used": ISSUED}]
    assert shell.run("operators", "list").out.splitlines() == [
        "ID            USER  ROLE       STATE    EXPIRES               USED                  MADE BY",
        "3f2a91c07be4  anna  operator   valid    2026-11-22T03:15:00Z  never                 root",
        "0             anna  by policy  revoked  2026-11-22T03:15:00Z  2026-11-21T03:15:00Z  root",
    ]
    first, _ = map(json.loads, shell.here("operators", "list", "--json").out.splitlines())
    assert first == {"type": "token", **TOKEN, "token": ""}


def test_a_token_is_ended_by_its_id(api: ApiDouble, shell: Shell) -> None:
    api.tokens = [TOKEN]
    assert shell.here("operators", "revoke", "3f2a91c07be4").out == "revoked 3f2a91c07be4 anna\n"
    assert json.loads(shell.here("operators", "revoke", "3f2a91c07be4", "--json").out)["state"] == "revoked"
    assert shell.here("operators", "revoke", "0").status == 2
