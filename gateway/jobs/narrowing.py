"""A job's target, limited to the devices that a policy rule grants."""

from __future__ import annotations

import re
from fnmatch import translate

from msgspec.structs import replace

from device_agent.protocol.globs import WILDCARDS
from device_agent.protocol.messages import Job
from device_agent.protocol.targeting import OPERATORS

_plain_word = re.compile(r"[A-Za-z0-9_.:*?\[\]!-]+")


def named_devices(job: Job) -> list[str]:
    """The ids that the target itself names: they are judged whether or not they are known."""
    if job.tgt_type == "list":
        return [name for name in map(str.strip, job.tgt.split(",")) if name]
    return [] if job.tgt_type != "glob" or WILDCARDS.intersection(job.tgt) else [job.tgt]


def narrowed_to(job: Job, within: tuple[str, ...]) -> Job | None:
    """The job for no other devices than these globs match; None when its target cannot be put so."""
    if not within or named_devices(job) or (job.tgt_type == "glob" and job.tgt in within):
        return job
    match job.tgt_type:
        case "glob":
            target = _term(job.tgt)
        case "pcre":
            target = f"E@{job.tgt}"
        case "grain":
            target = f"G@{job.tgt}"
        case "grain_pcre":
            target = f"P@{job.tgt}"
        case "ipcidr":
            target = f"S@{job.tgt}"
        case "range":
            target = f"R@{job.tgt}"
        case "pillar":
            target = f"I@{job.tgt}"
        case "pillar_pcre":
            target = f"J@{job.tgt}"
        case "pillar_exact":
            # There is no word for it in a compound.
            return None
        case _:
            target = ""
    if len(target.split()) > 1:
        return None
    limits = " or ".join(map(_term, within))
    return replace(job, tgt=f"( {target or job.tgt} ) and ( {limits} )", tgt_type="compound")


def _term(glob: str) -> str:
    """A glob as one word of a compound target, also where it would read as something else there."""
    return glob if _plain_word.fullmatch(glob) and glob not in OPERATORS else f"E@{translate(glob)}"
