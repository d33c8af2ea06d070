"""Sites in the API."""

from __future__ import annotations

from typing import Annotated

import msgspec

from device_agent.errors import NotFound
from gateway.api.operation import Answer, Asked, Operation
from gateway.devices.fence import SiteFence
from gateway.devices.fleet_revocation import FleetRevocation
from gateway.devices.site_keys import SiteKeys
from gateway.devices.sites import SiteBook


class Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why something is done, for the audit."""

    why: Annotated[str, msgspec.Meta(max_length=1024)] = ""


class SitesApi:
    """Operations on sites."""

    def __init__(
        self, *, site_book: SiteBook, site_keys: SiteKeys, revocation: FleetRevocation, fence: SiteFence
    ) -> None:
        self._fence = fence
        self._revocation = revocation
        self._site_book = site_book
        self._site_keys = site_keys

    def operations(self) -> list[Operation]:
        """The table."""
        return [
            Operation("GET", "/sites", "Accepted sites", self._list),
            Operation("GET", "/sites/{site}", "One site", self._show),
            Operation(
                "POST",
                "/sites/{site}/revoke",
                "Put a site's gateway out for good",
                self._revoke,
                body=Reason,
                action="sites.revoke",
                own_row=True,
            ),
            Operation(
                "POST",
                "/sites/{site}/unfence",
                "Of two gateways with copies of one store, let in the one that is fenced",
                self._unfence,
                action="sites.unfence",
            ),
        ]

    async def _unfence(self, asked: Asked) -> Answer:
        await self._fence.unfence(asked.path["site"])
        return {"site": asked.path["site"], "state": "unfenced"}

    async def _list(self, _: Asked) -> Answer:
        return {"sites": self._site_book.views()}

    async def _show(self, asked: Asked) -> Answer:
        site = asked.path["site"]
        if self._site_keys.of_site(site) is None:
            raise NotFound(
                f"no accepted site {site!r}",
                error_id="site.unknown",
                found=", ".join(self._site_keys.accepted_sites()) or "no sites",
                hint="outstation keys list",
            )
        return self._site_book.view(site)

    async def _revoke(self, asked: Asked) -> Answer:
        site = asked.path["site"]
        operator = asked.operator
        await self._revocation.revoke_site(site, operator.name, operator.door, asked.body.why)
        return {"site": site, "state": "revoked"}
