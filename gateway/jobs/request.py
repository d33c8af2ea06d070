"""What an operator asks for when he wants a job, and what of it stays in the job beside what is signed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from device_agent.errors import Refused, UsageInvalid
from device_agent.protocol import several
from device_agent.protocol.messages import TYPED_CHARACTERS, Job, Late
from gateway.jobs.nodegroups import TypedKind
from gateway.store.writer import Statement

Beside = Callable[[str], Sequence[Statement]]
"""What is written in the commit that accepts a job, given its jid."""

Returning = (
    Annotated[str, Meta(max_length=512)]
    | Annotated[list[Annotated[str, Meta(min_length=1, max_length=64)]], Meta(max_length=16)]
)
"""Where the returns of a job are sent as well: names with commas between, as Salt has them, or a list."""


@dataclass(frozen=True)
class SentOn:
    """The returners of a job by their names, and what is written in the commit that accepts it."""

    names: tuple[str, ...]
    beside: Beside


@dataclass(frozen=True)
class Ordered:
    """An order that came with a jid, from an ``origin`` that signs nothing itself, such as a Salt master.

    ``refused`` are devices that whoever gave it may not order anything like it, and why.
    """

    origin: str
    jid: str
    refused: Mapping[str, str] = field(default_factory=dict)


class Offered(Protocol):
    """Who wants to know that a master gave us a job."""

    def __call__(self, master: str, jid: str, *, again: bool) -> None:
        """``again``: it was known here."""


async def no_files(_: Job) -> str:
    """Until there is somebody who knows files."""
    return ""


def no_returners(said: Returning) -> SentOn | None:
    """Until there are returners. Raises ``UsageInvalid`` when one is asked for."""
    if said:
        raise UsageInvalid("this station has no returners", error_id="returner.unknown", where="ret", found=str(said))
    return None


def without_missing(returning: Callable[[Returning], SentOn | None], said: Returning) -> tuple[list[str], str]:
    """The returners of these that are here, and a sentence about the others; empty where there are none.

    A returner is an extra: where no operator waits for an answer, one that is not here does not stop the job.
    """
    words = said.split(",") if isinstance(said, str) else said
    here: list[str] = []
    missing: list[str] = []
    allowed = hint = ""
    for name in dict.fromkeys(word.strip() for word in words if word.strip()):
        try:
            returning([*here, name])
        except UsageInvalid as error:
            missing.append(name[:64])
            allowed, hint = error.allowed or "none", error.hint or ""
        else:
            here.append(name)
    if not missing:
        return here, ""
    what = f"the job runs without the returners that are not here: {', '.join(missing)}; here are {allowed}"
    return here, f"{what}; try: {hint}" if hint else what


class JobRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator asks for. Times are seconds; None means the default for ``late``.

    ``fun`` may be several names with commas between; ``arg`` then has a list for each, as Salt writes them.
    """

    tgt: str
    fun: str
    tgt_type: TypedKind = "glob"
    delimiter: Annotated[str, Meta(min_length=1, max_length=1)] = ":"
    arg: list[Any] = []
    kwarg: dict[str, Any] = {}
    late: Late = "drop"
    expires_seconds: float | None = None
    run_limit: float | None = None
    user: str | None = None
    why: str = ""
    sealed: bool = False
    ret: Returning = []


def signed(request: JobRequest) -> JobRequest:
    """The request with its functions as they are signed. Raises ``UsageInvalid``."""
    if several.SEVERAL not in request.fun and "," not in request.fun:
        return request
    allowed = "module.function,module.function with a list of arguments for each in arg"
    try:
        if request.kwarg:
            raise Refused("malformed", "named arguments of several functions stand in the lists, each as in Salt")
        if request.sealed:
            allowed = "one function in a sealed job"
            raise Refused("not_alone", "the stations on the way of a sealed job are to know what it calls")
        arg = several.of_salt(request.fun.split(","), request.arg)
        several.calls(several.SEVERAL, arg, {})
    except Refused as refused:
        raise UsageInvalid(
            "these functions cannot be one job",
            error_id="job.invalid",
            where="fun",
            found=f"{request.fun[:130]}: {refused.detail}",
            allowed=allowed,
        ) from None
    return replace(request, fun=several.SEVERAL, arg=arg, kwarg={})


def with_typed(job: Job, request: JobRequest) -> Job:
    """The job with what was typed, where something else is signed."""
    if (job.tgt, job.tgt_type) == (request.tgt, request.tgt_type):
        return job
    typed = request.tgt
    if len(typed) > TYPED_CHARACTERS:
        typed = f"{typed[: TYPED_CHARACTERS - 1]}…"
    return replace(job, typed=typed, typed_type=request.tgt_type)
