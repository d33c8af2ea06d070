"""gateway/checks/uplink.py."""

from __future__ import annotations

import pytest

from gateway.checks.uplink import check
from tests.unit.gateway.checks.conftest import Told

MASTER = "tcp://192.0.2.1:4510"


async def test_a_station_without_masters_has_nothing_to_say(facts: Told) -> None:
    assert await check(facts) == []


async def test_a_connected_uplink_is_ok_and_says_what_is_still_to_send(facts: Told) -> None:
    facts.station |= {
        "uplink": {"state": "connected", "last_error": "", "master": MASTER, "links": []},
        "spool_pending": 42,
    }
    (finding,) = await check(facts)
    assert (finding.severity, finding.finding) == ("ok", f"connected to {MASTER}, 42 items to send")


@pytest.mark.parametrize(
    ("state", "last_error"),
    [
        ("pending", "accept it on central"),
        # Between two attempts the state is another, and the reason still that nobody has accepted the key.
        ("waiting", "pending: accept it on central"),
        ("connecting", "pending: accept it on central"),
    ],
)
async def test_a_key_that_is_not_accepted_yet_is_told_with_the_command(
    state: str, last_error: str, facts: Told
) -> None:
    facts.station["uplink"] = {"state": state, "last_error": last_error, "master": MASTER, "links": []}
    (finding,) = await check(facts)
    assert (finding.severity, finding.fix) == ("warning", "on the master: outstation keys accept lisbon")


async def test_a_master_that_does_not_answer_is_a_warning_with_its_reason(facts: Told) -> None:
    facts.station["uplink"] = {"state": "waiting", "last_error": "no answer in 5 s", "master": MASTER, "links": []}
    (finding,) = await check(facts)
    assert finding.severity == "warning"
    assert "no answer in 5 s" in finding.finding
    assert "masters:" in finding.fix


async def test_a_salt_master_that_takes_nothing_is_told_with_the_clocks(facts: Told) -> None:
    words = "the master lets this gateway in, and refuses what it says then. Where it has request_server_ttl, …"
    link = {"address": "salt", "state": "refused", "last_error": words, "lost_publishes": 0}
    facts.station["uplink"] = {"state": "refused", "last_error": words, "master": "salt", "links": [link]}
    (finding,) = await check(facts)
    assert "date -u" in finding.fix


async def test_a_fenced_gateway_is_told_how_it_is_let_in_and_not_to_look_at_the_network(facts: Told) -> None:
    facts.station["uplink"] = {"state": "waiting", "last_error": "fenced: another one", "master": MASTER, "links": []}
    (finding,) = await check(facts)
    assert finding.fix.endswith("outstation sites unfence lisbon")


async def test_before_the_first_answer_there_is_no_reason_yet(facts: Told) -> None:
    facts.station["uplink"] = {"state": "connecting", "last_error": "", "master": MASTER, "links": []}
    (finding,) = await check(facts)
    assert "no answer yet" in finding.finding


async def test_masters_that_stand_by_are_named_and_each_that_is_away_is_a_warning(facts: Told) -> None:
    facts.station["uplink"] = {
        "state": "connected",
        "last_error": "",
        "master": MASTER,
        "links": [
            {"address": MASTER, "state": "connected", "last_error": ""},
            {"address": "tcp://192.0.2.2:4510", "state": "connected", "last_error": ""},
            {"address": "tcp://192.0.2.3:4510", "state": "waiting", "last_error": "no answer in 5 s"},
            {"address": "tcp://192.0.2.4:4510", "state": "pending", "last_error": "accept it on backup"},
        ],
    }
    connected, away, pending = await check(facts)
    assert connected.severity == "ok"
    assert connected.finding.endswith("standing by: tcp://192.0.2.2:4510")
    assert (away.severity, away.finding) == ("warning", "waiting: no answer in 5 s (tcp://192.0.2.3:4510)")
    assert pending.fix == "on the master: outstation keys accept lisbon"


async def test_each_of_several_masters_that_are_all_away_is_a_warning(facts: Told) -> None:
    facts.station["uplink"] = {
        "state": "connecting",
        "last_error": "no echo for 2 s",
        "master": MASTER,
        "links": [
            {"address": MASTER, "state": "connecting", "last_error": "no echo for 2 s"},
            {"address": "tcp://192.0.2.2:4510", "state": "waiting", "last_error": "no answer in 5 s"},
        ],
    }
    assert [(finding.severity, finding.finding) for finding in await check(facts)] == [
        ("warning", f"connecting: no echo for 2 s ({MASTER})"),
        ("warning", "waiting: no answer in 5 s (tcp://192.0.2.2:4510)"),
    ]


SALT = {"address": "192.0.2.1", "state": "pending", "last_error": "", "lost_publishes": 0}


@pytest.mark.parametrize(
    ("state", "last_error", "fix"),
    [
        (
            "pending",
            "accept it on the master: salt-key -a faro (salt-key -f faro …)",
            "on the master: salt-key -a faro",
        ),
        ("refused", "the key of the master has changed", "salt-key -L"),
        ("waiting", "no answer in 5 s", "under upstream:"),
    ],
)
async def test_a_salt_master_is_mended_with_salts_commands(state: str, last_error: str, fix: str, facts: Told) -> None:
    facts.station["uplink"] = {"state": state, "last_error": last_error, "master": "192.0.2.1", "links": [SALT]}
    (finding,) = await check(facts)
    assert finding.severity == "warning"
    assert fix in finding.fix


async def test_what_a_salt_master_published_and_did_not_arrive_is_said(facts: Told) -> None:
    link = {**SALT, "state": "connected", "lost_publishes": 3}
    facts.station |= {
        "uplink": {"state": "connected", "last_error": "", "master": "192.0.2.1", "links": [link]},
        "spool_pending": 0,
    }
    (finding,) = await check(facts)
    assert "3 publishes were lost" in finding.finding
