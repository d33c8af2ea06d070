"""Posts each event of the station to an address, at least once: again while nobody answers, and after any end.

The header ``Idempotency-Key`` is the same for the same event, however often it is sent.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

from gateway.engines.carry import carry
from gateway.engines.context import current
from gateway.engines.feed import Feed, Heard
from gateway.engines.posting import check_url, post


def start(
    url: str,
    tag: str = "*",
    headers: dict[str, str] | None = None,
    secret: str = "",
    batch: int = 1,
    timeout: float = 10.0,
    give_up_hours: float = 24.0,
) -> None:
    """Post for ever. ``tag``: a glob; ``secret``: signs the body, as ``X-Outstation-Signature: sha256=…``.

    With ``batch`` 1 the body is one event, otherwise a list of so many at most. Raises ``ValueError``.
    """
    check_url(url)
    if not 0.1 <= timeout <= 300:
        raise ValueError(f"timeout is 0.1 to 300 seconds, not {timeout}")
    station = str(current().opts["id"])

    def send(events: list[Heard]) -> None:
        told = [_shown(event, station) for event in events]
        body = json.dumps(told[0] if batch == 1 else told).encode()
        given = {
            "Content-Type": "application/json",
            "User-Agent": "outstation",
            "Idempotency-Key": _key(station, events),
            **(headers or {}),
        }
        if secret:
            given["X-Outstation-Signature"] = f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"
        post(url, body, given, timeout)

    carry(Feed(current(), tag), send, current().report, batch=batch, give_up_hours=give_up_hours)


def _shown(event: Heard, station: str) -> dict[str, Any]:
    told = {"tag": event.tag, "data": event.data, "_stamp": event.stamp, "site": event.site, "station": station}
    return {"id": event.key, **told, **({"origin": event.origin} if event.origin else {})}


def _key(station: str, events: list[Heard]) -> str:
    first, last = events[0].key, events[-1].key
    return f"{station}:{first}" if len(events) == 1 else f"{station}:{first}..{last}"
