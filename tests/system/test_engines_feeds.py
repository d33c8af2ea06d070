"""Engines that feed other systems, each against a real one, or one that speaks the same over HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.peers.broker import free_port
from tests.peers.http_peer import HttpPeer, Sent, http_peer
from tests.peers.system import ROOT, System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

EXAMPLES = ROOT / "examples" / "engines"
NATS = shutil.which("nats-server", path="/usr/sbin:/usr/local/bin:/usr/bin:/usr/local/sbin")
TOPIC = "arn:aws:sns:eu-west-1:123456789012:site-events"
KEYS = {"access_key": "AKIDEXAMPLE", "secret_key": "wJalrXUtnFEMI/K7MDENG"}
BEACONS = {
    "memusage": [{"percent": 0}, {"interval": 0.5}, {"fold": 0}],
    "status": [{"loadavg": ["all"]}, {"interval": 0.5}, {"fold": 0}],
}
CALLING = """
import salt.utils.event

def start():
    with salt.utils.event.get_master_event(__opts__, __opts__["sock_dir"], listen=True) as bus:
        for event in bus.iter_events(tag="site/who"):
            up = __runners__["manage.up"]()
            there = [name in __salt__ for name in ("manage.up", "test.ping", "no.such")]
            bus.fire_event({"up": up, "same": __salt__["manage.up"]() == up, "there": there}, "site/they")
