"""The audit in the API: list, export."""

from __future__ import annotations

from typing import get_args

from device_agent.errors import UsageInvalid
from device_agent.protocol.messages import AuditVerdict
from gateway.api.operation import Answer, Asked, Operation, whole
from gateway.audit.views import LAST, AuditViews, Chosen

PAGE = 1000
CHOICE = {
    "user": "only what this user asked for",
    "device": "only what is about this device",
    "jid": "only this job",
    "action": "only this, such as run, release, keys.accept",
    "site": "only what this station wrote",
    "verdict": "allow, deny or hold",
    "since": "only from this time on, in seconds since 1970 UTC",
    "until": "only before this time",
}


class AuditApi:
    """Operations on the audit."""

    def __init__(self, views: AuditViews) -> None:
        self._views = views

    def operations(self) -> list[Operation]:
        """The table."""
        return [
            Operation(
                "GET",
                "/audit",
                "Who asked for what, and what was answered; newest first",
                self._list,
                query={
                    **CHOICE,
                    "limit": "at most so many, up to 1000; default 100",
                    "before": "the cursor of the page before",
                },
            ),
            Operation(
                "GET",
                "/audit/export",
                "The same, oldest first, with the outcome of each job on each device",
                self._export,
                query=CHOICE,
                stream=True,
            ),
        ]

    async def _list(self, asked: Asked) -> Answer:
        before = whole(asked, "before", LAST, LAST)
        rows, cursor = await self._views.newest(_chosen(asked), before, max(1, whole(asked, "limit", 100, PAGE)))
        return {"rows": rows, "next": cursor}

    async def _export(self, asked: Asked) -> Answer:
        return self._views.export(_chosen(asked))


def _chosen(asked: Asked) -> Chosen:
    """Which rows are asked for. Raises ``UsageInvalid``."""
    verdict = asked.query.get("verdict")
    if verdict not in (None, *get_args(AuditVerdict)):
        raise UsageInvalid("no such verdict", where="verdict", found=verdict, allowed=", ".join(get_args(AuditVerdict)))
    return Chosen(
        **{name: asked.query.get(name) for name in ("user", "device", "jid", "action", "site")},
        verdict=verdict,
        since=_moment(asked, "since"),
        until=_moment(asked, "until"),
    )


def _moment(asked: Asked, name: str) -> float | None:
    text = asked.query.get(name)
    if text is None:
        return None
    try:
        moment = float(text)
    except ValueError:
        moment = -1.0
    # Also what is not a number at all: no comparison holds for it.
    if not 0 <= moment < 2.5e11:
        raise UsageInvalid("not a time", where=name, found=text[:40], allowed="seconds since 1970 UTC")
    return moment
