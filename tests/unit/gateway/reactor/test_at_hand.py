"""What of the waiting events is still in memory when its turn comes."""

from __future__ import annotations

from device_agent.protocol.messages import Event
from gateway.reactor.at_hand import BYTES, OVERHEAD, AtHand
from gateway.reactor.book import Matched


def matched(number: int) -> Matched:
    return Matched(number, Event(tag=f"site/{number}", data={}, stamp=0.0, site=""), 0, "waiting", "", [], 0.0)


def test_an_event_is_taken_once() -> None:
    kept = AtHand()
    kept.keep(matched(1), 10)
    assert kept.take(1) == matched(1)
    assert kept.take(1) is None


def test_what_has_no_room_is_read_and_what_left_makes_room() -> None:
    kept, whole = AtHand(), BYTES - OVERHEAD
    kept.keep(matched(1), whole)
    kept.keep(matched(1), whole)
    kept.keep(matched(2), 0)
    assert kept.take(2) is None
    assert kept.take(1) is not None
    kept.keep(matched(2), whole)
    assert kept.take(2) is not None
