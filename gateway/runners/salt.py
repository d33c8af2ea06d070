"""``salt``: functions on devices, from where only runners can be called."""

from __future__ import annotations

from typing import Any, Final

from gateway.calls.call import CallFailed
from gateway.calls.functions import Function
from gateway.calls.running import Running
from gateway.jobs.nodegroups import TypedKind
from gateway.jobs.request import JobRequest

TIMEOUT_SECONDS: Final = 60.0
LONGEST_SECONDS: Final = 3600.0
BEHIND_SECONDS: Final = 60.0


class SaltRunner:
    """The runner."""

    @staticmethod
    def functions() -> list[Function]:
        """What it has. The policy is asked about the job."""
        return [Function("salt.execute", execute, ruled=False, seconds=LONGEST_SECONDS + BEHIND_SECONDS)]


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
    seconds = min(timeout or TIMEOUT_SECONDS, LONGEST_SECONDS)
    request = JobRequest(
        tgt=tgt, tgt_type=tgt_type, fun=fun, arg=arg or [], kwarg=kwarg or {}, expires_seconds=max(1.0, seconds)
    )
    ended = await running.job(request, seconds + BEHIND_SECONDS, key="job")
    said = {device: each for device, each in ended.outcomes.items() if each["outcome"] in {"ok", "failed"}}
    found = {device: each["value"] if each["value"] is not None else each["why"] for device, each in said.items()}
    found |= {device: None for device, each in said.items() if each["outcome"] == "ok" and each["value"] is None}
    if not ended.ok:
        raise CallFailed(found)
    return found
