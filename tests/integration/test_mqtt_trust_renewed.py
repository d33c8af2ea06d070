"""A retained ``trust`` message that is deleted at the broker comes back without a change or a new connection."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from device_agent.mqtt import MqttLink
from device_agent.protocol import topics
from gateway.downlinks import mqtt
from tests.peers.broker import Broker
from tests.peers.clock import HandClock
from tests.peers.fleet import SITE
from tests.peers.site import opened_scene
from tests.peers.waiting import until


async def test_a_deleted_trust_message_is_published_again(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt, "BUNDLE_SECONDS", 0.2)
    heard: list[bytes] = []

    async def nothing() -> None:
        return

    client = MqttLink(
        broker.address,
        "administrator",
        subscriptions=[topics.trust(SITE)],
        on_message=lambda _, payload: heard.append(payload),
        on_connected=nothing,
        on_lost=lambda: None,
        count=lambda _: None,
    )
    async with opened_scene(tmp_path / "state", broker.address, HandClock()) as scene, asyncio.TaskGroup() as group:
        await scene.devices.trusted([])
        running = group.create_task(client.run())
        await until(lambda: heard, what="the retained message")
        genuine = heard[-1]
        await client.publish(topics.trust(SITE), b"", retain=True)
        await until(lambda: b"" in heard, what="the deletion")
        deleted = heard.index(b"")
        await until(lambda: genuine in heard[deleted:], what="the message that is published again")
        running.cancel()
