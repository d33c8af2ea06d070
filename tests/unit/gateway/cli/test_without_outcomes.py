"""What is told of a scheduled run or a reaction whose job has no outcome, and of a reason of several lines."""

from __future__ import annotations

from typing import Any

import pytest

from tests.peers.api_double import ISSUED, JID, ApiDouble
from tests.unit.gateway.cli.conftest import Shell

WHY = """\
cmd.run is not granted to this site
  found:   cmd.run
  allowed: looks (changes nothing), reads (changes nothing, and can show what only root may read), and what was granted
  try:     run it from a master, or grant it there: outstation keys accept lisbon --grant 'cmd.run'\
"""


def entry(**run: Any) -> dict[str, Any]:
    last = {"due": ISSUED, "at": ISSUED, "kind": "due", "late_seconds": 0.0, "state": "issued", "jid": JID, **run}
    named = {"name": "nightly", "function": "test.ping", "makes": "job", "target": "cam-9", "enabled": True}
    return {**named, "last": last, "runs": [last]}


@pytest.mark.parametrize(
    ("run", "told"),
    [
        ({"job": "open"}, "under way"),
        ({"job": "closed"}, "no device matched"),
        ({"job": "gone"}, "its job is no longer kept"),
        ({"job": "closed", "ends": {"ok": 2}}, "2 ok"),
        ({}, "under way"),
        ({"job": "closed", "ends": {"ok": 1, "unreachable": 2}}, "1 ok, 2 unreachable"),
    ],
)
def test_a_run_without_outcomes_is_under_way_only_while_its_job_is_open(
    run: dict[str, Any], told: str, api: ApiDouble, shell: Shell
) -> None:
    api.answers["/schedule"] = {"enabled": True, "timezone": "UTC", "entries": [entry(**run)]}
    api.answers["/schedule/nightly"] = entry(**run)
    assert shell.here("schedule", "list").out.splitlines()[1].rstrip().endswith(told)
    assert told in shell.here("schedule", "show", "nightly").out


def reaction(**changed: Any) -> dict[str, Any]:
    named = {"id": "a", "file": "/a.sls", "rule": "site/*", "said": "local.cmd.run", "kind": "local", "fun": "cmd.run"}
    return {**named, "tgt": "cam-9", "state": "issued", **changed}


def told_of(api: ApiDouble, shell: Shell, made: dict[str, Any]) -> list[str]:
    event = {"number": 1, "tag": "site/a", "data": {}, "stamp": ISSUED, "site": "lisbon", "depth": 0, "why": ""}
    whole = {**event, "state": "rendered", "troubles": [], "reactions": [made]}
    api.answers["/reactor/why"] = {"events": [whole]}
    return shell.here("reactor", "why", "site/a").out.splitlines()[3:]


def test_why_says_that_no_device_matched(api: ApiDouble, shell: Shell) -> None:
    assert told_of(api, shell, reaction(jid=JID, job="closed")) == [
        f"    issued job {JID}",
        "    no device matched glob cam-9",
    ]
    assert told_of(api, shell, reaction(jid=JID, job="open")) == [f"    issued job {JID}"]
    done = {"site": "lisbon", "device": "cam-9", "outcome": "ok", "value": "x" * 300}
    (_, outcome) = told_of(api, shell, reaction(jid=JID, job="closed", outcomes=[done]))
    assert outcome.endswith("(300 characters)"), "an answer is cut, a reason is not"


def test_why_keeps_the_command_at_the_end_of_a_reason(api: ApiDouble, shell: Shell) -> None:
    first, *more = WHY.splitlines()
    assert told_of(api, shell, reaction(state="refused", why=WHY)) == [
        f"    refused {first}",
        *(f"    {line}" for line in more),
    ]
