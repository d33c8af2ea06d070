"""Somebody puts a copy of a camera's flash into another machine: as soon as both are live there are none.

Which of the two is real only a person knows, so neither is heard until one has decided.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from device_agent.identity import IdentityFile
from device_agent.protocol.messages import Hello
from gateway.devices.openings import DEVICE_SECONDS
from tests.peers.broker import Broker, running_broker
from tests.peers.clock import HandClock
from tests.peers.fleet import SITE
from tests.peers.played_device import SECOND, Camera
from tests.peers.site import Scene, opened_scene
from tests.peers.system import System, assert_exactly_once, whole_system
from tests.peers.tap import lets_in
from tests.peers.waiting import until

CAMERA, NEIGHBOUR = "cam-gate", "cam-yard"


# --- in real processes -----------------------------------------------------------------------------------------------


@pytest.fixture
def system() -> Iterator[System]:
    with whole_system() as made:
        made.add_gateway(SITE)
        for name in (CAMERA, NEIGHBOUR):
            made.add_agent(name, SITE)
        made.present(2)
        yield made


def events(system: System, tag: str) -> list[dict[str, Any]]:
    """The events that the station has kept under a tag."""
    _, body = system.ask(SITE, "GET", f"/events?tag={tag}&history=1000&follow=false")
    return [json.loads(line) for line in body.splitlines() if line.strip()]


@pytest.mark.system
@pytest.mark.timeout(300)
def test_two_live_copies_are_seen_and_neither_is_heard_until_an_operator_decides(system: System) -> None:
    system.stop(CAMERA)
    shutil.copytree(system.folder / CAMERA, system.folder / "copy")
    system.add_agent(CAMERA, SITE)
    settings = json.loads((system.folder / f"{CAMERA}.yaml").read_text())
    copy = system._write("copy", {**settings, "state_dir": str(system.folder / "copy")})
    system.start("copy", ["agent", "run", "--config", copy])

    [device] = wait_for_quarantine(system)
    identity = IdentityFile(system.folder / "copy").load()
    assert identity is not None
    assert (device["did"], device["detail"]) == (
        identity.did,
        "two live sessions of one identity: it may have been cloned",
    )
    tag = f"outstation/device/{CAMERA}/cloned"
    system.until(lambda: events(system, tag), "the event")
    assert [(event["data"]["id"], event["data"]["did"]) for event in events(system, tag)] == [(CAMERA, identity.did)]
    port, word = system.ports[SITE], {"username": identity.did, "password": identity.password}
    system.until(lambda: not lets_in(port, **word), "the broker lets neither in")
    assert not system.is_here(CAMERA, SITE)
    assert_exactly_once(system.ended(SITE, system.issue(SITE, NEIGHBOUR, "test.ping")), [NEIGHBOUR])
    listed = system.command("keys", "list", "--state", "quarantined", station=SITE, status=0).out
    assert CAMERA in listed
    assert "cloned" in listed
    # Both were stolen, as far as anybody knows: the real one joins anew, with an identity that nobody has copied.
    system.command("keys", "revoke", CAMERA, "--why", "cloned", "--yes", station=SITE, status=0)
    for name in (CAMERA, "copy"):
        system.stop(name)
    shutil.rmtree(system.folder / CAMERA)
    (system.folder / f"{CAMERA}.token").unlink()
    system.add_agent(CAMERA, SITE)
    system.present(2)
    assert_exactly_once(system.ended(SITE, system.issue(SITE, CAMERA, "test.ping")), [CAMERA])


def wait_for_quarantine(system: System) -> list[dict[str, Any]]:
    """The devices that are put out until somebody decides."""

    def found() -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = system.view(SITE, "/keys?kind=device&state=quarantined")["keys"]
        return listed

    system.until(found, "the two are seen")
    return found()


# --- on a real broker, with a thief who listens ----------------------------------------------------------------------


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path) as made:
        yield made


@pytest.fixture
async def scene(tmp_path: Path, broker: Broker) -> AsyncIterator[Scene]:
    async with opened_scene(tmp_path, broker.address, HandClock()) as made:
        yield made


def connect(camera: Camera, before: bytes) -> bytes:
    """A camera connects that opened this session last, as far as it says; its opening."""
    camera.reconnect()
    camera.nonce = before + os.urandom(8)
    return camera.open()


def sid(camera: Camera) -> bytes:
    assert camera.opening is not None
    return camera.opening.session.sid


async def arrives(scene: Scene, camera: Camera, before: bytes) -> None:
    """A camera opens a session some time after the one before, and the station takes it."""
    scene.clock.move(DEVICE_SECONDS)
    count = scene.gateway.metrics.counters["sessions_opened"]
    await scene.devices.publish(camera.up("ses"), connect(camera, before))
    await until(lambda: scene.gateway.metrics.counters["sessions_opened"] > count, what="the session")


async def test_a_copy_that_names_the_sessions_it_overheard_is_betrayed_by_the_real_one(scene: Scene) -> None:
    """Nothing that the copy says gives it away; the real camera does not know of the session that the copy opened."""
    (camera,) = await scene.join(CAMERA)
    copy = Camera(camera.keys, scene.devices.fleet.fingerprint, scene.clock)
    copy.anchor, copy.prekey = camera.anchor, camera.prekey
    await arrives(scene, camera, sid(camera))
    own = sid(camera)
    await arrives(scene, copy, own)
    await scene.devices.publish(camera.up("ses"), connect(camera, own))
    await scene.refuses("cloned", CAMERA)
    await until(lambda: state(scene) == "quarantined", what="the quarantine")
    for each in (camera, copy):
        await scene.devices.publish(each.up("ses"), connect(each, os.urandom(8)))
    await scene.refuses("quarantined", CAMERA, times=2)
    # Whoever is real is heard again when an operator has decided, whatever it opened last.
    scene.gateway.desk.change(camera.did, state="accepted")
    await scene.devices.publish(camera.up("ses"), connect(camera, own))
    await until(lambda: camera.ok, what="the word on its session")
    await scene.devices.say(CAMERA, Hello(SECOND, "0.1.0", {"name": CAMERA}))
    await until(lambda: scene.devices.welcomed(CAMERA, SECOND), what="the welcome")


async def test_a_camera_that_comes_and_goes_is_no_clone_whatever_was_lost_on_the_way(scene: Scene) -> None:
    (camera,) = await scene.join(CAMERA)
    await arrives(scene, camera, sid(camera))
    # The station took the last one, and its word did not arrive: the next names it nevertheless.
    await arrives(scene, camera, sid(camera))
    # This one did not arrive at all, and the one after it names what nobody knows.
    connect(camera, sid(camera))
    await arrives(scene, camera, sid(camera))
    # It opens several on one connection: they have one nonce, which names the session before them all.
    await scene.devices.publish(camera.up("ses"), camera.open())
    await until(lambda: camera.ok, what="the second session on one connection")
    await arrives(scene, camera, sid(camera))
    # It was started anew, and does not know what it opened before.
    await arrives(scene, camera, os.urandom(8))
    assert scene.refused() == {}
    assert state(scene) == "accepted"


def state(scene: Scene) -> str:
    """What the station thinks of the camera."""
    [camera] = [each for each in scene.devices.by_name.values() if each.name == CAMERA]
    device = scene.gateway.desk.by_did(camera.did)
    assert device is not None
    return device.state
