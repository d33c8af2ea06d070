"""What a device says of its jobs when they are over: remembered, sent, and sent again until the station confirms it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET

from device_agent.clock import Clock
from device_agent.ended import Ended
from device_agent.outbox import Journal, Place
from device_agent.protocol import limits
from device_agent.protocol.messages import DeviceOutcome, Return, encode

RETURN_AGAIN_SECONDS = 5.0
RETURN_AGAIN_CEILING_SECONDS = 60.0
RETURNS_PER_TICK = 64
EXECUTIONS_COUNTED = 4096
NOT_RUN_RETCODE = 1

Send = Callable[[bytes], None]
"""Hands over an encoded message to the station."""


class Returns:
    """The returns of one device. Times are monotonic seconds."""

    __slots__ = ("_clock", "_journal", "_resend", "_send", "executions")

    def __init__(self, journal: Journal, send: Send, clock: Clock) -> None:
        self.executions: dict[str, int] = {}
        """How often each of the newest jobs was run by this process."""
        self._journal = journal
        self._send = send
        self._clock = clock
        self._resend: dict[str, tuple[float, float]] = {}

    def count_execution(self, jid: str) -> int:
        """A job begins: how often it has begun here."""
        count = self.executions.get(jid, 0) + 1
        self.executions[jid] = count
        if len(self.executions) > EXECUTIONS_COUNTED:
            del self.executions[next(iter(self.executions))]
        return count

    async def ended(self, jid: str, fun: str, ended: Ended, executions: int, duration: float) -> None:
        """A job that ran is over. It is on disk, or kept in memory and tried again, before it is said."""
        outbox, sequence = self._journal.place()
        ran = Return(
            jid=jid,
            fun=fun,
            outcome=ended.outcome,
            retcode=ended.retcode,
            value=ended.value,
            why=ended.why,
            duration=max(0.0, duration),
            # What the loader refused was looked up, and did not run.
            executions=0 if ended.outcome in {"refused", "unreachable"} else executions,
            outbox=outbox,
            sequence=sequence,
            retcodes=UNSET if ended.retcodes is None else ended.retcodes,
        )
        body = encode(ran)
        await self._journal.done(jid, body, sequence)
        self._say(jid, body)

    def answer(self, jid: str, fun: str, outcome: DeviceOutcome, why: str) -> None:
        """The answer to a job that will not run. It is remembered, so that a repeat does not run either."""
        full = self._journal.full
        outbox, sequence = (b"", 0) if full else self._journal.place()
        body = encode(
            Return(
                jid=jid,
                fun=fun,
                outcome=outcome,
                retcode=NOT_RUN_RETCODE,
                why=why[: limits.WHY_CHARACTERS],
                executions=self.executions.get(jid, 0),
                outbox=outbox,
                sequence=sequence,
            )
        )
        if full:
            self._journal.forgotten(jid)
            self._send(body)
            return
        self._journal.answered(jid, body, sequence)
        self._say(jid, body)

    def repeat(self, jid: str) -> None:
        """A job that is known and not under way came again: say what became of it, where that is known."""
        entry = self._journal.find(jid)
        if entry is None or entry.place is Place.STARTED:
            return
        if entry.place is Place.DONE:
            self._send(entry.body)
            return
        forgotten = Return(
            jid=jid,
            fun="",
            outcome="unknown",
            retcode=NOT_RUN_RETCODE,
            why="journal_forgot: a job this old is not run, since it may have run already",
            executions=self.executions.get(jid, 0),
        )
        self._send(encode(forgotten))

    def confirmed(self, jids: list[str]) -> None:
        """The station has the returns of these jobs."""
        self._journal.confirmed(jids)
        for jid in jids:
            self._resend.pop(jid, None)

    def heard_again(self, now: float) -> None:
        """Returns that were on their way when the connection or the station went are due again now."""
        self._resend = dict.fromkeys(self._journal.unconfirmed(), (now, RETURN_AGAIN_SECONDS))

    def tick(self, now: float) -> None:
        """Say again what has waited long enough for its confirmation."""
        due = [jid for jid, (when, _) in self._resend.items() if when <= now]
        for jid in due[:RETURNS_PER_TICK]:
            entry = self._journal.find(jid)
            if entry is None or entry.place is not Place.DONE:
                del self._resend[jid]
                continue
            wait = self._resend[jid][1]
            self._resend[jid] = (now + wait, min(wait * 2, RETURN_AGAIN_CEILING_SECONDS))
            self._send(entry.body)

    def _say(self, jid: str, body: bytes) -> None:
        self._resend[jid] = (self._clock.monotonic() + RETURN_AGAIN_SECONDS, RETURN_AGAIN_SECONDS)
        self._send(body)


def interrupted(jid: str, fun: str, who: str, place: tuple[bytes, int]) -> Return:
    """Of a job that was under way when its process ended: it may have run."""
    outbox, sequence = place
    return Return(
        jid=jid,
        fun=fun,
        outcome="unknown",
        retcode=1,
        why=f"{who} stopped while it ran",
        executions=1,
        outbox=outbox,
        sequence=sequence,
    )
