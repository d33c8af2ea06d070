"""Jobs, for ``bench trust``: a master seals them to a site's group or to one device, which judges and opens each."""

from __future__ import annotations

import secrets

from device_agent.errors import Refused
from device_agent.protocol import bitmap
from device_agent.protocol.jid import JidMaker
from device_agent.protocol.messages import Job
from device_agent.signed_delivery import vouched
from device_agent.trust.deliveries import JobDelivery, job_delivery, read_delivery
from device_agent.trust.replay import next_seq
from device_agent.trust.signed_job import ALL, SALT_BYTES, JobHeader, Order, seal_for_device, seal_for_group
from gateway.bench.trust_fleet import EPOCH, SITE, Fleet, new_keys
from gateway.bench.trust_sizes import of_job
from gateway.bench.trust_turn import Turn, Watch

JOB_SECONDS = 300
PLACES = 5000
"""Devices that the bitmap beside a job to the group has room for."""


class Jobs:
    """A master, and one device of its fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._device = new_keys()
        self._beliefs = fleet.beliefs(self._device)
        self._everyone = bitmap.pack(range(PLACES))
        self._jids = JidMaker()
        self._seq = 0

    def group(self, turn: Turn, watch: Watch) -> None:
        """So many jobs for the whole site."""
        fleet, orders = self._fleet, _orders(turn.count)
        with watch.on("job_seal_group"):
            bodies = [
                seal_for_group(
                    fleet.master.sig, self._header(ALL, EPOCH), order, fleet.group_key, secrets.token_bytes(SALT_BYTES)
                )
                for order in orders
            ]
        payloads = [job_delivery(body, JOB_SECONDS, self._everyone) for body in bodies]
        with watch.on("job_open_group"):
            jobs = list(map(self._open, payloads))
        watch.ok(_alike(jobs, orders), "job_seal_group", "job_open_group")
        watch.made(of_job("group", bodies[0]))

    def single(self, turn: Turn, watch: Watch) -> None:
        """So many jobs for one device."""
        device, orders = self._device, _orders(turn.count)
        with watch.on("job_seal_single"):
            bodies = [
                seal_for_device(self._fleet.master.sig, self._header(device.did, None), order, device.kem.public)
                for order in orders
            ]
        payloads = [job_delivery(body, JOB_SECONDS, None) for body in bodies]
        with watch.on("job_open_single"):
            jobs = list(map(self._open, payloads))
        watch.ok(_alike(jobs, orders), "job_seal_single", "job_open_single")
        watch.made(of_job("single", bodies[0]))

    def _header(self, sub: str, epoch: int | None) -> JobHeader:
        """As ``gateway.jobs.seal`` makes it."""
        now = self._fleet.now
        self._seq = next_seq(self._seq, now)
        return JobHeader(
            sub=sub,
            site=SITE,
            issued=now,
            expires=now + JOB_SECONDS,
            jid=self._jids.next(now),
            seq=self._seq,
            tgt="*",
            epoch=epoch,
        )

    def _open(self, payload: bytes) -> Job:
        """As ``device_agent.guard`` and the device's jobs do it."""
        offered = read_delivery(payload)
        if not isinstance(offered, JobDelivery):
            raise Refused("malformed", "not a job")
        delivery = vouched(offered.job, offered.remaining, self._beliefs, self._fleet.clock.monotonic())
        return delivery.open()[0]


def _orders(count: int) -> list[Order]:
    return [Order(fun="test.echo", arg=[secrets.token_hex(8)], user="bench") for _ in range(count)]


def _alike(jobs: list[Job], orders: list[Order]) -> int:
    return sum((job.fun, job.arg) == (order.fun, order.arg) for job, order in zip(jobs, orders, strict=True))
