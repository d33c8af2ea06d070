"""Figures are medians of each repeat's, and say the same as JSON and in words."""

from __future__ import annotations

import io
import json

import pytest

from device_agent.clock import Clock
from gateway.bench.figures import Measured, Used, middle, record, show, spread
from gateway.cli.output import Output

PARAMS = {"devices": 10, "repeat": 3, "function": "test.ping"}
REPEATS = [
    Measured(10, 0.4, 0.2, {"swarm": Used(0.3, 0.1, 5 << 20), "gateway": Used(0.2, None, 900)}),
    Measured(10, 0.9, 0.1, {"swarm": Used(0.1, 0.3, 7 << 20), "gateway": Used(0.6, None, 800)}),
    Measured(10, 0.5, 0.4, {"swarm": Used(0.2, 0.2, 6 << 20), "gateway": Used(0.4, None, 700)}),
]


def test_the_middle_is_the_median_of_each_figure_and_the_highest_peak() -> None:
    total = middle(REPEATS)
    assert (total.ok, total.ours, total.reference) == (10, 0.5, 0.2)
    assert total.ratio == pytest.approx(2.5)
    assert total.processes == {"swarm": Used(0.2, 0.2, 7 << 20), "gateway": Used(0.4, None, 900)}


def test_the_median_of_one_is_itself() -> None:
    assert middle(REPEATS[:1]) == REPEATS[0]


def test_a_record_has_what_every_benchmark_prints() -> None:
    found = record("fanout", PARAMS, REPEATS[0], median=False)
    assert found == {
        "bench": "fanout",
        "part": "fanout",
        "params": PARAMS,
        "median": False,
        "ok": 10,
        "ours": 0.4,
        "reference": 0.2,
        "ratio": 2.0,
        "peers": {},
        "processes": {
            "swarm": {"cpu_seconds": 0.3, "peak_rss_bytes": 5 << 20, "reference_cpu_seconds": 0.1},
            "gateway": {"cpu_seconds": 0.2, "peak_rss_bytes": 900},
        },
    }
    assert json.loads(json.dumps(found)) == found


def test_a_process_of_the_reference_alone_shows_what_it_used_there() -> None:
    assert Used(None, 0.25, 900).fields() == {"cpu_seconds": 0.25, "peak_rss_bytes": 900}


def test_people_see_both_times_their_ratio_and_each_process() -> None:
    out = io.StringIO()
    output = Output(out, io.StringIO(), {}, Clock())
    show(output, "one job", {"ours": "the whole", "reference": "the least"}, REPEATS)
    lines = out.getvalue().splitlines()
    assert lines[:4] == [
        "one job",
        "ours:        0.500 s (0.400–0.900)   the whole",
        "reference:   0.200 s (0.100–0.400)   the least",
        "ratio:       2.50   ours / reference, smaller is better",
    ]
    assert [line.split() for line in lines[-2:]] == [
        ["swarm", "0.200", "0.200", "7.0"],
        ["gateway", "0.400", "-", "0.0"],
    ]


def test_a_single_repeat_has_no_spread() -> None:
    assert spread([0.1234]) == "0.123 s"
