"""What an entry of a station's schedule makes: a job for devices, one for the station itself, or a call of a runner."""

from __future__ import annotations

from typing import Final, cast

from device_agent.protocol.stations import station_device
from device_agent.schedule.entries import Entry
from device_agent.trust.reach import FUNCTIONS
from gateway.calls.call import CallRequest, Kind
from gateway.calls.functions import Functions
from gateway.jobs.nodegroups import TypedKind
from gateway.jobs.request import JobRequest

EXPIRES_SECONDS: Final = 300.0
"""So long the job of an entry waits for a device that is away, unless the entry says otherwise."""


def call_of(entry: Entry, functions: Functions) -> CallRequest | None:
    """The call of an entry, if it is one: by its prefix, or a runner that no device has, as Salt's masters read it."""
    kind: Kind = "wheel" if entry.function.startswith("wheel.") else "runner"
    bare = entry.function.removeprefix("runner.").removeprefix("wheel.")
    meant = bare != entry.function
    if not meant and not entry.target:
        meant = bare not in FUNCTIONS and bare in functions.of("runner")
    return CallRequest(kind=kind, fun=bare, arg=entry.arg, kwarg=entry.kwarg) if meant else None


def job_of(entry: Entry, site: str, why: str) -> JobRequest:
    """The job of an entry; without a target it is the station's own."""
    return JobRequest(
        tgt=entry.target or station_device(site),
        tgt_type=cast("TypedKind", entry.target_type) if entry.target else "list",
        fun=entry.function,
        arg=entry.arg,
        kwarg=entry.kwarg,
        late="run",
        expires_seconds=entry.expires_seconds or EXPIRES_SECONDS,
        why=why,
    )
