"""gateway/jobs/expect.py."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.protocol import limits
from device_agent.protocol.messages import Item, Job, Late, decode_item, encode
from device_agent.protocol.outcomes import Outcome
from device_agent.protocol.targeting import compile_target
from gateway.jobs.expect import Ended, Expectation, digest, expect, pages

JID = "20261121031500000000"


@dataclass
class Known:
    """A device of the registry, as far as it matters here."""

    id: str
    present: bool = False
    unheard: bool = False
    last_seen: float = 5.0
    away: str = ""
    grains: dict[str, Any] = field(default_factory=dict)


def expected(
    devices: list[Known], *, tgt: str = "*", late: Late = "drop", remaining: float = 300.0, **ruled: Any
) -> Expectation:
    """The expected set of a job for these devices."""
    job = Job(jid=JID, tgt=tgt, fun="test.ping", user="ops", issued=0.0, expires=300.0, late=late)
    return expect(job, compile_target(tgt, "glob"), devices, remaining, **ruled)


HERE = Known("cam", present=True)
UNHEARD = Known("cam", unheard=True)
AWAY = Known("cam")
GETS_IT_NOW = Expectation(present=["cam"])
GETS_IT_LATER = Expectation(absent=["cam"])
UNREACHABLE = Expectation(ended=[Ended("cam", Outcome.UNREACHABLE, "not connected", 5.0)])
EXPIRED = Expectation(ended=[Ended("cam", Outcome.EXPIRED, "the job had expired when it reached the site", 5.0)])


@pytest.mark.parametrize(
    ("device", "late", "remaining", "result"),
    [
        (HERE, "drop", 300.0, GETS_IT_NOW),
        (HERE, "run", 300.0, GETS_IT_NOW),
        (UNHEARD, "drop", 300.0, GETS_IT_LATER),
        (UNHEARD, "run", 300.0, GETS_IT_LATER),
        (AWAY, "drop", 300.0, UNREACHABLE),
        (AWAY, "run", 300.0, GETS_IT_LATER),
        (HERE, "drop", 0.001, GETS_IT_NOW),
        (HERE, "drop", 0.0, EXPIRED),
        (HERE, "run", -5.0, EXPIRED),
        (UNHEARD, "drop", 0.0, EXPIRED),
        (UNHEARD, "run", 0.0, EXPIRED),
        (AWAY, "drop", -5.0, EXPIRED),
        (AWAY, "run", -5.0, EXPIRED),
    ],
)
def test_how_a_job_starts_for_a_device_follows_from_where_it_is(
    device: Known, late: Late, remaining: float, result: Expectation
) -> None:
    assert expected([device], late=late, remaining=remaining) == result


@pytest.mark.parametrize("late", ["drop", "run"])
@pytest.mark.parametrize("device", [HERE, UNHEARD, AWAY])
def test_a_held_job_starts_for_nobody_and_ends_for_nobody(device: Known, late: Late) -> None:
    assert expected([device], late=late, held=True) == GETS_IT_LATER
    assert expected([device], late=late, remaining=0.0, held=True) == EXPIRED


def test_a_job_that_is_refused_on_a_device_ends_there_with_the_reason_and_starts_on_the_others() -> None:
    found = expected([Known("a", present=True), Known("b", present=True)], refused={"b": "not on b"})
    assert found == Expectation(present=["a"], ended=[Ended("b", Outcome.REFUSED, "not on b", 5.0)])


def test_only_those_that_are_meant_are_expected() -> None:
    found = expected([Known("cam-1", present=True), Known("cam-2"), Known("door-1", present=True)], tgt="cam-*")
    assert found.ids() == ["cam-1", "cam-2"]


def test_the_ids_are_in_order_whatever_becomes_of_them() -> None:
    found = expected([Known("c", present=True), Known("b"), Known("a", unheard=True)])
    assert (found.present, found.absent, [ended.id for ended in found.ended]) == (["c"], ["a"], ["b"])
    assert found.ids() == ["a", "b", "c"]


def test_nobody_is_expected_of_an_empty_registry() -> None:
    assert expected([]).ids() == []


IDS = st.lists(st.text("abcdefgh0123456789-.", min_size=1, max_size=128), max_size=40, unique=True)


@given(IDS, st.booleans())
def test_every_id_is_on_one_page_in_its_order(ids: list[str], final: bool) -> None:
    made = pages(JID, "lisbon", ids, 7, final=final)
    assert [device for page in made for device in page.ids] == ids
    assert [page.final for page in made] == [False] * (len(made) - 1) + [final]
    for page in made:
        assert (page.jid, page.site, page.revision) == (JID, "lisbon", 7)
        assert page.count == len(page.ids)
        assert page.digest == digest(page.ids) == hashlib.sha256("\n".join(page.ids).encode()).digest()


@pytest.mark.parametrize(
    ("ids", "sizes"),
    [
        ([], [0]),
        (["a"], [1]),
        ([f"d{n:05d}" for n in range(limits.MANIFEST_PAGE)], [limits.MANIFEST_PAGE]),
        ([f"d{n:05d}" for n in range(limits.MANIFEST_PAGE + 1)], [limits.MANIFEST_PAGE, 1]),
        ([f"d{n:05d}" for n in range(3 * limits.MANIFEST_PAGE)], [limits.MANIFEST_PAGE] * 3),
    ],
    ids=["none", "one", "a full page", "one more", "three pages"],
)
def test_a_page_has_a_bounded_number_of_ids(ids: list[str], sizes: list[int]) -> None:
    assert [page.count for page in pages(JID, "lisbon", ids, 0, final=True)] == sizes


def test_a_page_of_the_longest_ids_fits_a_message() -> None:
    ids = [f"{n:05d}{'x' * 123}" for n in range(limits.DEVICES_PER_STATION)]
    made = pages(JID, "s" * 64, ids, 2**63 - 1, final=True)
    assert sum(page.count for page in made) == limits.DEVICES_PER_STATION
    for page in made:
        body = encode(page)
        assert len(body) <= limits.MESSAGE_BYTES
        item: Item = decode_item(body)
        assert item == page
        assert sum(len(device) + 2 for device in page.ids) <= limits.MANIFEST_PAGE_BYTES


def test_a_digest_tells_other_ids_and_another_order_apart() -> None:
    assert len({digest(ids) for ids in ([], ["a"], ["a", "b"], ["b", "a"], ["ab"])}) == 5
