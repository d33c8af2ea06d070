"""The audit as the API shows it: rows newest first, and for the export oldest first with the outcome of each device."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.store.reader import Reader

PAGE = 200
OUTCOME_PAGE = 1000
COLUMNS = ("site", "at", "user", "door", "action", "subject", "verdict", "why", "jid", "fun", "arguments", "times")
_ROWS = "SELECT id, site, at, user, door, action, subject, verdict, why, jid, fun, arguments, times FROM audit"
_ON_DEVICE = (
    "(instr(' ' || subject || ' ', ' ' || ? || ' ') > 0"
    " OR EXISTS (SELECT 1 FROM outcomes WHERE outcomes.jid = audit.jid AND outcomes.device = ?)"
    " OR EXISTS (SELECT 1 FROM audit_outcomes, json_each(audit_outcomes.devices)"
    " WHERE audit_outcomes.jid = audit.jid AND json_each.value = ?))"
)
FIRST, LAST = 0, 10**18 - 1


@dataclass(frozen=True)
class Chosen:
    """Which rows: of a user, about a device, of a job, an action, a site, a verdict, since and until wall times."""

    user: str | None = None
    device: str | None = None
    jid: str | None = None
    action: str | None = None
    site: str | None = None
    verdict: str | None = None
    since: float | None = None
    until: float | None = None

    def condition(self) -> tuple[str, list[Any]]:
        """As SQL, and its values."""
        parts: list[str] = []
        values: list[Any] = []
        for column in ("jid", "action", "site", "verdict"):
            value = getattr(self, column)
            if value is not None:
                parts.append(f"{column} = ?")
                values.append(value)
        if self.user is not None:
            # Behind the name may stand on whose behalf, and the door: a space is in no name.
            parts.append("(user = ? OR substr(user, 1, length(?) + 1) = ? || ' ')")
            values += [self.user] * 3
        if self.device is not None:
            parts.append(_ON_DEVICE)
            values += [self.device] * 3
        for comparison, moment in ((">=", self.since), ("<", self.until)):
            if moment is not None:
                parts.append(f"at {comparison} ?")
                values.append(moment)
        return " AND ".join(["id > ? AND id < ?", *parts]), values


class AuditViews:
    """Answers questions about the audit from the store."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def newest(self, chosen: Chosen, before: int, limit: int) -> tuple[list[dict[str, Any]], int | None]:
        """The newest rows before a cursor, and the cursor of the next page."""
        where, values = chosen.condition()
        rows = await self._reader.rows(
            f"{_ROWS} WHERE {where} ORDER BY id DESC LIMIT ?", (FIRST, before, *values, limit)
        )
        return [_view(row) for row in rows], rows[-1][0] if rows and len(rows) == limit else None

    async def export(self, chosen: Chosen) -> AsyncIterator[Mapping[str, Any] | None]:
        """Every row, oldest first; one that is about a job once for each of its devices, with how it ended there."""
        where, values = chosen.condition()
        after = FIRST
        while True:
            rows = await self._reader.rows(f"{_ROWS} WHERE {where} ORDER BY id LIMIT ?", (after, LAST, *values, PAGE))
            for row in rows:
                after, view, told = row[0], _view(row), False
                if view["action"] == "run" and view["jid"]:
                    async for ended in self._ended(view, chosen.device):
                        told = True
                        yield {**view, **ended}
                if not told:
                    yield {**view, **_NO_DEVICE}
            if len(rows) < PAGE:
                return
            yield None

    async def _ended(self, view: Mapping[str, Any], device: str | None) -> AsyncIterator[dict[str, Any]]:
        """How a job ended on each device: of the job while it is kept, later of what the audit keeps of it."""
        # The word of a site that refused a job is about those it refused; the others are in the row of the issue.
        only = "refused" if view["verdict"] == "deny" else None
        after = 0
        while True:
            rows = await self._reader.rows(
                "SELECT id, device, site, outcome, retcode, why, ended FROM outcomes WHERE jid = ? AND id > ?"
                " AND (? IS NULL OR outcome = ?) AND (? IS NULL OR device = ?) ORDER BY id LIMIT ?",
                (view["jid"], after, only, only, device, device, OUTCOME_PAGE),
            )
            for _, name, site, outcome, retcode, why, ended in rows:
                yield _outcome(name, site, outcome, retcode, why, ended)
            if len(rows) < OUTCOME_PAGE:
                break
            after = rows[-1][0]
        for name, site, outcome, why, ended in await self._reader.rows(
            "SELECT json_each.value, site, outcome, why, ended FROM audit_outcomes, json_each(audit_outcomes.devices)"
            " WHERE jid = ? AND (? IS NULL OR outcome = ?) AND (? IS NULL OR json_each.value = ?)",
            (view["jid"], only, only, device, device),
        ):
            yield _outcome(name, site, outcome, None, why, ended)


def _view(row: Any) -> dict[str, Any]:
    return dict(zip(COLUMNS, row[1:], strict=True))


def _outcome(
    device: str, site: str, outcome: str, retcode: int | None, why: str, ended: float | None
) -> dict[str, Any]:
    return {
        "device": device,
        "device_site": site,
        "outcome": outcome,
        "retcode": retcode,
        "outcome_why": why,
        "ended": ended,
    }


_NO_DEVICE = _outcome("", "", "", None, "", None)
