"""The figures of ``bench spool``: tenths, medians, and which part comes last."""

from __future__ import annotations

import pytest

from gateway.bench.figures import Found, Measured, Used, medians
from gateway.bench.spool import MEANING, fields
from gateway.bench.spool_tenths import tenths


def found(ours: float, reference: float, **more: float) -> Found:
    return Found(Measured(10, ours, reference, {"gateway": Used(1.0, None, 5)}), more)


def test_a_steady_drain_has_ten_equal_tenths() -> None:
    marks = [(1.0 + number / 100, number * 10) for number in range(1, 101)]
    assert tenths(1.0, marks, 1000) == pytest.approx([0.1] * 10)


def test_a_pause_is_seen_in_the_tenth_where_it_was() -> None:
    marks = [(number / 100 + (5.0 if number > 55 else 0.0), number * 10) for number in range(1, 101)]
    assert [round(seconds, 2) for seconds in tenths(0.0, marks, 1000)] == [0.1] * 5 + [5.1] + [0.1] * 4


def test_few_large_marks_are_scaled_to_a_tenth() -> None:
    assert tenths(0.0, [(4.0, 400), (10.0, 1000)], 1000) == pytest.approx([1.0, 1.0])


def test_the_worst_part_is_last_and_each_figure_is_a_median() -> None:
    repeats = [
        {"accept": found(2.0, 1.0, n=1), "drain": found(float(number), 1.0, n=number), "status": found(1.0, 1.0)}
        for number in (3, 5, 9)
    ]
    assert list(repeats[0]) == list(MEANING)
    parts = medians(repeats)
    assert list(parts) == ["status", "accept", "drain"]
    line = fields("drain", {"items": 10}, parts["drain"], median=True)
    assert (line["bench"], line["part"], line["ours"], line["ratio"], line["n"]) == ("spool", "drain", 5.0, 5.0, 5)
