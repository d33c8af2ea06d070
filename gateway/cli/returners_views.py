"""What the API says of returners, as types."""

from __future__ import annotations

from msgspec import Struct


class ReturnerView(Struct, frozen=True, kw_only=True):
    """A returner. ``waiting`` are jobs; the other counts are returns, since the station began."""

    name: str
    waiting: int
    sent: int
    failed: int
    lost: int
    why: str = ""


class LostView(Struct, frozen=True, kw_only=True):
    """A return that a returner never had."""

    jid: str
    returner: str
    site: str
    device: str
    why: str
    at: float


class ReturnersPage(Struct, frozen=True):
    """All returners, and what was lost, the newest first."""

    returners: list[ReturnerView]
    lost: list[LostView]
