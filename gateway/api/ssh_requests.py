"""What is asked of SSH devices, as types: the bodies of the operations in ``ssh_devices``."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from gateway.devices.ssh_wish import SshWish

WISHES = 500
Seconds = Annotated[float, Meta(ge=1, le=30)]


class ScanWish(Struct, frozen=True, forbid_unknown_fields=True):
    """Where to ask for host keys; ``jump`` is the SSH device through which it is reached."""

    host: Annotated[str, Meta(min_length=1, max_length=253)]
    port: Annotated[int, Meta(ge=1, le=65535)] = 22
    jump: str = ""
    seconds: Seconds = 10.0


class SshWishes(Struct, frozen=True, forbid_unknown_fields=True):
    """Devices as they are to be; all of them, or with ``skip_bad`` those that can be, in one commit.

    ``coming`` are names that are added before these, and through which each is reached: for a dry run of a part.
    """

    devices: Annotated[list[SshWish], Meta(min_length=1, max_length=WISHES)]
    dry_run: bool = False
    skip_bad: bool = False
    only: Literal["new", "known", ""] = ""
    coming: Annotated[dict[str, str], Meta(max_length=5000)] = {}


class KeyWish(Struct, frozen=True, forbid_unknown_fields=True):
    """Which fingerprint is accepted; null only shows what is pinned and what the device has now."""

    accept: Annotated[str, Meta(max_length=100)] | None = None
    seconds: Seconds = 10.0


class RemovalWish(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a device goes."""

    why: Annotated[str, Meta(max_length=200)] = ""
