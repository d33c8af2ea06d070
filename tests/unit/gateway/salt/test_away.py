"""gateway/salt/away.py: how long what is for a master waits for it."""

from __future__ import annotations

from gateway.salt.away import AWAY_SECONDS, Away
from tests.peers.clock import HandClock


def test_a_master_that_is_listed_again_is_waited_for_anew() -> None:
    clock, masters = HandClock(), ["one", "two"]
    away = Away(clock, lambda: masters)
    away.begin()
    away.here("one")
    away.gone("one")
    clock.move(AWAY_SECONDS + 1.0)
    assert away.over("one")
    masters.remove("one")
    away.listed(["two"])
    clock.move(AWAY_SECONDS)
    masters.append("one")
    away.listed(["two"])
    assert not away.over("one")
    assert away.until("one") == AWAY_SECONDS
    clock.move(AWAY_SECONDS)
    assert away.over("one")


def test_who_stays_in_the_list_is_waited_for_no_longer() -> None:
    clock, masters = HandClock(), ["one", "two"]
    away = Away(clock, lambda: masters)
    away.begin()
    clock.move(AWAY_SECONDS - 1.0)
    masters.append("three")
    away.listed([])
    clock.move(1.0)
    assert away.over("one")
    assert not away.over("three")
