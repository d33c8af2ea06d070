"""gateway/metrics.py."""

from __future__ import annotations

import logging

import pytest

from gateway.metrics import LOG_EVERY_SECONDS, LOG_LINES, NAME_CHARACTERS, PEERS_NAMED, REASONS_NAMED, Metrics
from tests.peers.clock import HandClock
from tests.peers.exposition import read_exposition


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def metrics(clock: HandClock) -> Metrics:
    return Metrics(clock)


def test_counters_and_gauges_are_printed_in_order(metrics: Metrics) -> None:
    metrics.add("outcomes", 3)
    metrics.add("events")
    metrics.add("outcomes")
    metrics.refused("mqtt", "malformed", "os/lisbon/d/x/up/hello")
    assert metrics.text({"devices": 10.0, "load": 0.5}) == (
        "# HELP outstation_events_total events of this station and of those below\n"
        "# TYPE outstation_events_total counter\n"
        "outstation_events_total 1\n"
        "# HELP outstation_outcomes_total outcomes of devices\n"
        "# TYPE outstation_outcomes_total counter\n"
        "outstation_outcomes_total 4\n"
        "# HELP outstation_devices devices of this station and of the sites below\n"
        "# TYPE outstation_devices gauge\n"
        "outstation_devices 10\n"
        "# TYPE outstation_load gauge\n"
        "outstation_load 0.5\n"
        "# HELP outstation_refused_total what came from a network, or was asked, and was refused\n"
        "# TYPE outstation_refused_total counter\n"
        'outstation_refused_total{link="mqtt",reason="malformed"} 1\n'
    )


def test_samples_of_a_name_stand_together(metrics: Metrics) -> None:
    ledger = [
        ("spool_pending", {"class": "events"}, 1),
        ("spool_pending_bytes", {"class": "events"}, 10),
        ("spool_pending", {"class": "returns"}, 2),
        ("spool_pending_bytes", {"class": "returns"}, 20),
    ]
    found = read_exposition(metrics.text({}, ledger))
    assert found["outstation_spool_pending"].samples == [
        ("outstation_spool_pending", {"class": "events"}, 1.0),
        ("outstation_spool_pending", {"class": "returns"}, 2.0),
    ]


@pytest.mark.parametrize("reason", ['a"} 1\noutstation_devices 7', "back\\slash", "\\n", 'x",link="z', "ümlaut {}"])
def test_what_a_peer_made_up_stays_the_value_of_a_label(metrics: Metrics, reason: str) -> None:
    metrics.refused("mqtt", reason, "peer")
    found = read_exposition(metrics.text({}))
    assert found.keys() == {"outstation_refused_total"}
    assert found["outstation_refused_total"].samples == [
        ("outstation_refused_total", {"link": "mqtt", "reason": reason}, 1.0)
    ]


def test_ten_thousand_devices_are_not_rounded(metrics: Metrics) -> None:
    found = read_exposition(metrics.text({"devices": 19_999.0, "spool_pending": 1_234_567.0}))
    assert [family.samples[0][2] for family in found.values()] == [19_999.0, 1_234_567.0]


def test_every_refusal_is_counted_and_its_peer_named(metrics: Metrics) -> None:
    for _ in range(3):
        metrics.refused("uplink", "flooding", "lisbon@192.0.2.1")
    metrics.refused("uplink", "flooding", "madrid@192.0.2.2")
    assert metrics.refusals == {("uplink", "flooding"): 4}
    assert metrics.peers.most_common(1) == [(("uplink", "flooding", "lisbon@192.0.2.1"), 3)]
    metrics.refused("zap", "flooding", "madrid@192.0.2.2")
    metrics.refused("uplink", "malformed", "madrid@192.0.2.2")
    assert metrics.refused_of() == {
        "lisbon@192.0.2.1": {"flooding": 3},
        "madrid@192.0.2.2": {"flooding": 2, "malformed": 1},
    }


def test_a_flood_of_names_fills_no_memory_and_hides_nobody_who_comes_again(metrics: Metrics) -> None:
    for number in range(PEERS_NAMED + 500):
        metrics.refused("mqtt", "bad_topic", f"made up {number}")
        if number % 10 == 0:
            metrics.refused("mqtt", "bad_topic", "the same one")
    many = (PEERS_NAMED + 500) // 10
    assert metrics.refusals == {("mqtt", "bad_topic"): PEERS_NAMED + 500 + many}
    assert len(metrics.peers) == PEERS_NAMED
    assert metrics.peers.most_common(1) == [(("mqtt", "bad_topic", "the same one"), many)]


def test_a_flood_is_logged_once_in_ten_seconds(
    metrics: Metrics, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="gateway.metrics"):
        for _ in range(100):
            metrics.refused("mqtt", "malformed", "one", "x" * 10_000)
            metrics.refused("mqtt", "oversized", "one")
        clock.move(LOG_EVERY_SECONDS - 0.1)
        metrics.refused("mqtt", "malformed", "one")
        assert len(caplog.records) == 2
        clock.move(0.2)
        metrics.refused("mqtt", "malformed", "two\nlines")
    assert len(caplog.records) == 3
    assert all(len(record.getMessage()) < 400 for record in caplog.records)
    assert "\n" not in caplog.records[-1].getMessage()


def test_reasons_that_somebody_makes_up_are_counted_together(metrics: Metrics) -> None:
    for number in range(REASONS_NAMED + 5):
        metrics.refused("files", f"made_up_{number}", "master")
    metrics.refused("files", "made_up_0", "master")
    assert metrics.refusals["files", "other"] == 5
    assert metrics.refusals["files", "made_up_0"] == 2


def test_names_and_reasons_that_peers_make_up_neither_flood_the_log_nor_fill_the_memory(
    metrics: Metrics, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3 * REASONS_NAMED):
        metrics.refused("mqtt", f"{number}" + "x" * 10_000, f"{number}" + "y" * 10_000)
    assert len(caplog.records) == LOG_LINES
    assert max(len(reason) + len(peer) for _, reason, peer in metrics.peers) <= 2 * NAME_CHARACTERS
    clock.move(LOG_EVERY_SECONDS)
    metrics.refused("uplink", "gap", "lisbon")
    assert caplog.records[-1].getMessage().startswith("refused link=uplink reason=other")
