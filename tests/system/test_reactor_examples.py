"""The examples of reactor rules on a gateway with its devices: from the event to what became of each job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from email.message import EmailMessage
from fnmatch import fnmatchcase
from typing import Any

import pytest

from gateway.cli.key_client import KeyClient
from gateway.cli.key_views import KeyView
from tests.peers.reactor_examples import ALERTS, EXAMPLES, EXAMPLES_OF_RULES, Call, Example, installed
from tests.peers.smtp_peer import SmtpPeer, smtp_peer
from tests.peers.system import System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

SITE = "lisbon"
OWN = f"{SITE}-station"
DEVICES = ("cam-1", "recorder-1", "haproxy-1")
NEW = "cam-8"
FIRED = [
    example
    for example in EXAMPLES_OF_RULES
    if (example.tag.startswith(ALERTS) or not example.tag.startswith(("salt/", "foo")))
    and {call.kind for call in example.calls} & {"local", "cmd", "caller"}
]
"""Those whose event an operator can fire, and which order something of devices."""


@pytest.fixture(scope="module")
def mail() -> Iterator[SmtpPeer]:
    with smtp_peer() as peer:
        yield peer


@pytest.fixture(scope="module")
def site(mail: SmtpPeer) -> Iterator[System]:
    with whole_system() as system:
        given = installed(system.folder)
        given |= {
            "smtp.from": "outstation@example.net",
            "smtp.to": "ops@example.net",
            "smtp.host": "127.0.0.1",
            "smtp.port": mail.port,
            "smtp.subject": "{{ fun }} of {{ id }}",
        }
        system.add_master()
        system.add_gateway(SITE, "central", **given, policy=str(EXAMPLES / "policy.yaml"))
        system.join(SITE, grants=["reads", "changes", "shell"])
        KeyClient(system.stations[SITE]).open_window({"seconds": 600.0, "max": 10})
        for device in DEVICES:
            system.add_agent(device, SITE, recorder=device.startswith("recorder"))
        system.until(lambda: all(system.is_here(device, SITE) for device in DEVICES), "the devices are here")
        yield system


def why(site: System, what: str) -> list[dict[str, Any]]:
    done = site.command("reactor", "why", what, "--json", station=SITE)
    return [json.loads(line) for line in done.out.splitlines()]


def ended(site: System, tag: str, reactions: int) -> dict[str, dict[str, Any]]:
    """Wait until the newest event with this tag has so many reactions that are over; the reactions by their ids."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        events = why(site, tag)
        found[:] = events[0]["reactions"] if events else []
        return len(found) == reactions and all(over(site, each) for each in found)

    site.until(there, f"{tag} is answered")
    found[:] = why(site, tag)[0]["reactions"]
    return {each["id"]: each for each in found}


def over(site: System, reaction: dict[str, Any]) -> bool:
    """Whether nothing more comes of a reaction."""
    if not reaction["jid"]:
        return bool(reaction["state"] != "waiting")
    if reaction["kind"] in {"runner", "wheel"}:
        return bool(reaction["outcomes"])
    return site.job(SITE, reaction["jid"]).state == "closed"


def outcomes(reaction: dict[str, Any]) -> dict[str, str]:
    """By device, without the camera that one of these tests lets in, before or after the others."""
    return {each["device"]: each["outcome"] for each in reaction["outcomes"] if each["device"] != NEW}


def meant(call: Call) -> set[str]:
    """The devices that a call is for."""
    match call.tgt_type, call.tgt:
        case _, "":
            return {OWN}
        case "grain", "kernel:Linux":
            return set(DEVICES)
        case "grain", "recorder:True":
            return {"recorder-1"}
        case _, glob:
            return {device for device in DEVICES if fnmatchcase(device, glob)}


def judge(call: Call, reaction: dict[str, Any]) -> None:
    """Each device that was meant did it, or refused what no release of ours knows."""
    wanted = "refused" if call.fun.startswith("state.") else "ok"
    found = outcomes(reaction)
    # Cameras of other tests may have come meanwhile.
    assert meant(call) <= found.keys() if call.tgt == "kernel:Linux" else meant(call) == found.keys(), reaction
    assert set(found.values()) <= {wanted}, reaction
    if wanted == "refused":
        assert {each["why"].partition(":")[0] for each in reaction["outcomes"]} == {"unknown_function"}


