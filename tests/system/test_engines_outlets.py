"""What goes out of a real station over its engines arrives at least once; what comes in has a token and a shape."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.peers.broker import free_port
from tests.peers.http_peer import HttpPeer, http_peer
from tests.peers.processes import runs
from tests.peers.system import System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

TOKEN = "a-token-of-the-test"
PATIENCE_SECONDS = 120
REACTION = "pong:\n  local.test.echo:\n    - tgt: cam-1\n    - args:\n      - text: {{ data['labels']['disk'] }}\n"
ALERT = {
    "status": "firing",
    "labels": {"alertname": "DiskFull", "disk": "sda1"},
    "annotations": {"summary": "it is full"},
    "startsAt": "2026-11-23T08:00:00Z",
    "endsAt": "0001-01-01T00:00:00Z",
    "generatorURL": "http://prometheus/graph",
    "fingerprint": "b7a1",
}
POSTED = {
    "version": "4",
    "groupKey": '{}:{alertname="DiskFull"}',
    "truncatedAlerts": 0,
    "status": "firing",
    "receiver": "station",
    "groupLabels": {"alertname": "DiskFull"},
    "commonLabels": {},
    "commonAnnotations": {},
    "externalURL": "http://alertmanager",
    "alerts": [ALERT],
}


class Plant:
    """A gateway with every engine that speaks HTTP, and who it posts to."""

    def __init__(self, system: System, peer: HttpPeer, ports: dict[str, int]) -> None:
        self.system = system
        self.peer = peer
        self.ports = ports

    def fire(self, tag: str, **data: Any) -> None:
        body = json.dumps({"events": [{"tag": tag, "data": data}]}).encode()
        assert self.system.ask("lisbon", "POST", "/events", body)[0] == 201

    def view(self, engine: str) -> dict[str, Any]:
        views = self.system.view("lisbon", "/engines")["engines"]
        (found,) = [view for view in views if view["name"] == engine]
        return dict(found)

    def counts(self, engine: str) -> dict[str, int]:
        return dict(self.view(engine)["counts"])

    def post(
        self, engine: str, body: bytes, path: str = "/", token: str | None = TOKEN, method: str = "POST"
    ) -> tuple[int, bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.ports[engine], timeout=20)) as connection:
            headers = {"Authorization": f"Bearer {token}", "Cookie": "c=secret"} if token is not None else {}
            connection.request(method, path, body, headers)
            with connection.getresponse() as response:
                return response.status, response.read()

    def numbers(self) -> list[int]:
        """The events that the peer took, by their number."""
        return [json.loads(each.body)["data"]["n"] for each in self.peer.taken()]

    def running(self) -> None:
        names = {"out", "alertmanager", "webhook", "prometheus"}
        self.system.until(
            lambda: all(
                view["state"] == "running"
                for view in self.system.view("lisbon", "/engines")["engines"]
                if view["name"] in names
            ),
            "the engines run",
        )


@pytest.fixture(scope="module")
def plant() -> Iterator[Plant]:
    ports = {name: free_port() for name in ("alertmanager", "webhook", "prometheus")}
    with http_peer() as peer, whole_system() as system:
        (system.folder / "alert.sls").write_text(REACTION)
        out: dict[str, Any] = {"engine_module": "webhook_out", "url": peer.url("/in"), "tag": "site/out/*"}
        # Longer than a test waits: on no machine is an answer too late, and what was taken sent again for that.
        out |= {"secret": "s3cret-words", "timeout": PATIENCE_SECONDS}
        system.add_gateway(
            "lisbon",
            engines=[
                {"out": out},
                *({name: {"port": port, "token": TOKEN}} for name, port in ports.items()),
            ],
            reactor=[{"salt/engines/hook/alertmanager/firing/*": str(system.folder / "alert.sls")}],
        )
        system.add_agent("cam-1", "lisbon")
        system.until(lambda: system.is_here("cam-1", "lisbon"), "the device is here")
        plant = Plant(system, peer, ports)
        plant.running()
        for port in ports.values():
            system.until(lambda: listens(port), "it listens")  # noqa: B023 - called at once

        def begun() -> bool:
            # What happened before an engine began is not its affair.
            plant.fire("site/out/begin", n=0)
            return bool(plant.numbers())

        system.until(begun, "it has begun")
        plant.fire("site/out/begin", n=-1)
        system.until(lambda: -1 in plant.numbers(), "all of that has come")
        yield plant


def listens(port: int) -> bool:
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
            connection.connect()
            return True
    except OSError:
        return False


def test_an_event_is_posted_signed_and_with_a_key(plant: Plant) -> None:
    plant.peer.sent.clear()
    plant.fire("site/out/x", n=1)
    plant.fire("site/other", n=2)
    plant.system.until(lambda: plant.numbers() == [1], "it was posted")
    (sent,) = plant.peer.taken()
    assert sent.path == "/in"
    told = json.loads(sent.body)
    assert (told["tag"], told["station"], told["data"]["n"]) == ("site/out/x", "lisbon", 1)
    assert sent.headers["Idempotency-Key"] == f"lisbon:{told['id']}"
    signed = hmac.new(b"s3cret-words", sent.body, hashlib.sha256).hexdigest()
    assert sent.headers["X-Outstation-Signature"] == f"sha256={signed}"


def test_what_fails_is_sent_again_in_order_and_what_is_not_taken_is_named(plant: Plant) -> None:
    plant.peer.sent.clear()
    plant.peer.statuses.extend([503, 429, 200, 400])
    for number in (10, 11, 12):
        plant.fire("site/out/x", n=number)
    plant.system.until(lambda: plant.numbers() == [10, 12], "two of three arrived")
    tries = [json.loads(each.body)["data"]["n"] for each in plant.peer.sent]
    assert tries == [10, 10, 10, 11, 12]
    assert len({each.headers["Idempotency-Key"] for each in plant.peer.sent[:3]}) == 1
    plant.system.until(lambda: plant.counts("out").get("not_taken") == 1, "it is counted")
    plant.system.until(lambda: "not taken, and given up: 127.0.0.1" in plant.system.log("lisbon"), "it is named")
    log = plant.system.log("lisbon")
    assert "s3cret-words" not in log
    assert TOKEN not in log


def test_nothing_is_missing_after_the_station_was_killed_while_nobody_answered(plant: Plant) -> None:
    plant.peer.sent.clear()
    plant.peer.statuses.extend([503] * 3)
    numbers = list(range(100, 140))
    for number in numbers[:20]:
        plant.fire("site/out/x", n=number)
    above = plant.view("out")["pid"]
    plant.system.kill("lisbon")
    # Two at a time would each carry what is under way.
    plant.system.until(lambda: not runs(above), "the engine has ended with its station")
    plant.system.restart("lisbon")
    for number in numbers[20:]:
        plant.fire("site/out/x", n=number)
    plant.system.until(lambda: set(plant.numbers()) == set(numbers), "all of them arrived")
    seen = plant.numbers()
    assert sorted(set(seen)) == numbers
    assert len(seen) - len(numbers) <= 1, "at most the one that was under way came twice"
    keys = {(json.loads(each.body)["data"]["n"], each.headers["Idempotency-Key"]) for each in plant.peer.sent}
    assert len(keys) == len({key for _, key in keys}) == len(numbers), "one that comes again has the key that it had"
    plant.running()


def test_an_alert_becomes_an_event_becomes_a_reaction(plant: Plant) -> None:
    status, said = plant.post("alertmanager", json.dumps(POSTED).encode())
    assert (status, said) == (200, b"1 events\n")
    tag = "salt/engines/hook/alertmanager/firing/DiskFull"

    def reacted() -> bool:
        done = plant.system.command("reactor", "why", tag, "--json", station="lisbon")
        told = [json.loads(line) for line in done.out.splitlines()]
        outcomes = [each["outcomes"] for event in told for each in event["reactions"]]
        return any(each and each[0]["value"] == "sda1" for each in outcomes)

    plant.system.until(reacted, "the camera has answered")
    found = plant.system.command("events", tag, "--no-follow", "--history", "1", "--json", station="lisbon")
    (event,) = found.json("event")
    assert event["data"]["annotations"] == {"summary": "it is full"}
    assert event["data"]["startsAt"] == ALERT["startsAt"]
    assert event["data"]["receiver"] == "station"


@pytest.mark.parametrize(
    ("body", "token", "status", "reason"),
    [
        (b"{}", None, 401, "refused_token"),
        (b"{}", "wrong", 401, "refused_token"),
        (b"{}", TOKEN, 400, "refused_body"),
        (b"[" * 10_000, TOKEN, 400, "refused_body"),
        (b"\xff", TOKEN, 400, "refused_body"),
        (json.dumps({**POSTED, "version": "3"}).encode(), TOKEN, 400, "refused_body"),
        (json.dumps({**POSTED, "alerts": []}).encode(), TOKEN, 400, "refused_body"),
        (json.dumps({**POSTED, "alerts": [{**ALERT, "status": "odd"}]}).encode(), TOKEN, 400, "refused_body"),
        (
            json.dumps({**POSTED, "alerts": [{**ALERT, "annotations": {"a": "x" * 70_000}}]}).encode(),
            TOKEN,
            400,
            "event",
        ),
        (b"x" * 1_100_000, TOKEN, 413, "refused_too_large"),
    ],
    ids=["no token", "wrong token", "empty", "deep", "no text", "version", "no alerts", "status", "event", "large"],
)
def test_what_is_no_alert_is_refused_and_counted(
    plant: Plant, body: bytes, token: str | None, status: int, reason: str
) -> None:
    name = reason if reason.startswith("refused") else f"refused_{reason}"
    before = plant.counts("alertmanager").get(name, 0)
    try:
        assert plant.post("alertmanager", body, token=token)[0] == status
    except BrokenPipeError:
        assert status == 413
    plant.system.until(lambda: plant.counts("alertmanager").get(name, 0) > before, "it is counted")


def test_what_is_posted_as_to_salts_webhook_is_an_event_without_the_secrets_of_its_headers(plant: Plant) -> None:
    assert plant.post("webhook", b'{"a": 1}', "/build/done")[0] == 200
    tag = "salt/engines/hook/build/done"
    found = plant.system.command("events", tag, "--no-follow", "--history", "1", "--json", station="lisbon")
    (event,) = found.json("event")
    assert event["data"]["body"] == '{"a": 1}'
    assert not {"authorization", "cookie"} & event["data"]["headers"].keys()
    assert plant.post("webhook", b"", "/%00")[0] == 400
    assert plant.post("webhook", b"x" * 60_000)[0] == 413


def test_prometheus_reads_the_numbers_of_the_station_at_a_port(plant: Plant) -> None:
    status, text = plant.post("prometheus", b"", "/metrics", method="GET")
    assert status == 200
    assert b'outstation_engine_running{engine="prometheus"} 1' in text
    assert plant.post("prometheus", b"", "/other", method="GET")[0] == 404
    assert plant.post("prometheus", b"", "/metrics", token=None, method="GET")[0] == 401
