"""A station played by a test on a real broker: it lets devices in, says what it is told to, and keeps all it hears.

Its proofs are real (``trusted_site``). Devices are called by their names here, which are their serial numbers.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from device_agent.errors import Refused
from device_agent.mqtt import BrokerAddress, MqttLink
from device_agent.protocol import bitmap, topics
from device_agent.protocol.messages import (
    Beat,
    Confirm,
    Downward,
    EpochWanted,
    Gone,
    Hello,
    Job,
    Reseal,
    Return,
    Running,
    Welcome,
)
from device_agent.protocol.questions import Answer, Question
from device_agent.trust.deliveries import job_delivery
from device_agent.trust.keys import SigningKey
from device_agent.trust.root_list import MASTER_ROLES
from tests.peers.fleet import Fleet
from tests.peers.trusted_site import TrustedSite
from tests.peers.waiting import until


def commanding_fleet(site: str) -> Fleet:
    """A fleet whose masters may run any command."""
    fleet = Fleet(site)
    masters = (fleet.a.as_master([*MASTER_ROLES, "root-shell"]), fleet.b.as_master())
    fleet.next_root(masters=masters)
    return fleet


class PlayedStation:
    """What was heard of each device, in order."""

    def __init__(self, address: BrokerAddress, site: TrustedSite) -> None:
        self.site = site
        self.hellos: dict[str, list[Hello]] = defaultdict(list)
        self.gone: dict[str, list[Gone]] = defaultdict(list)
        self.beats: dict[str, list[Beat]] = defaultdict(list)
        self.running: dict[str, list[str]] = defaultdict(list)
        self.returns: dict[str, dict[str, list[Return]]] = defaultdict(lambda: defaultdict(list))
        self.reseals: list[tuple[str, Reseal]] = []
        self.epochs_wanted: Counter[str] = Counter()
        self.questions: list[tuple[str, Question]] = []
        self.replies: dict[str, Answer] = {}
        self.refused: Counter[str] = Counter()
        self.answers = True
        """Whether those who want to join hear anything."""
        self.confirmed: Callable[[str], object] = str
        """Called with the did of a device that has its answer."""
        self.welcomes = True
        self.opens = True
        """Whether openings are answered."""
        self.beat_seconds = 60.0
        self.link = MqttLink(
            address,
            f"station-{site.site}",
            subscriptions=[topics.station_filter(site.site), topics.enrol_request(site.site)],
            on_message=self._heard,
            on_connected=self.publish_bundle,
            on_lost=lambda: None,
            count=lambda _name: None,
            incoming=65_536,
            name="played-station",
        )
        site.terms = {"port": address.port}
        self.token = site.token(f"{address.host}:{address.port}").text()

    # --- what it says --------------------------------------------------------------------------------------------

    @property
    def indices(self) -> dict[str, int]:
        """The places of the devices, by name."""
        return {self.name(did): place for did, place in self.site.indices.items()}

    def name(self, did: str) -> str:
        return self.site.requests[did].serial

    def did(self, name: str) -> str:
        return next(did for did, request in self.site.requests.items() if request.serial == name)

    async def publish_bundle(self) -> None:
        """Say, retained, whom to believe."""
        await self.link.publish(topics.trust(self.site.site), self.site.bundle(), retain=True)

    async def restart(self) -> None:
        """Be another start of the station, which knows no session."""
        self.site.restart()
        await self.publish_bundle()

    async def say(self, message: Downward, *devices: str) -> None:
        """In the sessions of these devices."""
        dids = map(self.did, devices)
        await self.link.publish_many((self._job_topic(did), self.site.frame(did, message)) for did in dids)

    async def confirm(self, jids: list[str], *devices: str) -> None:
        """To these devices in their sessions, or to every device at once."""
        if devices:
            await self.say(Confirm(jids), *devices)
        else:
            bits = bitmap.pack(self.indices.values())
            await self.link.publish(topics.group_ack(self.site.site), self.site.ack(*jids, bits=bits))

    async def cancel(self, jid: str, *devices: str) -> None:
        """To these devices, or to everybody."""
        await self._spread(self.site.cancel(jid), *devices)

    async def deliver(
        self,
        job: Job,
        *devices: str,
        remaining: float = 300.0,
        bits: bytes | None = None,
        key: SigningKey | None = None,
    ) -> None:
        """A job of master A, sealed for the group: to each of these devices, or one message to all who have a place."""
        if bits is None and not devices:
            bits = bitmap.pack(self.indices.values())
        await self._spread(job_delivery(self.sealed(job, key), remaining, bits), *devices)

    def sealed(self, job: Job, key: SigningKey | None = None, **fields: Any) -> bytes:
        """An ``os-job`` with what a job says; its times are the present ones."""
        said = {
            name: getattr(job, name) for name in ("tgt", "tgt_type", "fun", "arg", "kwarg", "user", "late", "origin")
        }
        return self.site.sealed(int(job.jid), key=key, run_limit=job.run_limit, **{**said, **fields})

    async def _spread(self, payload: bytes, *devices: str) -> None:
        if devices:
            await self.link.publish_many((self._job_topic(self.did(device)), payload) for device in devices)
        else:
            await self.link.publish(topics.group_job(self.site.site), payload)

    def _job_topic(self, did: str) -> str:
        return topics.device_job(self.site.site, did)

    # --- what it waits for ---------------------------------------------------------------------------------------

    async def joined(self, devices: Sequence[str], times: int = 1) -> None:
        """Wait until each of these devices has said hello so often."""
        await until(
            lambda: all(len(self.hellos[device]) >= times for device in devices),
            what=f"hello number {times} of {devices}",
        )

    async def returned(self, jid: str, device: str, times: int = 1) -> list[Return]:
        """Wait for what a device returned of a job; every return it sent."""
        await until(
            lambda: len(self.returns[jid][device]) >= times, what=f"return number {times} of {device} for {jid}"
        )
        return self.returns[jid][device]

    # --- what it hears -------------------------------------------------------------------------------------------

    async def _heard(self, topic: str, payload: bytes) -> None:
        try:
            if topic == topics.enrol_request(self.site.site):
                await self._asked(payload)
            elif topic.endswith("/ses"):
                await self._opening(payload)
            elif topic.endswith("/bye"):
                self._bye(payload)
            else:
                await self._frame(topics.sender(topic), payload)
        except Refused as refused:
            self.refused[refused.reason] += 1

    async def _asked(self, payload: bytes) -> None:
        answered = self.site.answered(payload)
        if answered is None:
            self.confirmed(self.site.confirmed[-1])
        elif self.answers:
            did, answer = answered
            await self.link.publish(topics.enrol_response(self.site.site, did), answer)

    async def _opening(self, payload: bytes) -> None:
        if self.opens:
            did, word = self.site.opened(payload)
            await self.link.publish(topics.device_sok(self.site.site, did), word)

    def _bye(self, payload: bytes) -> None:
        did, nonce = self.site.last_words(payload)
        openings = self.site.openings[did]
        if openings and openings[-1].nonce == nonce:
            hello = self.hellos[self.name(did)][-1]
            self.gone[self.name(did)].append(Gone(hello.session, "lost"))

    async def _frame(self, did: str, payload: bytes) -> None:
        if did not in self.site.sessions:
            raise Refused("unknown_session", did)
        message, device = self.site.heard(did, payload), self.name(did)
        match message:
            case Hello():
                self.hellos[device].append(message)
                if self.welcomes:
                    await self.say(Welcome(message.session, self.site.indices[did], self.beat_seconds), device)
            case Gone():
                self.gone[device].append(message)
            case Beat():
                self.beats[device].append(message)
            case Running():
                self.running[device].append(message.jid)
            case Return():
                self.returns[message.jid][device].append(message)
            case Reseal():
                self.reseals.append((device, message))
            case EpochWanted():
                self.epochs_wanted[device] += 1
            case Question():
                self.questions.append((device, message))
                if message.about in self.replies:
                    await self.say(replace(self.replies[message.about], number=message.number), device)


@asynccontextmanager
async def played_station(address: BrokerAddress, site: TrustedSite | None = None) -> AsyncIterator[PlayedStation]:
    """A station that is connected, for as long as the block lasts."""
    station = PlayedStation(address, site or TrustedSite(commanding_fleet("lisbon")))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(station.link.run())
        try:
            await until(lambda: station.link.state.connected, what="the played station's connection")
            yield station
        finally:
            running.cancel()


def a_job(number: int, **fields: Any) -> Job:
    """A job for everyone."""
    given = {"tgt": "*", "fun": "test.ping", "user": "ops", "issued": 0.0, "expires": 300.0, **fields}
    return Job(jid=f"{number:020d}", **given)
