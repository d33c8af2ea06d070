"""The bed itself: stock masters start, answer, let a stock minion in, and leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.processes import processes
from tests.peers.salt_bus import listening
from tests.peers.salt_daemon import listens
from tests.peers.salt_master import SaltMaster
from tests.peers.salt_minion import SaltMinion


@pytest.fixture(scope="module")
def minion(programs: Path, master: SaltMaster) -> Iterator[SaltMinion]:
    """A stock minion that the master has let in."""
    with SaltMinion(programs, "door-1", master) as started:
        master.accept("door-1")
        started.ready()
        yield started


def test_a_stock_minion_answers_a_stock_master(master: SaltMaster, minion: SaltMinion) -> None:
    assert master.keys() == {"minions": ["door-1"]}
    answers = master.salt("door-*", "test.ping")
    assert answers.by_device() == {"door-1": True}
    assert answers.status == 0, answers


def test_one_that_is_not_there_is_reported_as_one_that_did_not_return(master: SaltMaster, minion: SaltMinion) -> None:
    answers = master.salt("-L", "door-1,door-2", "test.ping")
    assert answers.by_device()["door-1"] is True
    assert answers.silent() == ["door-2"]
    assert answers.status != 0


def test_a_job_is_in_the_cache_and_its_return_on_the_bus(master: SaltMaster, minion: SaltMinion) -> None:
    with listening(master) as bus:
        jid = master.ordered("door-1", "test.echo", "hello")
        master.until(lambda: bus.events(f"salt/job/{jid}/ret/door-1"), "the return is on the bus")
    assert [data["return"] for _, data in bus.events(f"salt/job/{jid}/ret/*")] == ["hello"]
    assert master.returned(jid) == {"door-1": "hello"}


def test_a_restarted_master_has_its_keys_and_its_place(master: SaltMaster, minion: SaltMinion) -> None:
    before = master.fingerprint(), master.address
    master.restart()
    assert (master.fingerprint(), master.address) == before
    master.until(lambda: master.salt("door-1", "test.ping").each == [("door-1", True)], "the minion is back")


@pytest.mark.short
def test_a_master_that_was_stopped_leaves_nothing(programs: Path) -> None:
    with SaltMaster(programs) as master:
        assert master.keys() == {}
        master.stop()
        assert "Traceback" not in master.log()
        assert processes(str(master.folder)) == []
        assert not listens(master.ret_port)
        assert not listens(master.publish_port)
    assert not master.folder.exists()


def test_two_masters_can_have_one_key_pair(programs: Path, master: SaltMaster) -> None:
    with SaltMaster(programs, "second", pair=master.key_pair()) as second:
        assert second.fingerprint() == master.fingerprint()
        assert second.address != master.address
