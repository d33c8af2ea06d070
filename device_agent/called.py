"""What a job has called on a device: one function, or several one after another. Of several each is called, whatever
became of those before it, as in Salt; only where the device was lost there is no use in going on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from device_agent import loader
from device_agent.ended import Ended
from device_agent.host import Host
from device_agent.own import Own
from device_agent.protocol.messages import DeviceOutcome, Job
from device_agent.protocol.several import SEVERAL, calls, in_salt, title
from device_agent.trust.reach import Custom

LOST = frozenset({"unknown", "unreachable"})


class Called:
    """The calls of one job, with how far each function that a site brought reached when the job was judged."""

    __slots__ = ("_calls", "_ends", "_job", "_reaches", "title")

    def __init__(self, job: Job, custom: Custom) -> None:
        """Raises ``Refused`` for what is no list of calls."""
        self._job = job
        self._calls = calls(job.fun, job.arg, job.kwarg)
        self._reaches = [custom(each.fun) for each in self._calls]
        self._ends: list[tuple[str, Ended]] = []
        self.title = title(job.fun, job.arg, job.kwarg)
        """Their names with commas between."""

    @property
    def arg(self) -> list[Any]:
        """As functions that ask for running jobs see them: of several a list of lists."""
        return self._job.arg if self._job.fun != SEVERAL else in_salt(SEVERAL, self._job.arg, {})[1]

    @property
    def kwarg(self) -> dict[str, Any]:
        """Those that have names, of a single function."""
        return self._job.kwarg

    async def run(self, host: Host, own: Own) -> Ended:
        """Call them. How a single one ended, and of several one end that stands for all."""
        if self._job.fun != SEVERAL:
            (call,), (reach,) = self._calls, self._reaches
            return await loader.call(call.fun, host, call.arg, call.kwarg, own, reach)
        for call, reach in zip(self._calls, self._reaches, strict=True):
            ended = await loader.call(call.fun, host, call.arg, call.kwarg, own, reach)
            if ended.restart is not None:
                # It has not begun. Nothing could come after it, and what came before it would be forgotten.
                ended = Ended(None, 1, "refused", "it restarts the device: order it by itself")
            self._ends.append((call.fun, ended))
            if ended.outcome in LOST:
                break
        return _sendable(self._whole())

    def cut(self, outcome: DeviceOutcome, why: str) -> Ended:
        """The end of a job that was stopped, with what those of several returned that had ended by then."""
        if self._job.fun != SEVERAL:
            return Ended(None, 1, outcome, why)
        codes = self._codes()
        return _sendable(Ended(self._values(), _worst(codes.values()), outcome, why, retcodes=codes))

    def _values(self) -> dict[str, Any]:
        """What each returned that has ended, by name; of two of one name the later, as in Salt."""
        return {fun: _shown(ended) for fun, ended in self._ends}

    def _codes(self) -> dict[str, int]:
        """The retcode of each, of two of one name the worse. That of one that has not ended is 1."""
        each = [(fun, ended.retcode or int(ended.outcome != "ok")) for fun, ended in self._ends]
        each += [(call.fun, 1) for call in self._calls[len(self._ends) :]]
        return {fun: _worst(code for name, code in each if name == fun) for fun, _ in each}

    def _whole(self) -> Ended:
        ends = [ended for _, ended in self._ends]
        bad = [(fun, ended) for fun, ended in self._ends if ended.outcome != "ok"]
        why = "; ".join(f"{fun}: {ended.why or f'retcode {ended.retcode}'}" for fun, ended in bad)
        missed = [call.fun for call in self._calls[len(ends) :]]
        if missed:
            why = f"{why}; not called: {', '.join(missed)}"
        codes = self._codes()
        return Ended(self._values(), _worst(codes.values()), self._outcome(ends), why, retcodes=codes)

    def _outcome(self, ends: list[Ended]) -> DeviceOutcome:
        """That of each where all ended alike. Who hears ``refused`` or ``unreachable`` may be sure that nothing ran."""
        outcomes = {ended.outcome for ended in ends}
        if len(outcomes) == 1:
            return ends[0].outcome
        return "unknown" if "unknown" in outcomes else "failed"


def _shown(ended: Ended) -> Any:
    """The value, or why there is none."""
    return ended.why if ended.value is None and ended.outcome != "ok" else ended.value


def _worst(codes: Iterable[int]) -> int:
    """The highest that is not 0."""
    return max((code for code in codes if code), default=0)


def _sendable(ended: Ended) -> Ended:
    """The same end if a message can carry it. Each value was checked alone: here they are one, and a level deeper."""
    sent = loader.checked(ended)
    # All ran, and nobody will know what they returned: a failure. Any other end stays what it was.
    return sent if ended.outcome == "ok" else replace(sent, outcome=ended.outcome)
