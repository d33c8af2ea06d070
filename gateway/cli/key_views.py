"""What the station's API says of keys and of what lets devices in, as types: the client's side of the contract.

As in ``views``: only what a command cannot do without is required. Times are seconds since 1970 UTC.
"""

from __future__ import annotations

from msgspec import Struct


class StationKey(Struct, frozen=True):
    """The station's own key."""

    public_key: str = ""
    fingerprint: str = ""


class KeyView(Struct, frozen=True):
    """A key of a site or of a device; ``site`` is whose it is, or claims to be.

    ``state`` is pending, accepted, quarantined, rejected, revoked or denied; ``serial`` and ``model`` are what a
    device says of itself; ``proof`` is by what it was let in, ``refused`` what was refused of it since the start.
    """

    site: str
    state: str
    kind: str = "site"
    name: str = ""
    did: str = ""
    fingerprint: str = ""
    key: str = ""
    serial: str = ""
    model: str = ""
    address: str | None = None
    proof: str = ""
    unproven: bool = False
    token: str | None = None
    accepted_by: str = ""
    accepted_at: float | None = None
    confirmed_at: float | None = None
    first_seen: float | None = None
    last_seen: float | None = None
    detail: str = ""
    refused: dict[str, int] = {}

    @property
    def label(self) -> str:
        """What to call it: its name, or the identity of a device that has none yet."""
        return self.name or self.did or self.site


class KeyPage(Struct, frozen=True):
    """A page of keys, or those that changed; ``next`` is where the following page starts.

    ``waiting`` says why devices were not let in, by did; ``bundle`` is for a site that never knocked.
    """

    keys: list[KeyView]
    station: StationKey | None = None
    next: str | None = None
    waiting: dict[str, str] = {}
    expected: int = 0
    expected_no_more: list[str] = []
    bundle: str = ""


class ExpectedKeyView(Struct, frozen=True):
    """A key that is expected: a did or a fingerprint."""

    key: str
    name: str = ""
    added: float | None = None
    added_by: str = ""


class ExpectedKeyList(Struct, frozen=True):
    """All keys that are expected."""

    expected: list[ExpectedKeyView]


class WindowView(Struct, frozen=True):
    """A join window: the one that is open, or the last one."""

    open: bool = False
    opened: float | None = None
    opened_by: str = ""
    closes: float | None = None
    max: int = 0
    taken: int = 0
    subnet: str | None = None
    model: str | None = None
    closed: float | None = None
    why: str = ""


class DoorsView(Struct, frozen=True):
    """The join window, and how many reasons of each kind there are to let devices ask at all."""

    window: WindowView | None = None
    enrollment_open: bool = False
    reasons: dict[str, int] = {}
    pending: int = 0


class JoinTokenView(Struct, frozen=True):
    """A join token; ``text`` is the token itself, said once, when it is made."""

    id: str
    state: str = "open"
    uses: int = 1
    left: int = 0
    serial: str = ""
    name: str = ""
    address: str = ""
    made: float | None = None
    made_by: str = ""
    expires: float | None = None
    text: str = ""


class JoinTokenList(Struct, frozen=True):
    """Join tokens."""

    tokens: list[JoinTokenView]
