"""device_agent/backlog.py: since when a reader keeps up with its messages."""

from __future__ import annotations

from device_agent.backlog import BEHIND_SECONDS, Backlog
from tests.peers.device_bench import HandClock


def test_a_reader_is_behind_when_messages_have_waited_for_long() -> None:
    clock = HandClock()
    begun = clock.now
    backlog = Backlog(clock)
    clock.now += 100
    assert (backlog.behind, backlog.clear_since()) == (False, begun), "nothing came"
    backlog.taken()
    clock.now += BEHIND_SECONDS
    assert (backlog.behind, backlog.clear_since()) == (False, begun), "a moment is no backlog"
    backlog.emptied()
    backlog.taken()
    clock.now += BEHIND_SECONDS
    backlog.taken()
    clock.now += 1
    assert (backlog.behind, backlog.clear_since()) == (True, clock.now)
    backlog.emptied()
    caught_up = clock.now
    clock.now += 50
    assert (backlog.behind, backlog.clear_since()) == (False, caught_up)