@pytest.mark.parametrize("example", FIRED, ids=str)
def test_an_event_that_is_fired_becomes_jobs_that_end(example: Example, site: System) -> None:
    site.command("fire", example.tag, json.dumps(example.data), station=SITE, status=0)
    found = ended(site, example.tag, len(example.calls))
    for call in example.calls:
        judge(call, found[call.id])
        job = site.job(SITE, found[call.id]["jid"])
        assert (job.fun, job.user) == (call.fun, "reactor")
    if example.tag == "site/schema/caller":
        assert (site.folder / "foo").exists()


@pytest.mark.parametrize("fun", ["event.send", "event.fire_master", "event.fire", "fire"])
def test_foo_is_read_alike_whoever_fires_it(fun: str, site: System) -> None:
    """As ``salt-call event.send foo '{orchestrate: refresh}'``, ``event.fire '…' foo`` and ``salt-run event.send``."""
    data_first = ["{orchestrate: refresh}", "foo"]
    words = {"event.send": data_first[::-1], "event.fire_master": data_first, "event.fire": data_first}
    newest = [each["number"] for each in why(site, "foo")]
    if fun == "fire":
        site.command("fire", "foo", "{orchestrate: refresh}", station=SITE, status=0)
    else:
        site.command("run", "cam-1", fun, *words[fun], station=SITE, status=0)
    site.until(lambda: len(why(site, "foo")) > len(newest), "it matched")
    (reaction,) = ended(site, "foo", 1).values()
    assert (reaction["said"], reaction["tgt"]) == ("local.saltutil.refresh_grains", "*")
    assert set(DEVICES) <= outcomes(reaction).keys()
    assert set(outcomes(reaction).values()) == {"ok"}


def test_a_device_that_comes_is_asked_for_its_grains_and_its_disks(site: System) -> None:
    found = ended(site, "salt/minion/cam-1/start", 3)
    assert {each["fun"] for each in found.values()} == {
        "saltutil.refresh_grains",
        "saltutil.sync_grains",
        "disk.usage",
    }
    assert outcomes(found["look_at_its_disks"]) == outcomes(found["refresh_its_grains"]) == {"cam-1": "ok"}


def test_a_camera_that_is_let_in_is_named_to_the_proxy_in_front_of_its_pictures(site: System) -> None:
    keep = ["mine.send", "network.ip_addrs", "[192.0.2.1]", "mine_function=test.echo"]
    site.command("run", "cam-1", *keep, station=SITE, status=0)
    fingerprint = waits(site, NEW).fingerprint
    site.command("keys", "accept", NEW, "--fingerprint", fingerprint, "--name", NEW, station=SITE, status=0)
    site.until(lambda: site.is_here(NEW, SITE), "the camera is here")
    found = ended(site, "salt/key", 2)
    reaction = found["add_new_minion_to_pool"]
    assert (reaction["fun"], reaction["tgt"]) == ("state.apply", "haproxy*")
    assert reaction["kwarg"] == {"mods": "haproxy.refresh_pool", "pillar": {"new_minion": NEW}}
    assert outcomes(reaction) == {"haproxy-1": "refused"}
    assert [each["outcome"] for each in found["write_pool"]["outcomes"]] == ["ok"]
    written = (site.folder / "pool.cfg").read_text(encoding="utf-8").splitlines()
    assert (written[0], written[-1]) == ("listen pictures", "    server cam-1 192.0.2.1:80 check")


def test_a_camera_that_goes_by_ink_lets_itself_in_gets_its_state_and_a_mail_says_how_that_ended(
    site: System, mail: SmtpPeer
) -> None:
    waits(site, "ink-7")
    site.until(lambda: site.is_here("ink-7", SITE), "it is let in")
    (key,) = KeyClient(site.stations[SITE]).find("ink-7", "device")
    pending = next(
        each for each in why(site, "salt/auth") if (each["data"]["act"], each["data"]["did"]) == ("pend", key.did)
    )
    (accepting,) = pending["reactions"]
    assert (accepting["said"], accepting["kwarg"]) == ("wheel.key.accept", {"match": "ink-7"})
    assert [(each["outcome"], each["value"]) for each in accepting["outcomes"]] == [("ok", {"minions": ["ink-7"]})]
    found = ended(site, "salt/minion/ink-7/start", 4)
    assert found["highstate_run"]["fun"] == "state.apply"
    assert outcomes(found["highstate_run"]) == {"ink-7": "refused"}
    jid = found["highstate_run"]["jid"]

    def letters() -> list[EmailMessage]:
        return [each for each in list(mail.mails) if f"jid: {jid}" in each.get_content()]

    site.until(letters, "the mail came")
    (letter,) = letters()
    assert (letter["From"], letter["To"]) == ("outstation@example.net", "ops@example.net")
    assert set(mail.recipients) == {"ops@example.net"}
    assert letter["Subject"] == "state.apply of ink-7"
    told = letter.get_content().splitlines()
    assert told[:5] == ["id: ink-7", f"site: {SITE}", "function: state.apply", "arguments: []", f"jid: {jid}"]
    assert told[5].startswith("outcome: refused (unknown_function"), told


