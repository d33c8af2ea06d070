"""What a Salt master is told in the place of an answer that it does not take.

A stock master stores the definition of a job that it did not order before it says that it has the answers, and what it
cannot store of them is in its log alone. So what is told instead has a definition as well where the answer had one: a
master whose disk is full takes neither, and nothing is let go.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from device_agent.errors import Refused
from gateway.jobs.record import NOT_RUN_RETCODE
from gateway.salt.not_taken import NOT_TAKEN
from upstream.salt.ports import DeviceAnswer, NotConfirmed, ReturnsOfJob, SaltAbove

THERE_SECONDS: Final = 15.0


def plainly(entry: ReturnsOfJob) -> ReturnsOfJob:
    """The same answers, with nothing in the definition of their job but its name and who answered."""
    if not entry.load:
        return entry
    load = {"jid": entry.jid, "fun": entry.fun, "arg": [], "tgt": sorted(entry.answers), "tgt_type": "list", "ret": ""}
    return replace(entry, load=load)


def in_its_place(entry: ReturnsOfJob) -> ReturnsOfJob:
    """Answers that say that those of the devices were not taken, with nothing in them that a device or a job said."""
    said = {
        device: DeviceAnswer(
            f"{NOT_TAKEN}: the master did not take what this device returned",
            retcode=answer.retcode or NOT_RUN_RETCODE,
            success=False,
        )
        for device, answer in entry.answers.items()
    }
    return replace(plainly(entry), answers=said)


async def taken_after_all(above: SaltAbove, entries: Sequence[ReturnsOfJob]) -> bool:
    """Whether a master that did not take answers takes them now that it has answered something else.

    It may have been starting anew each time, and be sound by now. Raises what ``SaltAbove.request`` and ``returns`` do
    while it is not.
    """
    await above.request("_file_envs", {}, patience=THERE_SECONDS)
    with suppress(NotConfirmed, Refused):
        await above.returns(entries)
        return True
    return False


async def told_otherwise(above: SaltAbove, entries: Sequence[ReturnsOfJob]) -> bool:
    """Whether the master has the answers themselves now; else it was told others in their place.

    Raises what ``SaltAbove.returns`` does when it takes neither.
    """
    if any(entry.load for entry in entries):
        with suppress(NotConfirmed, Refused):
            await above.returns([plainly(entry) for entry in entries])
            return True
    await above.returns([in_its_place(entry) for entry in entries])
    return False
