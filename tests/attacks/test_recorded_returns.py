"""Somebody recorded everything that went over a site's broker, and takes the gateway's disk while the gateway runs.

For two days after a device opened a session its prekey is on that disk, and opens the session to him. Later it is
nowhere: not in the store and not in the log beside it. The same for group keys that were replaced, with which recorded
jobs open. He looks at every file of the state folder as it lies there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from device_agent.errors import Refused
from device_agent.protocol import topics
from device_agent.protocol.messages import Return, Upward, decode_upward
from device_agent.trust.deliveries import JobDelivery, read_delivery
from device_agent.trust.keys import KemKey
from device_agent.trust.session_frames import frame_sid
from device_agent.trust.sessions import PREKEY_SECONDS, read_session
from device_agent.trust.signed_job import open_group, read_job
from gateway.devices.epochs import ROTATE_SECONDS
from gateway.devices.prekeys import RENEW_SECONDS
from tests.peers.broker import Broker, running_broker
from tests.peers.clock import HandClock
from tests.peers.played_device import SECOND, Camera, Job
from tests.peers.site import Scene, opened_scene
from tests.peers.visitor import Visitor, visit
from tests.peers.waiting import until

SECRET = "what the camera saw"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path) as made:
        yield made


@pytest.fixture
async def scene(broker: Broker, tmp_path: Path) -> AsyncIterator[Scene]:
    async with opened_scene(tmp_path / "state", broker.address, HandClock(), working=True) as made:
        yield made


@pytest.fixture
async def thief(broker: Broker) -> AsyncIterator[Visitor]:
    """He hears everything from the beginning."""
    made = await visit(broker.address, "thief")
    await made.subscribe("os/#")
    yield made
    made.leave()


class Found:
    """Where a secret lies on the disk."""

    def __init__(self, folder: Path) -> None:
        self.files = {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}

    def of(self, secret: bytes) -> list[str]:
        """The files that have it. What the key is to be found by he knows: its public half is retained."""
        return [name for name, content in self.files.items() if secret in content]


def disk(scene: Scene) -> Found:
    return Found(scene.gateway.path.parent)


def read_by(thief: Visitor, camera: Camera, prekey: KemKey) -> list[Upward]:
    """What a device said in the sessions that this prekey opens."""
    heard, said = list(thief.heard), []
    for topic, body in heard:
        if topic != camera.up("ses"):
            continue
        opening = read_session(body, site=camera.site)
        try:
            session = opening.opened(camera.keys.key.public, prekey, 0.0)
        except Refused:
            continue
        frames = [payload for where, payload in heard if where == camera.up("f") and frame_sid(payload) == session.sid]
        said += [decode_upward(session.open(frame, camera.up("f"), 0.0)) for frame in frames]
    return said


def ordered_under(thief: Visitor, scene: Scene, camera: Camera, group_key: bytes) -> list[str]:
    """What was ordered in jobs that this group key opens."""
    public, found = scene.gateway.authority.signing.public, []
    where = {topics.group_job(camera.site), topics.device_job(camera.site, camera.did)}
    for topic, payload in thief.heard:
        with suppress(Refused):
            delivery = read_delivery(payload) if topic in where else None
            if isinstance(delivery, JobDelivery):
                found.append(open_group(read_job(delivery.job).verified(public), group_key).fun)
    return found


async def returns(scene: Scene, thief: Visitor, camera: Camera) -> None:
    """A device is given a job by its site and returns something, and the thief hears both."""
    jid = (await scene.issue(camera.name)).job.jid
    await until(lambda: any(job.jid == jid for job in scene.devices.of(Job, camera.name)), what="the job")
    done = Return(jid=jid, fun="test.ping", outcome="ok", retcode=0, value=SECRET, executions=1)
    frame = camera.frame(done)
    await scene.devices.publish(camera.up("f"), frame)
    await until(lambda: (camera.up("f"), frame) in thief.heard, what="his recording")


async def test_what_was_recorded_two_days_ago_opens_with_nothing_on_the_disk_of_a_gateway_that_runs(
    scene: Scene, thief: Visitor
) -> None:
    (camera,) = await scene.join("cam")
    await returns(scene, thief, camera)
    ((private,),) = scene.gateway.look("SELECT private FROM prekeys")
    group_key = scene.gateway.epochs.key

    # While the prekey counts it is on the disk, and what he recorded is his: that is what it is worth.
    assert disk(scene).of(private)
    [seen] = [said for said in read_by(thief, camera, KemKey(private)) if isinstance(said, Return)]
    assert seen.value == SECRET
    assert ordered_under(thief, scene, camera, group_key) == ["test.ping"]

    first = camera.prekey
    scene.clock.move(RENEW_SECONDS)
    await scene.gateway.prekeys.renew()
    await until(lambda: camera.prekey != first, what="the prekey of the day")
    camera.reconnect()
    await scene.devices.join("cam", session=SECOND)
    assert disk(scene).of(private)
    scene.clock.move(PREKEY_SECONDS - RENEW_SECONDS)
    await scene.gateway.prekeys.renew()
    await until(lambda: not disk(scene).of(private), what="the end of it in every file")

    # Of the group keys the newest and the one before are needed; what is older is nowhere.
    assert disk(scene).of(group_key)
    for _ in range(2):
        scene.clock.move(ROTATE_SECONDS)
        await scene.gateway.epochs.look()
    assert scene.gateway.epochs.key_of(1) is None
    await until(lambda: not disk(scene).of(group_key), what="the end of it in every file")
    assert disk(scene).of(scene.gateway.epochs.key)
