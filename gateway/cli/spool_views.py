"""What the API says of the spool, as types, and how the command line asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

if TYPE_CHECKING:
    from gateway.cli.client import StationClient


class ClassView(Struct, frozen=True, kw_only=True):
    """One class of this station's ledger."""

    name: str = field(name="class")
    accepted: int
    delivered: int
    pending: int
    pending_bytes: int
    budget_bytes: int
    dropped: dict[str, int]


class SiteClassView(Struct, frozen=True, kw_only=True):
    """One class of a site's ledger, beside what has come of it here."""

    name: str = field(name="class")
    accepted: int
    delivered: int
    pending: int
    pending_bytes: int
    dropped: dict[str, int]
    confirmed: int
    received: int
    refused: int
    missing: int


class SiteLedgerView(Struct, frozen=True):
    """What a site last said of its ledger."""

    site: str
    at: float
    classes: list[SiteClassView]


class DrillView(Struct, frozen=True):
    """Whether the uplink is cut on purpose, and until when."""

    running: bool = False
    until: float | None = None


class SpoolView(Struct, frozen=True):
    """The ledgers of a station."""

    enabled: bool
    epoch: str
    classes: list[ClassView]
    sites: list[SiteLedgerView]
    drill: DrillView = DrillView()


class RecountClassView(Struct, frozen=True, kw_only=True):
    """One class of the ledger, beside its rows."""

    name: str = field(name="class")
    pending: int
    pending_bytes: int
    rows: int
    rows_bytes: int

    @property
    def equal(self) -> bool:
        """Whether they are equal."""
        return (self.pending, self.pending_bytes) == (self.rows, self.rows_bytes)


class StoreView(Struct, frozen=True):
    """Whether the store has all that it acknowledged; a station of an older release does not say."""

    state: str = "sound"
    at: float = 0.0
    words: str = ""
    missing: dict[str, int] = {}
    acknowledged: str = ""

    @property
    def lost(self) -> bool:
        """Whether the store lost something, and no operator has acknowledged that."""
        return self.state in ("went_back", "damaged") and not self.acknowledged


class RecountView(Struct, frozen=True):
    """The ledger beside its rows."""

    equal: bool
    classes: list[RecountClassView]
    store: StoreView = StoreView()


class AcknowledgedView(Struct, frozen=True):
    """The state of the store after an operator acknowledged a loss."""

    store: StoreView


def status(client: StationClient) -> SpoolView:
    """The ledger."""
    return client.ask("GET", "/spool", SpoolView)


def verify(client: StationClient) -> RecountView:
    """The recount; it takes as long as there are rows."""
    return client.ask("GET", "/spool/verify", RecountView)


def acknowledge(client: StationClient) -> AcknowledgedView:
    """Acknowledge a loss."""
    return client.ask("POST", "/spool/acknowledge", AcknowledgedView)


def begin_drill(client: StationClient, seconds: float) -> DrillView:
    """Cut the uplink for so long."""
    return client.ask("POST", "/spool/drill", DrillView, body={"seconds": seconds})


def end_drill(client: StationClient) -> DrillView:
    """Mend it before its time."""
    return client.ask("POST", "/spool/drill/end", DrillView)
