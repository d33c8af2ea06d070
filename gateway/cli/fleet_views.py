"""What the station's API says of its fleet, as types, and how it is asked: the client's side of the contract."""

from __future__ import annotations

import base64

from msgspec import Struct

from gateway.cli.client import StationClient


class FleetView(Struct, frozen=True):
    """What a station is in its fleet. ``root`` is the fingerprint of the root keys, in hexadecimal digits."""

    role: str
    site: str
    joined: bool = False
    root: str | None = None
    root_version: int | None = None
    root_issued: float | None = None
    masters: list[str] = []
    roles: list[str] = []
    grants: list[str] = []
    origins: dict[str, list[str]] = {}
    """What an origin, such as Salt masters, may order, instead of the grants."""
    expires: float | None = None
    lapsed: str | None = None
    changed: bool = True


class TokenView(Struct, frozen=True):
    """The token with which gateways find a master."""

    token: str
    root: str = ""
    addresses: list[str] = []


class Reloaded(Struct, frozen=True):
    """The station has taken its settings anew."""

    reloaded: bool


def shown(client: StationClient) -> FleetView:
    """What the station is in its fleet."""
    return client.ask("GET", "/fleet", FleetView)


def site_token(client: StationClient, address: str | None) -> TokenView:
    """The token of the master that is asked."""
    return client.ask("GET", "/fleet/token", TokenView, query={"address": address})


def publish(client: StationClient, root_lists: bytes) -> FleetView:
    """Give a station new root lists."""
    body = {"root_lists": base64.b64encode(root_lists).decode("ascii")}
    return client.ask("POST", "/fleet", FleetView, body=body)


def join(client: StationClient, token: str | None, bundle: str | None) -> FleetView:
    """Have a gateway join."""
    given = {name: text for name, text in (("token", token), ("bundle", bundle)) if text is not None}
    return client.ask("POST", "/join", FleetView, body=given)