"""


def fire(system: System, tag: str, **data: Any) -> None:
    body = json.dumps({"events": [{"tag": tag, "data": data}]}).encode()
    assert system.ask("lisbon", "POST", "/events", body)[0] == 201


def running(system: System, *names: str) -> None:
    def state() -> dict[str, str]:
        return {view["name"]: view["state"] for view in system.view("lisbon", "/engines")["engines"]}

    system.until(lambda: all(state()[name] == "running" for name in names), f"{names} run")


@pytest.fixture(scope="module")
def peer() -> Iterator[HttpPeer]:
    with http_peer() as peer:
        yield peer


@pytest.fixture(scope="module")
def site(peer: HttpPeer) -> Iterator[System]:
    with whole_system() as system:
        folder = system.folder / "engines"
        folder.mkdir(mode=0o755)
        for name in ("metrics_feed", "notification_topic"):
            (folder / f"{name}.py").write_text((EXAMPLES / f"{name}.py").read_text())
        (folder / "calling.py").write_text(CALLING)
        for file in folder.iterdir():
            file.chmod(0o644)
        (system.folder / "metrics.key").write_text("the-key\n")
        (system.folder / "aws.json").write_text(json.dumps(KEYS))
        topic = {"topic": TOPIC, "region": "eu-west-1", "credentials_file": str(system.folder / "aws.json")}
        key_file = str(system.folder / "metrics.key")
        system.add_gateway(
            "lisbon",
            engines_dirs=[str(folder)],
            station={"beacons": BEACONS},
            engines=[
                "calling",
                {
                    "metrics_feed": {
                        "url": peer.url("/series"),
                        "key_file": key_file,
                        "every": 0.1,
                    }
                },
                {"notification_topic": {"url": peer.url("/sns"), "tag": "site/audit/*", **topic}},
                {"otlp": {"endpoint": peer.url("/collector"), "tag": "site/audit/*"}},
            ],
        )
        running(system, "calling", "metrics_feed", "notification_topic", "otlp")

        def begun() -> bool:
            # What happened before an engine began is not its affair.
            fire(system, "site/audit/begin", n=0)
            return bool(notes(peer) and records(peer))

        system.until(begun, "both have begun")
        yield system


def at(peer: HttpPeer, path: str) -> list[Sent]:
    return [each for each in peer.taken() if each.path.startswith(path)]


def notes(peer: HttpPeer) -> list[dict[str, Any]]:
    forms = [parse_qs(each.body.decode()) for each in at(peer, "/sns")]
    return [json.loads(form["Message"][0]) for form in forms]


def records(peer: HttpPeer) -> list[dict[str, Any]]:
    found = []
    for each in at(peer, "/collector/v1/logs"):
        for resource in json.loads(each.body)["resourceLogs"]:
            found += [record for scope in resource["scopeLogs"] for record in scope["logRecords"]]
    return found


def test_numbers_of_beacons_are_points_of_a_metrics_service(site: System, peer: HttpPeer) -> None:
    def points() -> dict[str, dict[str, Any]]:
        return {each["metric"]: each for sent in at(peer, "/series") for each in json.loads(sent.body)["series"]}

    def told() -> bool:
        # As a beacon of Salt has it; it is fired again until the engine listens.
        fire(site, "salt/beacon/cam-1/diskusage/", id="cam-1", diskusage="93%", free="nan", mount="/", load={"1m": 0.5})
        return "salt.diskusage.load.1m" in points()

    site.until(told, "the points came")
    disk = points()["salt.diskusage.diskusage"]
    assert disk["points"][0]["value"] == 93.0
    assert disk["tags"] == ["device:cam-1", "site:lisbon"]
    assert "salt.diskusage.free" not in points(), "what is no number is none, and takes no others along"
    # The station's own beacons, as they are: flat, and below their own data.
    real = {"salt.memusage.memusage", "salt.status.data.loadavg.1-min"}
    site.until(lambda: real <= points().keys(), "the points of real beacons came")
    for name in real:
        assert points()[name]["points"][0]["value"] >= 0.0
        assert points()[name]["tags"] == ["device:lisbon-station", "site:lisbon"]
    assert all(
        each.headers["Dd-Api-Key" if "Dd-Api-Key" in each.headers else "DD-API-KEY"] == "the-key"
        for each in at(peer, "/series")
    )


def test_every_event_is_published_to_a_topic_signed_and_none_is_missing_after_a_kill(
    site: System, peer: HttpPeer
) -> None:
    for number in range(1, 11):
        fire(site, "site/audit/door", n=number)
    site.kill("lisbon")
    site.restart("lisbon")
    fire(site, "site/audit/door", n=11)
    site.until(lambda: {each["data"]["n"] for each in notes(peer)} == set(range(12)), "all are there")
    site.until(
        lambda: len({each["attributes"][0]["value"]["stringValue"] for each in records(peer)}) >= 12, "all logged"
    )
    sent = at(peer, "/sns")[0]
    form = parse_qs(sent.body.decode())
    assert (form["Action"], form["TopicArn"]) == (["Publish"], [TOPIC])
    assert sent.headers["Authorization"].rpartition("Signature=")[2] == signature(sent, peer)
    assert KEYS["secret_key"] not in site.log("lisbon")
    running(site, "calling", "metrics_feed")


def signature(sent: Sent, peer: HttpPeer) -> str:
    """As the service makes it of what it got."""
    moment = sent.headers["X-Amz-Date" if "X-Amz-Date" in sent.headers else "X-amz-date"]
    kind, day = sent.headers["Content-Type" if "Content-Type" in sent.headers else "Content-type"], moment[:8]
    canonical = "\n".join(
        [
            "POST", "/sns", "", f"content-type:{kind}", f"host:127.0.0.1:{peer.port}", f"x-amz-date:{moment}", "",
            "content-type;host;x-amz-date", hashlib.sha256(sent.body).hexdigest(),
        ]
    )  # fmt: skip
    scope = f"{day}/eu-west-1/sns/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = b"AWS4" + KEYS["secret_key"].encode()
    for word in scope.split("/"):
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def test_an_engine_calls_the_runners_of_its_station(site: System) -> None:
    def answered() -> list[dict[str, Any]]:
        fire(site, "site/who")
        done = site.command(
            "events", "site/they", "--no-follow", "--history", "1", "--json", station="lisbon", status=0
        )
        return done.json("event")

    site.until(answered, "it has answered")
    (event, *_) = answered()
    assert event["data"]["same"] is True
    assert event["data"]["there"] == [True, True, False]
    assert event["data"]["up"] == []


@pytest.mark.skipif(NATS is None, reason="there is no NATS server on this machine: apt-get install nats-server")
def test_events_are_in_a_stream_of_nats_once_each_after_a_kill_too(tmp_path: Path) -> None:
    nats = pytest.importorskip("nats")
    port = free_port()
    assert NATS is not None
    with whole_system() as system:
        system.start("nats", [NATS, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(tmp_path / "nats")])

        async def found(*, make: bool = False) -> list[tuple[str, dict[str, Any]]]:
            async with asyncio.timeout(60):
                client = await nats.connect(f"nats://127.0.0.1:{port}")
                try:
                    stream = client.jetstream()
                    if make:
                        await stream.add_stream(name="events", subjects=["outstation.>"])
                        return []
                    kept = (await stream.stream_info("events")).state.messages
                    raw = [await stream.get_msg("events", number) for number in range(1, kept + 1)]
                    return [(str(each.subject), json.loads(each.data or b"{}")) for each in raw]
                finally:
                    await client.close()

        def up() -> bool:
            try:
                asyncio.run(found(make=True))
            except (OSError, TimeoutError, nats.errors.Error):
                return False
            return True

        system.until(up, "the server answers")
        servers = {"servers": f"nats://127.0.0.1:{port}", "tag": "site/*", "timeout": 2}
        system.add_gateway("lisbon", engines=[{"nats": servers}])
        running(system, "nats")

        def begun() -> bool:
            fire(system, "site/door/0", n=0)
            return bool(asyncio.run(found()))

        system.until(begun, "it has begun")
        for number in range(1, 20):
            fire(system, f"site/door/{number}", n=number)
        system.kill("lisbon")
        system.restart("lisbon")

        def carried() -> list[tuple[str, dict[str, Any]]]:
            return [each for each in asyncio.run(found()) if each[1]["data"]["n"]]

        system.until(lambda: len(carried()) >= 19, "all are there")
        assert [message["data"]["n"] for _, message in carried()] == list(range(1, 20))
        assert carried()[2][0] == "outstation.lisbon.site.door.3"
