"""What both ends say of two gateways with copies of one store (``twins``). Pure."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

MARKS = 16
"""Marks in a hello."""

STOPPED_SECONDS = 1800.0
"""A copy knocks more than once a minute: one that has not for so long was stopped, and nothing is left to be done."""

Mark = Annotated[bytes, Meta(min_length=16, max_length=16)]


class Twin(Struct, frozen=True, tag="twin"):
    """To a site that is connected: another gateway, at this address, runs with a copy of its store."""

    address: Annotated[str, Meta(max_length=256)]
