"""The returner ``webhook``: posts each return as JSON. ``Idempotency-Key`` is the same each time one is sent."""

from __future__ import annotations

import hashlib
import hmac
import json
from functools import partial

from gateway.engines.carry import NotTaken, TryLater
from gateway.engines.posting import post
from gateway.returners.own_thread import OwnThread
from gateway.returners.returned import NotReturned, Returned
from gateway.returners.settings import WebhookSettings


class WebhookReturner:
    """One request for each return."""

    most: int = 1

    def __init__(self, settings: WebhookSettings) -> None:
        self._settings = settings
        self._thread = OwnThread()

    async def send(self, returns: list[Returned]) -> None:
        """Raises ``NotReturned``."""
        for each in returns:
            body = json.dumps(each.fields(), default=str).encode()
            headers = {
                "Content-Type": "application/json",
                "User-Agent": "outstation",
                "Idempotency-Key": each.key,
                **self._settings.headers,
            }
            if self._settings.secret is not None:
                signed = hmac.new(self._settings.secret.encode(), body, hashlib.sha256).hexdigest()
                headers["X-Outstation-Signature"] = f"sha256={signed}"
            try:
                await self._thread.call(partial(post, self._settings.url, body, headers, self._settings.seconds))
            except TryLater as error:
                raise NotReturned(str(error)) from None
            except NotTaken as error:
                raise NotReturned(str(error), final=True) from None
