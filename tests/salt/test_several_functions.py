"""Several functions in one job of a stock master: a site answers as the minion beside it does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers.salt_bus import listening
from tests.peers.salt_master import SaltMaster
from tests.peers.salt_minion import SaltMinion
from tests.peers.salt_site import SaltSite, salt_site

MINION = "stock"
DEVICES = 3
BOTH = 2


@pytest.fixture(scope="module")
def site(master: SaltMaster) -> Iterator[SaltSite]:
    with salt_site(master, devices=DEVICES) as started:
        yield started


@pytest.fixture(scope="module")
def minion(programs: Path, master: SaltMaster) -> Iterator[SaltMinion]:
    with SaltMinion(programs, MINION, master) as started:
        master.accept(MINION)
        started.ready()
        yield started


@pytest.mark.short
def test_each_is_called_and_the_answer_of_a_device_is_one(site: SaltSite, master: SaltMaster) -> None:
    with listening(master) as bus:
        answers = master.salt("cam-*", "test.echo,test.ping,cmd.run", "hello", ",", ",", "echo out")
        value = {"test.echo": "hello", "test.ping": True, "cmd.run": "out"}
        assert answers.by_device() == dict.fromkeys(site.ids, value), site.told(master)
        assert answers.status == 0, answers
        master.until(lambda: len(bus.events("salt/job/*/ret/cam-*")) == DEVICES, "each return on the bus")
    for _, data in bus.events("salt/job/*/ret/cam-*"):
        assert data["fun"] == ["test.echo", "test.ping", "cmd.run"], data
        assert data["fun_args"] == [["hello"], [], ["echo out"]], data
    site.balanced()


@pytest.mark.short
def test_one_that_is_not_granted_keeps_all_from_running(site: SaltSite, master: SaltMaster) -> None:
    for words in (["test.ping,cmd.run", ",", "id"], ["pkg.install,test.ping", "nano", ","]):
        refused = master.salt("cam-0000[12]", *words)
        assert sorted(refused.by_device()) == ["cam-00001", "cam-00002"], site.told(master)
        for said in refused.by_device().values():
            assert list(said) == words[0].split(","), refused
            assert all(each.startswith("refused: not_granted") for each in said.values()), refused
        assert refused.status != 0


@pytest.mark.parametrize(
    ("words", "fails"),
    [
        (["test.ping,test.echo", ",", "a, b"], False),
        (["test.echo,test.echo", "a", ",", "b"], False),
        (["test.echo,cmd.run", "a=b", ",", "echo x"], None),
        (["cmd.run,test.ping", "echo said; exit 3", ","], True),
        (["test.retcode,test.true", "7", ","], True),
        (["test.retcode,test.retcode", "7", ",", "0"], None),
    ],
)
def test_it_is_answered_as_a_minion_answers_it(
    words: list[str], fails: bool | None, site: SaltSite, master: SaltMaster, minion: SaltMinion
) -> None:
    """Where the two differ (``None``) docs/salt.md says so.

    What a function does not take is said in other words, and of two of one name a failed one counts here.
    """
    with listening(master) as bus:
        ours, theirs = master.salt("cam-00001", *words), master.salt(MINION, *words)
        master.until(lambda: len(bus.events("salt/job/*/ret/*")) == BOTH, "both returns on the bus")
    said, beside = ours.by_device()["cam-00001"], theirs.by_device()[MINION]
    assert list(said) == list(beside), (ours, theirs, site.told(master), minion.told())
    if fails is None:
        return
    assert said == beside, (ours, theirs)
    assert bool(ours.status) is bool(theirs.status) is fails, (ours, theirs)
    one, other = (data for _, data in bus.events("salt/job/*/ret/*"))
    for field in ("fun", "fun_args", "return", "retcode", "success"):
        assert one[field] == other[field], (field, one, other)


def test_one_that_is_not_there_is_said_and_the_others_run(
    site: SaltSite, master: SaltMaster, minion: SaltMinion
) -> None:
    words = ("cmd.nobody,test.ping", ",")
    ours, theirs = master.salt("cam-00001", *words), master.salt(MINION, *words)
    said, beside = ours.by_device()["cam-00001"], theirs.by_device()[MINION]
    assert said["test.ping"] is beside["test.ping"] is True, (ours, theirs, site.told(master), minion.told())
    # The one says what is missing, the other where its own code stumbled over it.
    assert said["cmd.nobody"].startswith("unknown_function: there is no cmd.nobody"), ours
    assert beside["cmd.nobody"].startswith("Traceback"), theirs


def test_it_is_found_while_it_runs_and_what_had_returned_when_it_is_ended_is_told(
    site: SaltSite, master: SaltMaster
) -> None:
    jid = master.ordered("cam-00001", "test.echo,test.sleep", "hello", ",", "3600")

    def found() -> Any:
        return master.salt("cam-00001", "saltutil.find_job", jid).by_device()["cam-00001"]

    master.until(found, "it runs")
    assert found()["fun"] == ["test.echo", "test.sleep"]
    master.salt("cam-00001", "saltutil.kill_job", jid)
    master.until(lambda: "cam-00001" in master.returned(jid), f"job {jid} is in the cache")
    assert master.returned(jid)["cam-00001"] == {"test.echo": "hello", "test.sleep": "stopped by saltutil.kill_job"}
