"""How ``bench reactor`` counts deeds, and which figures come of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.bench import reactor_measure
from gateway.bench.reactor import quantile
from gateway.bench.reactor_rules import write
from tests.peers.waiting import until


class Answering:
    """A bus on which every event has its deed at once, but for those that are left out."""

    def __init__(self, left_out: Sequence[str] = ()) -> None:
        self._left_out = left_out
        self.fired: list[list[str]] = []
        self._deeds: list[tuple[str, dict[str, Any]]] = []

    def fire(self, events: Sequence[tuple[str, dict[str, Any]]]) -> None:
        self.fired.append([data["key"] for _, data in events])
        for tag, data in events:
            if data["key"] in self._left_out:
                continue
            if tag == reactor_measure.FIRED["runner"]:
                self._deeds.append((reactor_measure.DONE, {"key": data["key"]}))
            else:
                self._deeds.append(("salt/job/1/new", {"key": data["key"]}))
                self._deeds.append(("salt/job/1/ret/cam-1", {"return": data["key"]}))

    def next(self, seconds: float) -> tuple[str, dict[str, Any]] | None:
        return self._deeds.pop(0) if self._deeds else None


@pytest.mark.parametrize("kind", ["runner", "local"])
def test_one_event_is_fired_when_the_deed_of_the_one_before_is_known(kind: str) -> None:
    line = Answering()
    told = reactor_measure.alone(line, kind, "r", 3)
    assert (told["ok"], len(told["took"])) == (3, 3)
    assert line.fired == [["r-0"], ["r-1"], ["r-2"]]


@pytest.mark.parametrize("kind", ["runner", "local"])
async def test_a_burst_is_fired_in_few_requests_and_a_deed_counts_once(kind: str) -> None:
    line = Answering()
    told = reactor_measure.burst(line, kind, "r", 5, 2, 30.0)
    assert (told["ok"], len(told["took"])) == (5, 5)
    assert told["seconds"] >= max(told["took"]) - 1.0
    assert line.fired == [["r-0", "r-1"], ["r-2", "r-3"], ["r-4"]]
    await until(lambda: not line._deeds, what="all were read")


def test_a_deed_that_never_comes_is_not_counted() -> None:
    assert reactor_measure.burst(Answering(["r-1"]), "local", "r", 3, 3, 0.2)["ok"] == 2


def test_half_of_all_and_nearly_all() -> None:
    took = [float(number) for number in range(1, 201)]
    assert (quantile(took, 0.5), quantile(took, 0.99)) == (100.0, 198.0)
    assert quantile([7.0], 0.99) == quantile([7.0], 0.5) == 7.0


def test_both_sides_have_the_same_files(tmp_path: Any) -> None:
    rules = write(tmp_path / "rules")
    assert [list(rule) for rule in rules] == [["bench/runner"], ["bench/local"]]
    for rule in rules:
        ((path,),) = rule.values()
        assert "{% if data['key'] %}" in (tmp_path / "rules" / path).read_text(encoding="utf-8")
