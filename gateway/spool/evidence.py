"""What a station believes of a site that a relay speaks for: what that site signed, and nothing else.

An item of a site behind a relay is proven by a batch that the site signed (``device_agent.trust.batches``), whose
certificate is known here. Two kinds of items come without a proof. A site of release 0.1 does not sign: its items are
taken, and the site is shown as unproven, until its first proof comes or ``sites.require_proof`` is set. And a relay
speaks for a dark site: it may name the devices that are expected, of those known here, and say that an outcome is
missing. Everything else is refused and counted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass

from msgspec.structs import replace

from device_agent.clock import Clock
from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.protocol.messages import Item, Manifest, OutcomeRecord
from device_agent.protocol.outcomes import Outcome
from device_agent.protocol.proven import signed_form
from device_agent.trust.batches import Batch, ItemProof, check_item, open_batch, read_proof
from gateway.devices.authority import Authority
from gateway.jobs.expect import digest
from gateway.store.reader import Reader
from gateway.store.writer import Statement

ENGAGES_SECONDS = 3600.0
"""So long after a site's first proof its items are still taken without one: some wait at the relay from before."""

BATCHES_REMEMBERED = 1024
_MISSING = frozenset(
    {Outcome.SITE_DARK, Outcome.UNKNOWN, Outcome.EXPIRED, Outcome.CANCELLED, Outcome.REFUSED, Outcome.UNREACHABLE}
)
_PUT = (
    "INSERT OR REPLACE INTO relayed_sites (site, link, first, proven, unproven, refused, refused_at, reason)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A proof that holds: who said the item, and its place in the site's own store."""

    site: str
    store: str
    stream: str
    sequence: int
    issued: int

    @property
    def origin(self) -> str:
        """The identity of the item."""
        return f"{self.site}/{self.store}/{self.stream}/{self.sequence}"


@dataclass(slots=True)
class RelayedSite:
    """How a site behind a relay proved itself here. Times are wall seconds, 0 for never."""

    site: str
    link: str
    first: float = 0.0
    proven: float = 0.0
    unproven: float = 0.0
    refused: int = 0
    refused_at: float = 0.0
    reason: str = ""


class Evidences:
    """Judges the proofs of items that relays bring, and keeps how each site proved itself."""

    def __init__(
        self,
        *,
        authority: Authority,
        reader: Reader,
        clock: Clock,
        require: bool = False,
        unproven: Sequence[str] = (),
    ) -> None:
        self._authority = authority
        self._reader = reader
        self._clock = clock
        self._require = require
        self._exempt = frozenset(unproven)
        self._opened: OrderedDict[tuple[bytes, int], Batch] = OrderedDict()
        self._sites: dict[str, RelayedSite] | None = None
        self._changed: dict[str, None] = {}
        self._forgotten: list[tuple[str]] = []

    async def load(self) -> None:
        """Read how sites proved themselves, once."""
        if self._sites is None:
            rows = await self._reader.rows(
                "SELECT site, link, first, proven, unproven, refused, refused_at, reason FROM relayed_sites"
            )
            self._sites = {row[0]: RelayedSite(*row) for row in rows}

    def of(self, site: str, link: str, body: bytes, proof: bytes) -> Evidence | None:
        """The evidence that a site said this item; None where the site did not sign it.

        Raises ``Refused`` for a proof that does not hold.
        """
        if not proof:
            return None
        read = read_proof(proof)
        try:
            batch = self._batch(read)
        except Refused as refusal:
            if refusal.reason == "unknown_issuer":
                return None
            raise
        if batch.site != site:
            # A relay signs its own word, also where that is about a site behind it.
            return None
        check_item(batch, read, signed_form(body))
        known = self._site(site, link, proven=True)
        now = self._clock.wall()
        known.first, known.proven = known.first or now, now
        return Evidence(site, batch.store, batch.stream, read.sequence, batch.issued)

    def relay_word(self, item: Item, link: str, is_known: Callable[[str, str], object]) -> Item:
        """What is taken of an item that its site did not sign. Raises ``Refused`` (``unproven``)."""
        site = item.site
        if not self.must_prove(site):
            self.unproven(site, link)
            return item
        if isinstance(item, Manifest):
            names = [device for device in item.ids if is_known(site, device) is not None]
            if names or not item.ids:
                return replace(item, ids=names, count=len(names), digest=digest(names))
        elif isinstance(item, OutcomeRecord) and item.outcome in _MISSING and _is_empty(item):
            why = item.why if item.outcome is Outcome.SITE_DARK else f"{item.outcome.value}: {item.why}"
            words = f"{link} says of its site {site}: {why}"[: limits.WHY_CHARACTERS]
            return replace(item, outcome=Outcome.SITE_DARK, why=words)
        raise Refused("unproven", f"{type(item).__name__} of {site}, which signs what it says")

    def unproven(self, site: str, link: str) -> None:
        """Something of this site was taken without its proof."""
        self._site(site, link).unproven = self._clock.wall()

    def must_prove(self, site: str) -> bool:
        """Whether nothing of this site is taken without its proof."""
        if site in self._exempt:
            return False
        known = (self._sites or {}).get(site)
        return self._require or bool(known and known.first and self._clock.wall() - known.first >= ENGAGES_SECONDS)

    def refused(self, site: str, link: str, reason: str) -> None:
        """Something that a relay brought in the name of this site was refused."""
        known = self._site(site, link)
        known.refused, known.refused_at, known.reason = known.refused + 1, self._clock.wall(), reason

    def changed(self) -> list[Statement]:
        """The statements that keep what has changed."""
        fresh, self._changed = self._changed, {}
        forgotten, self._forgotten = self._forgotten, []
        rows = [astuple((self._sites or {})[site]) for site in fresh]
        made: list[Statement] = [("DELETE FROM relayed_sites WHERE site = ?", forgotten)] if forgotten else []
        return [*made, (_PUT, rows)] if rows else made

    async def sites(self) -> list[RelayedSite]:
        """Every site behind a relay, by name."""
        await self.load()
        return [each for _, each in sorted((self._sites or {}).items())]

    def _site(self, site: str, link: str, *, proven: bool = False) -> RelayedSite:
        assert self._sites is not None
        known = self._sites.get(site)
        if known is None:
            if len(self._sites) >= limits.LEAF_SITES:
                # Names that a relay made up must not keep out a site that proves itself.
                unproven = next((each.site for each in self._sites.values() if not each.first), None)
                if not proven or unproven is None:
                    return RelayedSite(site, link)
                del self._sites[unproven]
                self._changed.pop(unproven, None)
                self._forgotten.append((unproven,))
            known = self._sites[site] = RelayedSite(site, link)
        known.link = link
        self._changed[site] = None
        return known

    def _batch(self, proof: ItemProof) -> Batch:
        """A batch by a site that counts, verified once as long as nothing changes in whom this station believes."""
        anchor = self._authority.anchor
        key = (proof.batch, anchor.generation)
        known = self._opened.get(key)
        if known is not None:
            return known
        # An expired certificate does not hinder: the site says what was, and orders nothing.
        batch = open_batch(proof.batch, lambda kid: anchor.site_by_kid(kid, 0.0).sig)
        if anchor.site_by_kid(batch.kid, 0.0).site != batch.site:
            raise Refused("wrong_site", f"a batch of {batch.site} by the key of another site")
        self._opened[key] = batch
        if len(self._opened) > BATCHES_REMEMBERED:
            self._opened.popitem(last=False)
        return batch


def _is_empty(record: OutcomeRecord) -> bool:
    return record.value is None and not record.executions and not record.duration and not record.retcodes
