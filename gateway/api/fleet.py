"""The fleet in the API: what this station is in it, a new root list for it, and how a gateway joins."""

from __future__ import annotations

import base64
import binascii

import msgspec

from device_agent.errors import UsageInvalid
from gateway.api.operation import Answer, Asked, Operation
from gateway.devices.authority import Authority
from gateway.fleet.ceremony import ROOT_LISTS
from gateway.fleet.joining import join_with_bundle, join_with_token, publish, site_token


class RootListsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file ``root-lists`` of a fleet, in base64."""

    root_lists: str


class Joining(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token of a master, or a bundle made for this site; one of both."""

    token: str | None = None
    bundle: str | None = None


class FleetApi:
    """Operations on the fleet."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority

    def operations(self) -> list[Operation]:
        """The table."""
        return [
            Operation("GET", "/fleet", "What this station is in its fleet, and may sign", self._show),
            Operation(
                "GET",
                "/fleet/token",
                "The token with which gateways find this master",
                self._token,
                query={"address": "tcp://HOST:PORT of this master; default: those in the root list"},
            ),
            Operation(
                "POST", "/fleet", "Take in new root lists", self._publish, body=RootListsFile, action="fleet.publish"
            ),
            Operation("POST", "/join", "Join this gateway to a fleet", self._join, body=Joining, action="gateway.join"),
        ]

    async def _show(self, _: Asked) -> Answer:
        return self._authority.view()

    async def _token(self, asked: Asked) -> Answer:
        address = asked.query.get("address")
        token = site_token(self._authority, [address] if address else [])
        return {"token": token.text(), "root": token.root.hex(), "addresses": list(token.addresses)}

    async def _publish(self, asked: Asked) -> Answer:
        try:
            body = base64.b64decode(asked.body.root_lists, validate=True)
        except (binascii.Error, ValueError):
            raise UsageInvalid("the root lists are not base64", where="root_lists") from None
        changed = await publish(self._authority, body, ROOT_LISTS)
        return {**self._authority.view(), "changed": changed}

    async def _join(self, asked: Asked) -> Answer:
        token, bundle = asked.body.token, asked.body.bundle
        if (token is None) == (bundle is None):
            raise UsageInvalid(
                "a gateway joins with a token or with a bundle",
                where="token, bundle",
                found="both" if token is not None else "neither",
                allowed="one of both",
            )
        if token is not None:
            await join_with_token(self._authority, token)
        else:
            await join_with_bundle(self._authority, bundle or "")
        return self._authority.view()
