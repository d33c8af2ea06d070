"""gateway/cli/sites.py."""

from __future__ import annotations

import json

from tests.peers.api_double import ISSUED, ApiDouble, Fields
from tests.unit.gateway.cli.conftest import Shell

LISBON: Fields = {
    "site": "lisbon",
    "connected": True,
    "role": "active",
    "since": ISSUED,
    "last_seen": ISSUED + 60,
    "devices": 1003,
    "present": 1002,
    "version": "0.1.0",
    "fingerprint": "ab:cd",
    "address": "192.0.2.7",
    "confirmed": {"returns": 12345, "events": 7},
    "twin": None,
    "faults": [],
}
PORTO: Fields = {
    **LISBON,
    "site": "porto",
    "connected": False,
    "role": "",
    "last_seen": None,
    "devices": None,
    "version": None,
}


def test_sites_are_a_table(api: ApiDouble, shell: Shell) -> None:
    api.sites = [LISBON, PORTO]
    assert shell.run("sites", "list").out.splitlines() == [
        "SITE    STATE      ROLE    SINCE                 LAST SEEN             DEVICES  PRESENT  VERSION",
        "lisbon  connected  active  2026-11-21T03:15:00Z  2026-11-21T03:16:00Z    1,003    1,002  0.1.0",
        "porto   dark       -       2026-11-21T03:15:00Z  never                       -    1,002  -",
    ]


def test_no_sites_says_where_those_are_that_want_to_join(api: ApiDouble, shell: Shell) -> None:
    finished = shell.here("sites", "list")
    assert (finished.status, finished.out) == (0, "")
    assert "outstation keys list" in finished.error


def test_a_site_is_shown(api: ApiDouble, shell: Shell) -> None:
    api.sites = [LISBON, PORTO]
    assert shell.here("sites", "show", "lisbon").out.splitlines() == [
        "site:        lisbon",
        "state:       connected",
        "role:        active",
        "since:       2026-11-21T03:15:00Z",
        "last seen:   2026-11-21T03:16:00Z",
        "devices:     1,003, 1,002 present",
        "version:     0.1.0",
        "fingerprint: ab:cd",
        "address:     192.0.2.7",
        "confirmed:   returns 12,345, events 7",
    ]


def test_json_is_one_site_per_line(api: ApiDouble, shell: Shell) -> None:
    api.sites = [LISBON, PORTO]
    lines = [json.loads(line) for line in shell.here("sites", "list", "--json").out.splitlines()]
    assert lines == [{"type": "site", **LISBON}, {"type": "site", **PORTO}]
    assert json.loads(shell.here("sites", "show", "porto", "--json").out) == {"type": "site", **PORTO}


def test_no_such_site_is_an_error(api: ApiDouble, shell: Shell) -> None:
    finished = shell.here("sites", "show", "faro")
    assert (finished.status, finished.out) == (2, "")


def test_a_site_that_takes_no_job_is_not_shown_as_connected_alone(api: ApiDouble, shell: Shell) -> None:
    words = "store_failed: its store cannot be written since 2026-11-21T03:15:00Z: disk I/O error"
    fault = {"reason": "store_failed", "since": ISSUED, "detail": "disk I/O error", "words": words}
    api.sites = [{**LISBON, "faults": [fault]}]
    assert "lisbon  connected, store_failed  active" in shell.here("sites", "list").out
    assert words in shell.here("sites", "show", "lisbon").out
