"""A job before it is accepted: made of a request, and held against the checks that every receiver makes."""

from __future__ import annotations

from typing import Final

from device_agent.errors import Refused, UsageInvalid
from device_agent.protocol import limits
from device_agent.protocol.messages import Job, TargetType, check_plain, decode_job, encode
from device_agent.protocol.several import title
from gateway.jobs.request import JobRequest

JOB_BYTES: Final = limits.MESSAGE_BYTES - 8 * 1024
"""A job must fit into a message with its bitmap around it."""


def draft_of(
    request: JobRequest,
    target: tuple[str, TargetType],
    *,
    user: str,
    jid: str,
    issued: float,
    seconds: float,
    origin: str,
) -> Job:
    """Return the job that a request asks for.

    Args:
        request: With its functions as they are signed (``request.signed``).
        target: The target and its kind, with nodegroups in their places.
        user: The user that the job names.
        jid: The id of the job.
        issued: Wall time by which devices judge it, in seconds.
        seconds: How long the job lives.
        origin: ``salt`` if a Salt master ordered the job, which cannot sign it; empty otherwise.
    """
    tgt, tgt_type = target
    return Job(
        jid=jid,
        tgt=tgt,
        tgt_type=tgt_type,
        fun=request.fun,
        arg=request.arg,
        kwarg=request.kwarg,
        user=user,
        issued=issued,
        expires=issued + seconds,
        late=request.late,
        run_limit=limits.RUN_LIMIT_SECONDS if request.run_limit is None else request.run_limit,
        why=request.why,
        sealed=request.sealed,
        origin=origin,
    )


def checked(draft: Job) -> bytes:
    """The job as bytes, after the same checks that every receiver will make. Raises ``UsageInvalid``."""
    try:
        body = encode(draft)
        if len(body) > JOB_BYTES:
            raise Refused("oversized", f"{len(body)} bytes with its target and arguments, at most {JOB_BYTES}")
        check_plain(draft.arg)
        decode_job(body)
    except (Refused, OverflowError, UnicodeEncodeError) as refusal:
        raise UsageInvalid(
            "this job cannot be sent",
            error_id="job.invalid",
            found=f"{title(draft.fun, draft.arg, draft.kwarg)[:130]}: {refusal}",
            allowed="module.function with arguments that JSON can carry",
            hint="outstation run TARGET sys.list_functions",
        ) from None
    return body