def test_a_camera_of_another_series_waits_for_somebody(site: System) -> None:
    key = waits(site, "dome-7")
    site.until(lambda: any(each["data"]["did"] == key.did for each in why(site, "salt/auth")), "the event was seen")
    (event,) = [each for each in why(site, "salt/auth") if each["data"]["did"] == key.did]
    assert (event["state"], event["reactions"]) == ("rendered", [])
    assert KeyClient(site.stations[SITE]).find("dome-7", "device")[0].state == "pending"


def test_a_key_is_deleted_as_it_was_and_as_it_is_written(site: System) -> None:
    site.add_agent("cam-3", SITE)
    site.until(lambda: site.is_here("cam-3", SITE), "the camera is here")
    site.command("fire", "site/schema/wheel", "{id: cam-3}", station=SITE, status=0)
    found = ended(site, "site/schema/wheel", 2)
    assert [each["said"] for each in found.values()] == ["wheel.key.delete"] * 2
    assert {each["outcomes"][0]["outcome"] for each in found.values()} == {"ok"}
    assert "cam-3" not in found["remove_key"]["outcomes"][0]["value"]["minions"]
    assert not site.is_here("cam-3", SITE)


def seen(site: System, tag: str) -> list[dict[str, Any]]:
    """What the station keeps of an event."""
    done = site.command("events", tag, "--no-follow", "--json", station=SITE, status=0)
    return [json.loads(line)["data"] for line in done.out.splitlines()]


ORCHESTRATED: list[tuple[str, dict[str, Any], list[str], dict[str, bool]]] = [
    ("site/runit", {"custom_var": "runit"}, ["call_runit_orch"], {"announce": True, "look": True, "tell": True}),
    (
        "site/schema/runner",
        {"bar": "baz"},
        ["deploy_app", "deploy_app_as_before"],
        {"tell_what_it_is_for": True},
    ),
    ("site/stuff", {}, ["another_orchestrate"], {"say_it": True}),
    (
        "my/custom/event",
        {"foo": "Foo!", "bar": "cam-1", "baz": "Baz!"},
        ["invoke_orchestrate_file"],
        {"do_first_thing": True, "do_second_thing": False, "tell_that_it_failed": True},
    ),
]


@pytest.mark.parametrize(("tag", "data", "reactions", "steps"), ORCHESTRATED, ids=[each[0] for each in ORCHESTRATED])
def test_an_event_begins_an_orchestration_that_reads_it_as_its_pillar(
    tag: str, data: dict[str, Any], reactions: list[str], steps: dict[str, bool], site: System
) -> None:
    site.command("fire", tag, json.dumps(data), station=SITE, status=0)
    found = ended(site, tag, len(reactions))
    assert set(found) == set(reactions)
    for reaction in found.values():
        shown = site.view(SITE, f"/calls/{reaction['jid']}")
        assert (shown["fun"], shown["user"]) == ("state.orchestrate", "Reactor")
        results = {each["__id__"]: each["result"] for each in shown["value"]["data"][f"{SITE}_master"].values()}
        assert results == steps
        assert reaction["outcomes"][0]["outcome"] == ("ok" if all(steps.values()) else "failed")
    if tag == "my/custom/event":
        (first,) = seen(site, "site/first")
        assert (first["foo"], first["because"]) == ("Foo!", tag)
        assert len(seen(site, "site/second/failed")) == 1
        jobs = [job for job in site.view(SITE, "/jobs?limit=1000")["jobs"] if job["fun"] == "state.sls"]
        (job,) = jobs
        assert (job["tgt"], job["counts"]) == ("cam-1", {"refused": 1})


def waits(site: System, serial: str) -> KeyView:
    """A camera without a token that asks to be let in, with this serial number."""
    keys = KeyClient(site.stations[SITE])
    broker = site.stations[SITE].station().broker or {}
    given = {
        "site": SITE,
        "root": site.view(SITE, "/fleet")["root"],
        "broker": {"host": "127.0.0.1", "port": broker["enroll_port"]},
        "drain_seconds": 0.5,
    }
    site.start_agent(serial, {}, None, given)
    site.until(lambda: keys.find(serial, "device"), f"{serial} asks")
    return keys.find(serial, "device")[0]
