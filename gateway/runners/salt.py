"""``salt``: functions on devices, from where only runners can be called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from device_agent.errors import OutstationError
from gateway.calls.call import CallFailed
from gateway.calls.functions import Function
from gateway.calls.running import Running
from gateway.devices.policy import Operator
from gateway.jobs.nodegroups import TypedKind
from gateway.jobs.request import JobRequest

TIMEOUT_SECONDS: Final = 60.0
LONGEST_SECONDS: Final = 3600.0
BEHIND_SECONDS: Final = 60.0


class SaltRunner:
    """The runner."""

    def __init__(self, refusal: Callable[[JobRequest, Operator], OutstationError | None]) -> None:
        """``refusal`` tells why the station would refuse a job to an operator."""
        self._refusal = refusal

    def functions(self) -> list[Function]:
        """What it has. The policy is asked about the job."""
        seconds = LONGEST_SECONDS + BEHIND_SECONDS
        return [Function("salt.execute", execute, ruled=False, seconds=seconds, refusal=self.refusal)]

    def refusal(self, operator: Operator, *arg: Any, **kwarg: Any) -> OutstationError | None:
        """Return why the job of a call would be refused; None if it would be taken."""
        return self._refusal(_job(*arg, **kwarg), operator)


def _job(
    tgt: str,
    fun: str,
    arg: list[Any] | None = None,
    timeout: float | None = None,
    tgt_type: TypedKind = "glob",
    ret: str = "",  # noqa: ARG001 - ``execute`` has it
    kwarg: dict[str, Any] | None = None,
) -> JobRequest:
    """The job of a call with these arguments of ``execute``."""
    return JobRequest(
        tgt=tgt,
        tgt_type=tgt_type,
        fun=fun,
        arg=arg or [],
        kwarg=kwarg or {},
        expires_seconds=max(1.0, _seconds(timeout)),
    )


def _seconds(timeout: float | None) -> float:
    return min(timeout or TIMEOUT_SECONDS, LONGEST_SECONDS)


async def execute(
    running: Running,
    tgt: str,
    fun: str,
    arg: list[Any] | None = None,
    timeout: float | None = None,
    tgt_type: TypedKind = "glob",
    ret: str = "",
    kwarg: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Run a function on devices, and return what each that ran it returned.

    CLI example: ``outstation runner salt.execute 'cam-*' test.ping``
    """
    if ret:
        raise CallFailed("ret has no meaning here: what a job returned is on this station, and in its events")
    request = _job(tgt, fun, arg, timeout, tgt_type, ret, kwarg)
    ended = await running.job(request, _seconds(timeout) + BEHIND_SECONDS, key="job")
    said = {device: each for device, each in ended.outcomes.items() if each["outcome"] in {"ok", "failed"}}
    found = {device: each["value"] if each["value"] is not None else each["why"] for device, each in said.items()}
    found |= {device: None for device, each in said.items() if each["outcome"] == "ok" and each["value"] is None}
    if not ended.ok:
        raise CallFailed(found)
    return found
