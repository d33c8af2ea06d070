"""The arithmetic of the benchmark beside stock Salt: what was heard becomes figures, and figures are compared."""

from __future__ import annotations

import json

import pytest

from tests.peers.salt_rounds import BARE, OURS, Contender, Round, as_json, heard, ratios, table

FIRST, SECOND = "20261123220000000001", "20261123220000000002"


def a_round(answers: int, seconds: float, cpu: float) -> Round:
    return Round(answers, wall=seconds + 1, answering=seconds, command=seconds + 2, master_cpu=cpu, own_cpu=0.0)


FOUND = {
    OURS: Contender(1000, rounds=[a_round(1000, 4.0, 4.0), a_round(1000, 8.0, 4.0), a_round(1000, 5.0, 5.0)]),
    BARE: Contender(1000, rounds=[a_round(1000, 4.0, 4.0), a_round(1000, 4.0, 4.0), a_round(1000, 4.0, 4.0)]),
    "deltaproxy 25": Contender(25, start=30.0, rounds=[a_round(20, 4.0, 1.0), a_round(25, 4.0, 1.0)]),
}


def test_of_a_bus_the_first_job_counts_and_each_device_once() -> None:
    told = [
        f"9.5 salt/job/{FIRST}/ret/cam-0",
        f"10.0 salt/job/{FIRST}/new",
        f"11.0 salt/job/{SECOND}/new",
        f"12.0 salt/job/{FIRST}/ret/cam-1",
        f"12.5 salt/job/{SECOND}/ret/cam-2",
        f"13.0 salt/job/{FIRST}/ret/cam-1",
        f"14.0 salt/job/{FIRST}/ret/cam-2",
        "",
    ]
    assert heard(told) == (10.0, {"cam-1": 12.0, "cam-2": 14.0})
    assert heard(["9.0 listens"]) == (0.0, {})


def test_a_contender_is_its_medians_and_its_fewest_answers() -> None:
    middle = FOUND[OURS].middle
    assert (middle.answers, middle.answering, middle.wall, middle.master_cpu) == (1000, 5.0, 6.0, 4.0)
    assert FOUND[OURS].each(middle.answering) == 5.0
    assert FOUND["deltaproxy 25"].middle.answers == 20


def test_who_took_turns_is_compared_turn_by_turn_and_the_others_by_their_medians() -> None:
    compared = ratios(FOUND)
    assert compared[BARE]["answering"] == pytest.approx(0.8), "the median of 1, 0.5 and 0.8"
    assert compared["deltaproxy 25"]["answering"] == pytest.approx((4.0 / 20) / (5.0 / 1000))
    assert compared["deltaproxy 25"]["wall"] == pytest.approx((5.0 / 20) / (6.0 / 1000))
    assert OURS not in compared


def test_both_forms_tell_every_contender() -> None:
    rows = [json.loads(line) for line in as_json(FOUND).splitlines()]
    assert [row["part"] for row in rows] == list(FOUND)
    assert rows[2]["start"] == 30.0
    assert rows[2]["times_gateway"]["answering"] == 40.0
    assert len(rows[0]["rounds"]) == 3
    text = table(FOUND)
    assert all(name in text for name in FOUND)
    assert "answering 1.25" in text, "gateway / bare"
