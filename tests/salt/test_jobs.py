"""What an operator types at a stock Salt master, and a site behind a gateway answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from device_agent import __version__
from tests.peers.salt_bus import Bus, listening
from tests.peers.salt_master import SaltMaster
from tests.peers.salt_site import NAME, SaltSite, salt_site

DEVICES = 6
MORE_ROUNDS = 2
"""How often ``salt`` may ask after a silent device again. After one that is said to be busy it asks for ever."""


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


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["*"], marks=pytest.mark.short),
        pytest.param(["-G", "id:*"], marks=pytest.mark.short),
        ["-S", "127.0.0.0/8"],
        ["-C", "* and not door-*"],
    ],
    ids=lambda words: words[0],
)
def test_a_target_that_means_the_gateway_ends_with_the_last_answer(
    words: list[str], site: SaltSite, master: SaltMaster
) -> None:
    """As behind a stock syndic with a minion of the same id: nobody is silent, so Salt asks after nobody."""
    with listening(master) as bus:
        answers = master.salt(*words, "test.ping")
    devices = [] if words[0] == "-S" else site.ids
    assert answers.by_device() == dict.fromkeys([NAME, *devices], True), site.told(master)
    assert answers.status == 0, answers
    assert asked_after(bus, NAME) == [], site.told(master)


@pytest.mark.short
def test_runners_that_ask_everybody_find_the_gateway_and_its_devices(site: SaltSite, master: SaltMaster) -> None:
    everybody = sorted([NAME, *site.ids])
    assert master.runner("manage.status") == {"up": everybody, "down": []}, site.told(master)
    (job,) = master.runner("jobs.active").values()
    assert (job["Function"], sorted(job["Returned"])) == ("saltutil.running", everybody)
    (cached,) = master.runner("cache.grains", "tgt=*").items()
    assert (cached[0], cached[1]["id"]) == (NAME, NAME), "of a device a master keeps no grains"


@pytest.mark.short
def test_runners_about_versions_and_presence_say_what_the_page_says(site: SaltSite, master: SaltMaster) -> None:
    found = master.runner("manage.versions")
    assert found["Minion offline"] == {NAME: False}, site.told(master)
    assert found["Minion requires update"] == dict.fromkeys(site.ids, __version__)
    assert found.keys() == {"Master", "Minion offline", "Minion requires update"}
    assert master.runner("manage.present") == [NAME], "devices have no connection to the master"


@pytest.mark.parametrize(
    "words", [["-C", "cam-* and"], ["-E", "cam-("], ["-R", "cam[1-"]], ids=["compound", "regular expression", "range"]
)
def test_a_target_that_does_not_parse_is_answered_by_the_gateway(
    words: list[str], site: SaltSite, master: SaltMaster
) -> None:
    answers = master.salt(*words, "test.ping")
    assert list(answers.by_device()) == [NAME], site.told(master)
    assert answers.by_device()[NAME].startswith("refused: bad_target: ")
    assert answers.status != 0


CLIENT = """
import json, sys
from salt.client import LocalClient
print(json.dumps(LocalClient(sys.argv[1] + "/master").cmd("cam-*", "test.ping", jid="my-job")))
"""


def test_a_job_with_the_jid_of_a_program_is_refused_under_it(site: SaltSite, master: SaltMaster) -> None:
    """``salt`` itself takes no other jid; the client that programs use does."""
    words = [str(master.programs / "python"), "-W", "ignore", "-c", CLIENT, str(master.folder)]
    environment = {**os.environ, "PYTHONPATH": "", "HOME": str(master.folder)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=True)
    answers = json.loads(done.stdout.splitlines()[-1])
    assert sorted(answers) == site.ids, (done, site.told(master))
    why = "refused: malformed: job my-job: the field jid of a publish: found 'my-job', allowed are 20 digits"
    assert all(said.startswith(why) for said in answers.values()), answers


def test_the_gateway_runs_nothing_under_its_own_id(site: SaltSite, master: SaltMaster) -> None:
    answers = master.salt("*", "cmd.run", "echo hello")
    assert answers.by_device().pop(NAME).startswith("refused: not_granted: cmd.run is not answered for")
    assert {name: said for name, said in answers.each if name != NAME} == dict.fromkeys(site.ids, "hello")


@pytest.mark.short
def test_arguments_that_cannot_be_passed_on_are_answered_by_everybody(site: SaltSite, master: SaltMaster) -> None:
    answers = master.salt("*", "test.arg", "{null: b}")
    assert sorted(answers.by_device()) == sorted([NAME, *site.ids]), site.told(master)
    assert all("a key must be text" in said for said in answers.by_device().values()), answers
    assert answers.status != 0


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


def test_what_runs_of_a_batch_is_ended_by_its_jid(site: SaltSite, master: SaltMaster) -> None:
    """All parts of a batch of 3008 have one jid; with 3006 and 3007 each has its own."""
    batch = ("--batch-size=2", "--static", "--timeout=300", "--out=json", "cam-*", "test.sleep", "3600")
    ended: set[str] = set()
    with listening(master) as bus, master.started("salt", *batch) as salt:
        while len(ended) < DEVICES:
            jid, run = running(site, master, bus, ended)
            killed = master.salt("cam-*", "saltutil.kill_job", jid).by_device()
            assert {name for name, said in killed.items() if said} == run, (killed, site.told(master))
            ended |= run
        out, error = salt.communicate(timeout=120)
    assert all(f"{name}" in out for name in site.ids), (out, error)
    assert out.count("stopped by saltutil.kill_job") == DEVICES, out


def running(site: SaltSite, master: SaltMaster, bus: Bus, ended: set[str]) -> tuple[str, set[str]]:
    """The jid of the part of a batch that runs now, and on whom; none of them was there before."""

    def found() -> tuple[str, set[str]] | None:
        jids = [data["jid"] for _, data in bus.events("salt/job/*/new") if data["fun"] == "test.sleep"]
        if not jids:
            return None
        said = master.salt("cam-*", "saltutil.find_job", jids[-1]).by_device()
        busy = {name for name, description in said.items() if description}
        return (jids[-1], busy) if len(busy) == 2 and not busy & ended else None

    last: list[tuple[str, set[str]] | None] = []

    def two_run() -> bool:
        last.append(found())
        return last[-1] is not None

    master.until(two_run, f"two devices run the next part; {ended} have ended")
    assert last[-1] is not None
    return last[-1]


@contextmanager
def known(master: SaltMaster, *names: str) -> Iterator[None]:
    """The master has a key for each of them, as when an operator put it there."""
    public = master.throwaway_key() if names else ""
    keys = [master.folder / "pki" / "minions" / name for name in names]
    for key in keys:
        key.write_text(public)
    try:
        yield
    finally:
        for key in keys:
            key.unlink()


@pytest.mark.parametrize("waits", [True, False], ids=["salt waits", "salt asks after it"])
def test_a_job_of_a_minute_is_answered(waits: bool, site: SaltSite, master: SaltMaster) -> None:
    """The newest release asks only for ids whose keys it knows: an operator gives it these."""
    with known(master, *([] if waits or master.release < "3008" else site.ids)), listening(master) as bus:
        answers = master.salt(*(["--timeout=90"] if waits else []), "cam-*", "test.sleep", "60")
    assert answers.by_device() == dict.fromkeys(site.ids, True), site.told(master)
    assert answers.status == 0, answers
    probes = [data for _, data in bus.events("salt/job/*/new") if data["fun"] == "saltutil.find_job"]
    assert bool(probes) is not waits


def asked_after(bus: Bus, name: str) -> list[str]:
    """The jids of Salt's questions whether somebody still runs a job."""
    orders = [data for _, data in bus.events("salt/job/*/new") if data["fun"] == "saltutil.find_job"]
    return [data["jid"] for data in orders if name in data["tgt"]]


