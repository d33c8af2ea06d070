"""Sites and their keys in the API."""

from __future__ import annotations

import msgspec

from device_agent.errors import NotFound
from gateway.api.operation import Answer, Asked, Operation
from gateway.devices.site_keys import SiteKeys
from gateway.devices.sites import SiteBook
from upstream.curve import CurveKeys, fingerprint


class KeyChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which of a site's keys; None when there is only one that can be meant."""

    fingerprint: str | None = None


class SitesApi:
    """Operations on sites and keys."""

    def __init__(self, *, site_book: SiteBook, site_keys: SiteKeys, keys: CurveKeys) -> None:
        self._site_book = site_book
        self._enrollment = site_keys
        self._keys = keys

    def operations(self) -> list[Operation]:
        """The table."""
        return [
            Operation("GET", "/sites", "Accepted sites", self._list),
            Operation("GET", "/sites/{site}", "One site", self._show),
            Operation("GET", "/keys", "This station's key, and the keys of sites", self._list_keys),
            Operation("POST", "/keys/{site}/accept", "Accept a site's key", self._accept, body=KeyChoice),
            Operation("POST", "/keys/{site}/reject", "Reject a site's key", self._reject, body=KeyChoice),
        ]

    async def _list(self, _: Asked) -> Answer:
        return {"sites": self._site_book.views()}

    async def _show(self, asked: Asked) -> Answer:
        site = asked.path["site"]
        if self._enrollment.of_site(site) is None:
            raise NotFound(
                f"no accepted site {site!r}",
                error_id="site.unknown",
                found=", ".join(self._enrollment.accepted_sites()) or "no sites",
                hint="outstation keys list",
            )
        return self._site_book.view(site)

    async def _list_keys(self, _: Asked) -> Answer:
        own = {"public_key": self._keys.public, "fingerprint": fingerprint(self._keys.public)}
        return {"station": own, "keys": self._enrollment.views()}

    async def _accept(self, asked: Asked) -> Answer:
        return {"keys": await self._enrollment.accept(asked.path["site"], asked.body.fingerprint)}

    async def _reject(self, asked: Asked) -> Answer:
        return {"keys": await self._enrollment.reject(asked.path["site"], asked.body.fingerprint)}
