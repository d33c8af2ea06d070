"""A site without its masters: a full disk is told, reacted to and mended, and the masters hear of all of it later."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.peers.played_camera import PICTURE
from tests.peers.reactor_examples import EXAMPLES
from tests.peers.small_disk import SmallDisk, small_disk
from tests.peers.system import System, whole_system

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

SITE, MASTER = "lisbon", "central"
CAMERAS = ("cam-1", "cam-2", "cam-3", "cam-4")
OTHERS = CAMERAS[1:]
MEGABYTES = 4
FILLED = 3_800_000
TAG = "salt/beacon/cam-1/diskusage/"
BEYOND = "beyond: {local.cmd.run: [{tgt: cam-2}, {arg: [id]}]}\n"
POLICY = """\
users:
  root: admin
rules:
  operator:
    - functions: [file.remove]
      arguments: {{file.remove: [{{named: {{path: "{clips}"}}}}]}}
      targets: ["cam-*"]
      users: [reactor]
    - functions: [camera.snapshot]
      targets: ["cam-*"]
      users: [reactor]
"""


class Picture(BaseHTTPRequestHandler):
    """What a camera answers."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "image/jpeg")
        self.send_header("Content-Length", str(len(PICTURE)))
        self.end_headers()
        self.wfile.write(PICTURE)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that the library has
        """Nothing to the terminal."""


@contextmanager
def camera() -> Iterator[int]:
    """A camera's door for pictures; its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Picture) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "card", MEGABYTES) as mounted:
        yield mounted


def settled(system: System, disk: SmallDisk, port: int) -> None:
    """A master, its site with the example's rule and one beyond the policy, and four cameras, one with a small card."""
    folder = system.folder / "rules"
    folder.mkdir()
    example = (EXAMPLES / "disk_full.sls").read_text(encoding="utf-8")
    (folder / "a.sls").write_text(example.replace("/snapshot.jpg", f"/snapshot.jpg\n      - http_port: {port}"))
    (folder / "b.sls").write_text(BEYOND)
    policy = system.folder / "policy.yaml"
    policy.write_text(POLICY.format(clips=disk.folder / "clips"))
    policy.chmod(0o600)
    system.add_master()
    rules = [{"salt/beacon/*/diskusage/": str(folder / "*.sls")}]
    system.add_gateway(SITE, MASTER, policy=str(policy), reactor=rules)
    system.join(SITE, grants=["reads", "changes", "shell"])
    watch = {"diskusage": [{str(disk.folder): "80%"}, {"interval": 0.2}]}
    for name in CAMERAS:
        system.add_agent(name, SITE, {"beacons": watch} if name == "cam-1" else {}, area="gate")
    system.present(len(CAMERAS), SITE, MASTER)


def why(system: System, station: str, what: str) -> list[dict[str, Any]]:
    done = system.command("reactor", "why", what, "--json", station=station)
    return [json.loads(line) for line in done.out.splitlines()]


def chain(system: System, station: str) -> dict[str, dict[str, Any]]:
    """The reactions to the beacon as a station tells of them, when all have ended; by their ids."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        found[:] = [each for event in why(system, station, TAG)[:1] for each in event["reactions"]]
        counts = [len(each["outcomes"]) for each in sorted(found, key=lambda each: str(each["id"]))]
        return counts == [0, 1, len(OTHERS)] and all(each["state"] != "waiting" for each in found)

    system.until(there, f"{station} knows the whole chain")
    return {each["id"]: each for each in found}


def outcomes(reaction: dict[str, Any]) -> dict[str, str]:
    return {each["device"]: each["outcome"] for each in reaction["outcomes"]}


def test_a_full_disk_is_mended_in_the_dark_and_the_master_hears_the_whole_chain(disk: SmallDisk) -> None:
    with whole_system() as system, camera() as port:
        settled(system, disk, port)
        clips = disk.folder / "clips"
        system.kill(MASTER)
        system.until(lambda: system.view(SITE)["uplink"]["state"] != "connected", "the uplink is cut")

        clips.mkdir()
        (clips / "oldest.mp4").write_bytes(bytes(FILLED))
        system.until(lambda: not clips.exists(), "there is room again")
        here = chain(system, SITE)
        assert outcomes(here["make_room"]) == {"cam-1": "ok"}
        assert outcomes(here["neighbours_take_a_picture"]) == dict.fromkeys(OTHERS, "ok")
        assert (here["beyond"]["state"], here["beyond"]["jid"]) == ("refused", "")
        assert system.view(SITE)["uplink"]["state"] != "connected"

        system.restart(MASTER)
        above = chain(system, MASTER)
        for name, reaction in above.items():
            # The state of its job is known at the site alone.
            assert {**reaction, "outcomes": [], "job": ""} == {**here[name], "outcomes": [], "job": ""}
            assert outcomes(reaction) == outcomes(here[name])
        (event,) = why(system, MASTER, TAG)[:1]
        (local,) = why(system, SITE, TAG)[:1]
        assert event["site"] == SITE
        for key in ("number", "tag", "data", "stamp", "depth"):
            assert event[key] == local[key]
        assert event["data"]["mount"] == str(disk.folder)

        (behind,) = why(system, MASTER, above["make_room"]["jid"])
        assert behind == event
        told = system.command("reactor", "why", TAG, station=MASTER, status=0).out
        # A picture is no text to be read.
        assert max(map(len, told.splitlines())) < 500
        for words in ("told by lisbon", "make_room: local.file.remove on glob cam-1", "cam-3 of lisbon: ok", "refused"):
            assert words in told