def test_a_device_that_says_nothing_is_reported_and_not_waited_for(
    site: SaltSite, master: SaltMaster, request: pytest.FixtureRequest
) -> None:
    """``salt`` waits in rounds, each as long as its settings say: one, for a minion of its own that is not there too.

    A slow machine may make some more of them. What is said for the device in each is that it runs nothing.
    """
    system = site.system
    (silent,) = system.add_swarm(1, "lisbon", prefix="mute-", name="mute")
    request.addfinalizer(lambda: system.command("keys", "revoke", silent, "--yes", station=NAME, status=0))
    system.until(lambda: system.is_here(silent, "lisbon"), f"{silent} is here")
    process = system.children["mute"].process
    # The newest release asks only after those whose keys it knows.
    with known(master, "door-1", silent), listening(master) as bus:
        assert master.salt("door-1", "test.ping").silent() == ["door-1"]
        process.send_signal(signal.SIGSTOP)
        try:
            answers = master.salt("-C", f"cam-00001 or {silent}", "test.ping")
        finally:
            process.send_signal(signal.SIGCONT)
        rounds, of_its_own = asked_after(bus, silent), asked_after(bus, "door-1")
        assert of_its_own
        assert 1 <= len(rounds) <= len(of_its_own) + MORE_ROUNDS, "it was taken for busy"
        master.until(lambda: bus.events(f"salt/job/{rounds[0]}/ret/{silent}"), "what was said for it")
    assert answers.silent() == [silent], site.told(master)
    assert dict(answers.each)["cam-00001"] is True
    assert answers.status != 0
    said = [data["return"] for jid in rounds for _, data in bus.events(f"salt/job/{jid}/ret/*")]
    assert said == [{}] * len(said)
