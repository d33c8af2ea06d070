"""gateway/cli/keys.py and key_acceptance.py."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

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
DID = "h3qvg7bccfnrfck4vcbdxql3jy"
SHOWN = "h3qv-g7bc-cfnr-fck4"
CAMERA: Fields = {
    **PENDING,
    "kind": "device",
    "name": "",
    "did": DID,
    "fingerprint": SHOWN,
    "serial": "B8A44F",
    "model": "P3245",
    "address": None,
}


class Terminal(io.StringIO):
    """Somebody who types."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def lisbon(api: ApiDouble) -> None:
    api.keys = [PENDING]


def camera(**changed: Any) -> Fields:
    return {**CAMERA, **changed}


# --- list and show ----------------------------------------------------------------------------------------------------


def test_keys_are_a_table_and_the_stations_own_is_said_beside_it(api: ApiDouble, shell: Shell) -> None:
    known = camera(state="accepted", name="gate", unproven=True, refused={"bad_tag": 3})
    api.keys = [PENDING, known, camera(detail="name \x1b[2J taken")]
    finished = shell.run("keys", "list")
    heading, *rows = [line.split() for line in finished.out.splitlines()]
    assert heading == [
        *("NAME", "KIND", "STATE", "FINGERPRINT", "SERIAL", "FIRST", "SEEN", "LAST", "SEEN", "ADDRESS", "REMARK"),
    ]
    times = ["2026-11-21T03:15:00Z", "2026-11-21T03:16:00Z"]
    assert rows == [
        ["lisbon", "site", "pending", "ab:cd", "-", *times, "192.0.2.7"],
        ["gate", "device", "accepted", SHOWN, "B8A44F", *times, "-", "unproven;", "refused", "3", "bad_tag"],
        [DID, "device", "pending", SHOWN, "B8A44F", *times, "-", "name", r"\x1b[2J", "taken"],
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
    assert lisbon["type"] == "key"
    assert lisbon["kind"] == "site"
    assert PENDING.items() <= lisbon.items()


def test_a_list_is_of_the_kind_and_the_state_that_is_asked_for(api: ApiDouble, shell: Shell) -> None:
    api.keys = [PENDING, camera()]
    assert [json.loads(line)["type"] for line in shell.here("keys", "list", "--sites", "--json").out.splitlines()] == [
        "station",
        "key",
    ]
    assert DID in shell.here("keys", "list", "--devices", "--state", "pending").out
    assert api.asked("GET", "/keys")[-1] == ({"state": "pending", "kind": "device", "limit": "1000"}, None)
    assert shell.here("keys", "list", "--devices", "--sites").status == 2


def test_expected_keys_are_a_list_of_their_own(api: ApiDouble, shell: Shell) -> None:
    assert shell.here("keys", "list", "--expected").error.startswith("no key is expected")
    api.expected = [{"key": DID, "name": "gate", "added": ISSUED, "added_by": "alice"}]
    assert DID in shell.here("keys", "list", "--expected").out
    assert json.loads(shell.here("keys", "list", "--expected", "--json").out)["name"] == "gate"


def test_a_key_is_shown_with_what_is_known_of_it_and_nothing_else(api: ApiDouble, shell: Shell) -> None:
    api.keys = [camera(state="accepted", name="gate", proof="pattern", unproven=True, accepted_by="alice")]
    lines = shell.run("keys", "show", "gate").out.splitlines()
    facts = dict(line.split(":", 1) for line in lines)
    assert facts["did"].strip() == DID
    assert facts["proof"].strip() == "pattern, unproven"
    assert "address" not in facts
    assert shell.here("keys", "show", "nobody").status == 2


# --- accept -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("verdict", "state"), [("accept", "accepted"), ("reject", "rejected")])
@pytest.mark.parametrize("fingerprint", [None, "ab:cd"])
def test_a_verdict_on_a_site_reaches_the_station_and_is_repeated(
    api: ApiDouble, shell: Shell, verdict: str, state: str, fingerprint: str | None
) -> None:
    options = [] if fingerprint is None else ["--fingerprint", fingerprint]
    finished = shell.here("keys", verdict, "lisbon", *options)
    assert (finished.status, finished.out) == (0, f"{state} lisbon ab:cd\n")
    assert api.asked("POST", f"/keys/lisbon/{verdict}") == [({}, {"fingerprint": fingerprint, "kind": None})]
    assert json.loads(shell.here("keys", verdict, "lisbon", "--json").out)["state"] == state


def test_what_a_site_is_granted_reaches_the_station(api: ApiDouble, shell: Shell) -> None:
    options = ["--grant", "camera.*", "--grant", "state.apply", "--origin", "salt", "--only", "--days", "7"]
    assert shell.here("keys", "accept", "lisbon", *options).status == 0
    ((_, body),) = api.asked("POST", "/keys/lisbon/accept")
    assert body is not None
    assert (body["grants"], body["origin"]) == (["camera.*", "state.apply"], "salt")
    assert (body["only"], body["days"]) == (True, 7)


def test_a_site_that_never_knocked_is_accepted_by_its_request(api: ApiDouble, shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "request").write_text("os-request:abc\n")
    bundle = tmp_path / "bundle"
    options = ["--request", str(tmp_path / "request")]
    assert shell.here("keys", "accept", "lisbon", *options, "--bundle", str(bundle)).status == 0
    assert bundle.read_text() == "os-bundle:abc\n"
    assert "os-bundle:abc" in shell.here("keys", "accept", "lisbon", *options).out
    assert api.asked("POST", "/keys/lisbon/accept")[0][1] == {
        "fingerprint": None,
        "kind": None,
        "request": "os-request:abc\n",
    }
    assert shell.here("keys", "accept", "lisbon", "--request", str(tmp_path / "nothing")).status == 2


@pytest.mark.parametrize("called", [DID, "B8A44F", SHOWN])
def test_a_device_is_accepted_by_the_fingerprint_that_is_typed(api: ApiDouble, shell: Shell, called: str) -> None:
    api.keys = [camera()]
    finished = shell.here("keys", "accept", called, "--fingerprint", SHOWN.upper(), "--name", "gate")
    assert (finished.status, finished.out) == (0, f"accepted {DID} {SHOWN}\n")
    (asked,) = api.asked("POST", f"/keys/{DID}/accept")
    assert asked == ({}, {"fingerprint": SHOWN.upper(), "kind": "device", "name": "gate"})


def test_without_a_terminal_a_device_needs_its_fingerprint_on_the_command_line(api: ApiDouble, shell: Shell) -> None:
    api.keys = [camera()]
    finished = shell.run("keys", "accept", "B8A44F")
    assert (finished.status, finished.out) == (2, "")
    assert "--fingerprint" in finished.error
    assert SHOWN not in finished.error
    assert api.asked("POST", f"/keys/{DID}/accept") == []


def test_on_a_terminal_the_fingerprint_is_asked_for_and_never_shown(
    api: ApiDouble, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.keys = [camera()]
    monkeypatch.setattr("sys.stdin", Terminal(f"{SHOWN}\n"))
    finished = shell.here("keys", "accept", "B8A44F")
    assert finished.status == 0
    assert "B8A44F itself shows" in finished.error
    assert SHOWN not in finished.error
    assert api.asked("POST", f"/keys/{DID}/accept")[0][1] == {"fingerprint": SHOWN, "kind": "device", "name": None}


def test_of_several_that_claim_a_serial_number_the_one_with_the_fingerprint_is_meant(
    api: ApiDouble, shell: Shell
) -> None:
    other = camera(did="r" * 26, fingerprint="rku4-rztk-5jbq-nxcb")
    api.keys = [other, camera()]
    assert shell.here("keys", "accept", "B8A44F", "--fingerprint", SHOWN).status == 0
    assert len(api.asked("POST", f"/keys/{DID}/accept")) == 1


def test_another_fingerprint_is_the_stations_to_refuse(api: ApiDouble, shell: Shell) -> None:
    api.keys = [camera()]
    facts = {"id": "keys.fingerprint_differs", "what": "this is not the fingerprint", "found": "typed x; it has y"}
    api.refusals[f"/keys/{DID}/accept"] = (400, {"error": facts})
    finished = shell.here("keys", "accept", "B8A44F", "--fingerprint", "aaaa-bbbb-cccc-dddd")
    assert (finished.status, finished.out) == (2, "")
    assert "found:   typed x; it has y" in finished.error


def test_a_name_that_is_a_site_and_a_device_asks_which(api: ApiDouble, shell: Shell) -> None:
    api.keys = [PENDING, camera(serial="lisbon")]
    finished = shell.here("keys", "accept", "lisbon")
    assert (finished.status, "--site or --device" in finished.error) == (2, True)
    assert shell.here("keys", "accept", "lisbon", "--site").status == 0
    assert shell.here("keys", "accept", "lisbon", "--device", "--fingerprint", SHOWN).status == 0


@pytest.mark.parametrize(
    "line", [[], ["lisbon", "--serial", "*"], ["lisbon", "--expected", "x"], ["lisbon", "--site", "--device"]]
)
def test_what_is_to_be_accepted_is_said_once(shell: Shell, line: list[str], api: ApiDouble) -> None:
    assert shell.here("keys", "accept", *line).status == 2
    assert [method for method, *_ in api.requests if method == "POST"] == []


# --- many -------------------------------------------------------------------------------------------------------------


def test_a_list_of_expected_keys_is_read_from_a_file(api: ApiDouble, shell: Shell, tmp_path: Path) -> None:
    listed = tmp_path / "keys.csv"
    listed.write_text(f"fingerprint,name\n# the gate\n{SHOWN},gate\n\n{DID.upper()}\n")
    finished = shell.here("keys", "accept", "--expected", str(listed))
    assert finished.status == 0
    assert "2 keys are expected" in finished.error
    body = {"keys": [{"key": SHOWN, "name": "gate"}, {"key": DID.upper(), "name": ""}]}
    assert api.asked("POST", "/keys/expected") == [({}, body)]
    api.waiting = {DID: "gate is the device x"}
    finished = shell.here("keys", "accept", "--expected", str(listed))
    assert (finished.status, "gate is the device x" in finished.error) == (1, True)


@pytest.mark.parametrize(("text", "where"), [("", ""), ("key\n", ""), (f"{SHOWN}\nnonsense,x\n", ":2")])
def test_a_list_with_a_mistake_says_where(shell: Shell, tmp_path: Path, text: str, where: str, api: ApiDouble) -> None:
    listed = tmp_path / "keys.csv"
    listed.write_text(text)
    finished = shell.here("keys", "accept", "--expected", str(listed))
    assert finished.status == 2
    assert f"{listed}{where}" in finished.error
    assert api.requests == []


def test_a_pattern_says_whom_it_means_and_asks(api: ApiDouble, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    api.keys = [camera(), camera(did="r" * 26, serial="C00000")]
    for typed, status in (("n\n", 1), ("y\n", 0)):
        monkeypatch.setattr("sys.stdin", Terminal(typed))
        finished = shell.here("keys", "accept", "--serial", "B8*", "--name", "cam-{number}")
        assert finished.status == status
        assert "1 devices claim" in finished.error
        assert SHOWN in finished.error
    body = {"serial": "B8*", "dids": [DID], "name": "cam-{number}"}
    assert api.asked("POST", "/keys/matching") == [({}, body)]
    assert shell.run("keys", "accept", "--pattern", "B8*").status == 2
    assert shell.run("keys", "accept", "--pattern", "B8*", "--yes").out == f"accepted {DID} {SHOWN}\n"
    assert shell.here("keys", "accept", "--pattern", "nobody*", "--yes").status == 2


# --- reject and revoke ------------------------------------------------------------------------------------------------


def test_a_verdict_that_changes_nothing_is_an_error(shell: Shell) -> None:
    for verdict in ("accept", "reject"):
        finished = shell.here("keys", verdict, "faro")
        assert (finished.status, finished.out) == (2, "")
        assert "outstation keys list" in finished.error


def test_what_is_rejected_is_expected_no_more(api: ApiDouble, shell: Shell) -> None:
    api.expected = [{"key": DID}]
    finished = shell.here("keys", "reject", DID)
    assert (finished.status, finished.error) == (0, f"expected no more: {DID}\n")


def test_a_revocation_asks_first_and_says_why(api: ApiDouble, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    api.keys = [camera(state="accepted", name="gate")]
    monkeypatch.setattr("sys.stdin", Terminal("\n"))
    assert shell.here("keys", "revoke", "gate").status == 1
    assert api.asked("POST", "/keys/gate/revoke") == []
    assert shell.run("keys", "revoke", "gate").status == 2
    finished = shell.here("keys", "revoke", "gate", "--why", "stolen", "--yes")
    assert finished.out == f"revoked gate {SHOWN}\n"
    assert api.asked("POST", "/keys/gate/revoke") == [({}, {"why": "stolen", "kind": None})]


def test_two_keys_of_one_name_are_a_conflict_with_its_facts(api: ApiDouble, shell: Shell) -> None:
    facts = {"id": "keys.several", "what": "two keys wait", "hint": "outstation keys accept lisbon --fingerprint ab:cd"}
    api.refusals["/keys/lisbon/accept"] = (409, {"error": facts})
    finished = shell.here("keys", "accept", "lisbon")
    assert (finished.status, finished.out) == (1, "")
    assert finished.error == f"error: two keys wait\n  try:     {facts['hint']}\n"
