"""A station with a policy and people who ask it: rooms on a real file, behind a socket and a port with tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, ClassVar, cast

from device_agent.clock import Clock
from device_agent.protocol.links import Answered, Parcel
from device_agent.protocol.messages import Hello, Job, decode_job
from gateway.api.audit import AuditApi
from gateway.api.fire import FireApi
from gateway.api.jobs import JobsApi
from gateway.api.keys import KeysApi
from gateway.api.listener import Listen
from gateway.api.operation import Operation
from gateway.api.operators import OperatorsApi
from gateway.api.server import ApiServer
from gateway.audit.views import AuditViews
from gateway.devices.policy import Policy, Role
from gateway.devices.policy_file import load_policy
from gateway.jobs.open_jobs import OpenJob
from gateway.jobs.seal import Sealer
from gateway.rooms import Rooms
from tests.peers.clock import HandClock
from tests.peers.database import opened_rooms
from tests.peers.station import SECONDS, Heard

DAY_SECONDS = 86_400.0


class OpenSealer:
    """Seals nothing: who may do what is tested apart from who can read it."""

    def __init__(self, clock: Clock) -> None:
        self.now = clock.wall

    def signs_for_sites(self) -> bool:
        return True

    def longest(self) -> float | None:
        return None

    def may_issue(self, job: Job, *, by_name: bool = False) -> None:
        """Every device would take it."""

    def check(self, job: Job, sealed: Iterable[object]) -> None:
        """All that comes is taken."""

    def for_devices(self, opened: OpenJob, names: Iterable[str]) -> Parcel:
        return Parcel(opened.body, ())

    def for_sites(self, opened: OpenJob, leaves: Sequence[object]) -> Parcel:
        return Parcel(opened.body, ())


class Link:
    """A downlink that keeps what it is given."""

    name: ClassVar[str] = "kept"

    def __init__(self) -> None:
        self.delivered: list[tuple[str, str]] = []
        self.cancelled: list[tuple[str, str]] = []

    async def deliver(self, parcel: Parcel, remaining: float, names: Sequence[str]) -> None:
        self.delivered += [(decode_job(parcel.definition).jid, name) for name in names]

    async def cancel(self, jid: str, names: Sequence[str]) -> None:
        self.cancelled += [(jid, name) for name in names]

    async def confirm(self, answered: Answered) -> None:
        """Nobody asks."""


class Office:
    """The rooms, their links, and whoever asks by the port."""

    def __init__(self, rooms: Rooms, socket: Path, port: Callable[[], int]) -> None:
        self.rooms = rooms
        self.socket = socket
        self.devices = Link()
        self.sites = Link()
        self._port = port
        self._tokens: dict[tuple[str, Role | None], str] = {}

    def here(self, *names: str) -> None:
        """These devices say hello."""
        for place, name in enumerate(names):
            self.rooms.registry.hello("mqtt", name, Hello(f"{place:016d}", "0", {}))

    async def ask(
        self, user: str, method: str, where: str, body: Any = None, *, role: Role | None = None, token: str = ""
    ) -> Heard:
        """One request by the port in the name of a user, whose role the policy decides unless the token has one."""
        if not token and (user, role) not in self._tokens:
            text, _ = await self.rooms.tokens.make(user, role, DAY_SECONDS, "test")
            self._tokens[user, role] = text
        headers = {"Authorization": f"Bearer {token or self._tokens[user, role]}"}
        sent = None if body is None else json.dumps(body).encode()
        return await asyncio.to_thread(port_asked, self._port(), method, where, sent, headers)

    async def run(self, user: str, fun: str = "test.ping", tgt: str = "*", **changed: Any) -> Heard:
        """Issue a job."""
        return await self.ask(user, "POST", "/jobs", {"tgt": tgt, "fun": fun, **changed})


def port_asked(port: int, method: str, where: str, body: bytes | None, headers: dict[str, str]) -> Heard:
    """One request to a plain port of this machine."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=SECONDS)) as connection:
        connection.request(method, where, body=body, headers=headers)
        with connection.getresponse() as response:
            return Heard(response.status, dict(response.getheaders()), response.read())


def policy_of(folder: Path, text: str) -> Policy:
    """A policy as a file says it."""
    path = folder / "policy.yaml"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)
    return load_policy(path)


@asynccontextmanager
async def an_office(
    folder: Path,
    policy: str = "",
    *sites: str,
    name: str = "lisbon",
    clock: Clock | None = None,
    masters: bool = False,
) -> AsyncIterator[Office]:
    """A station with a policy, its parts at work, with these sites accepted below it."""
    failure: BaseException | None = None
    async with AsyncExitStack() as stack:
        try:
            yield await _opened(stack, folder, policy, sites, name, clock or HandClock(), masters=masters)
        except Exception as error:  # noqa: BLE001 - raised below, out of the groups of a dozen parts
            failure = error
    if failure is not None:
        raise failure


async def _opened(
    stack: AsyncExitStack, folder: Path, policy: str, sites: Sequence[str], name: str, clock: Clock, *, masters: bool
) -> Office:
    rooms = await stack.enter_async_context(
        opened_rooms(folder / "state", name=name, clock=clock, masters=masters, working=True)
    )
    for room in (rooms.acceptance, rooms.delivery, rooms.branches):
        room._sealer = cast("Sealer", OpenSealer(clock))
    if policy:
        rooms.policies.policy = policy_of(folder, policy)
    for number, site in enumerate(sites):
        key = f"{number:040d}"
        if not rooms.site_keys.known(key):
            await rooms.site_keys.judge(site, key, "192.0.2.1")
            await rooms.site_keys.accept(site, None)
    stopping, path = asyncio.Event(), folder / "api.sock"
    operations = _operations(rooms, stopping)
    server = ApiServer(path, operations, on_stop=stopping.set, door=rooms.door, listen=Listen("127.0.0.1:0"))
    office = Office(rooms, path, lambda: server.port)
    rooms.downlinks |= {"mqtt": office.devices, "sites": office.sites}
    await stack.enter_async_context(server)
    return office


def _operations(rooms: Rooms, stopping: asyncio.Event) -> list[Operation]:
    """The nouns that roles are about."""
    jobs = JobsApi(
        acceptance=rooms.acceptance,
        delivery=rooms.delivery,
        views=rooms.views,
        open_jobs=rooms.open_jobs,
        stopping=stopping,
        permission=rooms.permission,
    )
    keys = KeysApi(
        site=rooms.facts.box().settings.name,
        site_keys=rooms.site_keys,
        revoke_site=rooms.fleet_revocation.revoke_site,
        keys=rooms.keys,
        enrollment=None,
        audit=rooms.audit,
    )
    return [
        *jobs.operations(),
        *AuditApi(AuditViews(rooms.reader)).operations(),
        *FireApi(bus=rooms.bus, permission=rooms.permission, audit=rooms.audit).operations(),
        *OperatorsApi(holder=rooms.policies, tokens=rooms.tokens, audit=rooms.audit).operations(),
        *keys.operations(),
    ]
