"""What an operator types at a stock Salt master, and a site behind a gateway answers."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.peers.salt_bus import listening
from tests.peers.salt_master import SaltMaster
from tests.peers.salt_site import SaltSite, salt_site

DEVICES = 6
LONGER = 14
"""Seconds: more than ``salt`` waits by itself, with the settings of these masters."""


@pytest.fixture(scope="module")
def site(master: SaltMaster) -> Iterator[SaltSite]:
    with salt_site(master, devices=DEVICES) as started:
        yield started


@pytest.mark.short
def test_every_device_answers_once(site: SaltSite, master: SaltMaster) -> None:
    site.answered(master)
    site.balanced()


@pytest.mark.short
@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (["-L", "cam-00001,cam-00003"], [1, 3]),
        (["-G", "number:4"], [4]),
        (["-C", "G@number:2 or cam-00005 and not cam-0000[34]"], [2, 5]),
        (["-E", "cam-0000[01]$"], [0, 1]),
    ],
)
def test_targets_are_resolved_where_the_devices_are(
    words: list[str], numbers: list[int], site: SaltSite, master: SaltMaster
) -> None:
    answers = master.salt(*words, "test.ping")
    assert answers.by_device() == {site.ids[number]: True for number in numbers}, site.told(master)
    assert answers.status == 0, answers


@pytest.mark.short
def test_what_is_granted_runs_and_what_is_not_is_refused_in_words(site: SaltSite, master: SaltMaster) -> None:
    granted = master.salt("cam-00001", "cmd.run", "echo hello")
    assert granted.by_device() == {"cam-00001": "hello"}, site.told(master)
    for words in (["cmd.run", "id"], ["pkg.install", "nano"]):
        refused = master.salt("cam-0000[12]", *words)
        assert sorted(refused.by_device()) == ["cam-00001", "cam-00002"], site.told(master)
        assert all("refused" in said for said in refused.by_device().values()), refused
        assert refused.status != 0


@pytest.mark.short
def test_a_job_that_nobody_waits_for_is_in_the_cache(site: SaltSite, master: SaltMaster) -> None:
    jid = master.ordered("cam-*", "test.echo", "hello")
    master.until(lambda: master.returned(jid) == dict.fromkeys(site.ids, "hello"), f"job {jid} is in the cache")
    assert jid in master.runner("jobs.list_jobs")


@pytest.mark.short
def test_events_and_returns_of_devices_are_on_the_bus(site: SaltSite, master: SaltMaster) -> None:
    with listening(master) as bus:
        answers = master.salt("cam-00002", "event.send", "door/opened", "by=hand")
        assert answers.by_device() == {"cam-00002": True}, site.told(master)
        master.until(lambda: bus.events("*door/opened"), f"the event; so far {[tag for tag, _ in bus.events()]}")
    ((_, data),) = bus.events("*door/opened")
    assert "hand" in str(data), data
    assert len(bus.events("salt/job/*/ret/cam-00002")) == 1


def test_batches_reach_every_device(site: SaltSite, master: SaltMaster) -> None:
    answers = master.salt("--batch-size=2", "--static", "cam-*", "test.echo", "hello")
    assert answers.by_device() == dict.fromkeys(site.ids, "hello"), site.told(master)


def test_a_job_that_takes_longer_than_salt_waits_is_waited_for_when_it_says_so(
    site: SaltSite, master: SaltMaster
) -> None:
    answers = master.salt("--timeout=60", "cam-*", "test.sleep", str(LONGER))
    assert answers.by_device() == dict.fromkeys(site.ids, True), site.told(master)


def test_a_long_job_is_asked_for_and_found(site: SaltSite, master: SaltMaster) -> None:
    """The newest release asks only for ids whose keys it knows: an operator gives it these."""
    for name in site.ids:
        (master.folder / "pki" / "minions" / name).write_text(master.key_pair()[1])
    answers = master.salt("cam-*", "test.sleep", str(LONGER))
    for name in site.ids:
        (master.folder / "pki" / "minions" / name).unlink()
    assert answers.by_device() == dict.fromkeys(site.ids, True), site.told(master)


def test_a_device_that_says_nothing_is_reported_and_not_waited_for(site: SaltSite, master: SaltMaster) -> None:
    system = site.system
    (silent,) = system.add_swarm(1, "lisbon", prefix="mute-", name="mute")
    system.until(lambda: system.is_here(silent, "lisbon"), f"{silent} is here")
    process = system.children["mute"].process
    process.send_signal(signal.SIGSTOP)
    try:
        with listening(master) as bus:
            answers = master.salt("-C", f"cam-00001 or {silent}", "test.ping")
    finally:
        process.send_signal(signal.SIGCONT)
    assert answers.silent() == [silent], site.told(master)
    assert dict(answers.each)["cam-00001"] is True
    assert answers.status != 0
    probes = [data for _, data in bus.events("salt/job/*/new") if data["fun"] == "saltutil.find_job"]
    assert len(probes) <= 1, "it was taken for busy"
