"""What lets devices in without an operator at hand: the join window, join tokens, expected keys.

As long as one of them may bring a device, or a device that belongs here must still come for its answer, the broker
lets its enrollment user in; otherwise nobody can even ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from device_agent.clock import Clock
from device_agent.errors import NotFound, PolicyRefused, Refused, UsageInvalid
from device_agent.protocol import limits
from device_agent.trust.token import JoinToken
from gateway.audit.deed import Deed
from gateway.devices import expected_keys, join_tokens, windows
from gateway.devices.client_addresses import ClientAddresses
from gateway.devices.enrolled_book import EnrolledBook
from gateway.devices.enrollment_journal import Asker, EnrollmentJournal
from gateway.devices.enrollment_ports import Entrance, SiteAuthority
from gateway.devices.expected_keys import ExpectedKey, ExpectedKeys
from gateway.devices.join_tokens import JoinTokens, MadeToken
from gateway.devices.naming import DEFAULT_TEMPLATE, check_template, tells_apart
from gateway.devices.windows import JoinWindow, Window
from gateway.store.reader import Reader
from gateway.store.writer import Statement

TOKEN_SECONDS_MAX = limits.JOIN_TOKEN_SECONDS
TOKENS_AT_ONCE = 1000
MODEL_CHARACTERS = 128
ADDRESS_CHARACTERS = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenWish:
    """A join token that somebody asks for."""

    uses: int = 1
    serial: str = ""
    seconds: float = 86_400.0
    name: str = DEFAULT_TEMPLATE
    address: str = ""
    number: int = 1


class Doors:
    """The window, the tokens and the list, and what operators do with them."""

    def __init__(
        self,
        *,
        site: str,
        authority: SiteAuthority,
        entrance: Callable[[], Entrance],
        book: EnrolledBook,
        journal: EnrollmentJournal,
        reader: Reader,
        clock: Clock,
    ) -> None:
        self._site = site
        self._authority = authority
        self._entrance = entrance
        self._book = book
        self._journal = journal
        self._reader = reader
        self._clock = clock
        self._changing = asyncio.Lock()
        self.window = JoinWindow()
        self.tokens = JoinTokens(site)
        self.expected = ExpectedKeys()
        self.changed = asyncio.Event()
        """Set after anything changed that decides about the enrollment user."""
        self.addresses: ClientAddresses | None = None
        """Where the broker is ours: from which address each client came."""

    async def load(self) -> None:
        """What the station knew when it stopped."""
        self.tokens.load(await self._reader.rows(join_tokens.LOAD))
        self.expected.load(await self._reader.rows(expected_keys.LOAD))
        self.window.load(await self._reader.rows(windows.LOAD), self._authority.now(), self._clock.monotonic())

    def address_of(self, did: str) -> str:
        """From where a did connected last; empty where that is not known."""
        return self.addresses.of(did) if self.addresses is not None else ""

    # --- why the enrollment user is let in -------------------------------------------------------------------------

    def reasons(self) -> dict[str, int]:
        """How many of each reason there is to let the enrollment user in."""
        return {
            "window": int(self.window.open is not None),
            "tokens": self.tokens.open_count(self._authority.now()),
            "expected": len(self.expected),
            "rejoining": len(self._book.rejoining),
        }

    @property
    def wanted(self) -> bool:
        """Whether the enrollment user is to be let in."""
        return any(self.reasons().values())

    def view(self) -> dict[str, Any]:
        """The window that is open or was last, and why the enrollment user is let in, as the API shows it."""
        last = self.window.last
        return {
            "window": last.view() if last is not None else None,
            "enrollment_open": self.wanted,
            "reasons": self.reasons(),
            "pending": self._book.waiting,
        }

    # --- the window ------------------------------------------------------------------------------------------------

    async def open_window(self, *, seconds: float, most: int, subnet: str, model: str, asker: Asker) -> Window:
        """Let devices without a token ask, for so long and so many. Raises ``UsageInvalid`` and ``PolicyRefused``."""
        if not 0 < seconds <= windows.LONGEST_SECONDS:
            raise UsageInvalid(
                "a join window cannot be open for so long",
                where="seconds",
                found=f"{seconds:g} s",
                allowed=f"up to {windows.LONGEST_SECONDS / 86_400:g} days",
            )
        if not 0 < most <= limits.DEVICES_PER_STATION or len(model) > MODEL_CHARACTERS:
            raise UsageInvalid(
                "a join window is for a number of devices, and perhaps a model",
                found=f"{most}",
                allowed=f"1 to {limits.DEVICES_PER_STATION}; a model of up to {MODEL_CHARACTERS} characters",
            )
        if subnet and self.addresses is None:
            raise PolicyRefused(
                "this station cannot see from which address a device comes",
                error_id="window.subnet",
                where="--subnet",
                found="a broker that this station does not run itself",
                allowed="broker.mode managed",
                hint="let only this subnet reach the enrollment listener of the broker, in its firewall",
            )
        async with self._changing:
            window, statements = self.window.opening(
                seconds=seconds, most=most, subnet=subnet, model=model, now=self._authority.now(), by=asker.user
            )
            terms = [f"for {seconds:g} s", f"{most} devices", window.subnet, model]
            deed = self._deed(asker, "keys.window.open", ", ".join(term for term in terms if term))
            await self._journal.commit(statements, [], [deed])
            self.window.keep(window, self._authority.now(), self._clock.monotonic())
        self.changed.set()
        return window

    async def close_window(self, asker: Asker, why: str = "closed by an operator") -> Window:
        """Let nobody ask any more. Raises ``UsageInvalid`` when no window is open."""
        async with self._changing:
            window, statements = self.window.closing(self._authority.now(), why)
            await self._journal.commit(statements, [], [self._deed(asker, "keys.window.close", why)])
            self._closed(window)
        return window

    async def close_overdue(self) -> None:
        """Close the window when its time is up."""
        if self.window.overdue(self._authority.now(), self._clock.monotonic()):
            await self.close_window(Asker("station", "device"), "its time is up")

    def check(self, model: str, address: str) -> None:
        """Whether a device may ask that says this of itself. Raises ``Refused`` (``window_closed``)."""
        if self.window.overdue(self._authority.now(), self._clock.monotonic()):
            raise Refused("window_closed", "the time of the join window is up")
        self.window.check(model, address)

    def coming_through(self) -> list[Statement]:
        """One more device comes through the open window: in memory at once, the statements do so on disk.

        The last one closes it. ``not_through`` takes it back.
        """
        statements = self.window.take(self._authority.now())
        if self.window.open is None:
            self.changed.set()
        return statements

    def not_through(self) -> None:
        """The statements of ``coming_through`` did not reach the disk."""
        self.window.give_back()
        self.changed.set()

    def _closed(self, window: Window) -> None:
        self.window.keep(window, self._authority.now(), self._clock.monotonic())
        self.changed.set()

    # --- tokens ----------------------------------------------------------------------------------------------------

    async def new_tokens(self, wish: TokenWish, asker: Asker) -> list[MadeToken]:
        """Make join tokens. Raises ``UsageInvalid`` and ``PolicyRefused``."""
        check_template(wish.name)
        if wish.uses * wish.number > 1 and not tells_apart(wish.name):
            raise UsageInvalid(
                "many devices cannot have one name",
                where="--name",
                found=f"{wish.name} for {wish.uses * wish.number} devices",
                allowed="a template with {serial}, {did} or {number} in it",
                hint=f"--name '{wish.name}-{{number:02}}'",
            )
        entrance = self._entrance()
        address = wish.address or entrance.address
        for found, allowed in (
            (wish.uses, limits.DEVICES_PER_STATION),
            (wish.number, TOKENS_AT_ONCE),
            (wish.seconds, TOKEN_SECONDS_MAX),
        ):
            if not 0 < found <= allowed:
                raise UsageInvalid("not a number in range", found=f"{found:g}", allowed=f"1 to {allowed:g}")
        if not address:
            raise UsageInvalid(
                "a token says where the device finds the broker's enrollment listener, and this station does not know",
                where="--address",
                hint=f"outstation keys token new --address HOST:{entrance.enrollment_port}",
            )
        if len(wish.serial) > join_tokens.SERIAL_CHARACTERS or len(address) > ADDRESS_CHARACTERS:
            raise UsageInvalid("a serial number or an address is too long", found=f"{wish.serial} {address}"[:200])
        if self._authority.anchor.root is None:
            raise PolicyRefused(
                "this station has not joined a fleet, so there is nothing that a token could prove",
                error_id="station.not_joined",
                hint="outstation check",
            )
        now = self._authority.now()
        async with self._changing:
            made = self.tokens.fresh(
                number=wish.number,
                uses=wish.uses,
                serial=wish.serial,
                name=wish.name,
                address=address,
                now=now,
                expires=now + wish.seconds,
                by=asker.user,
            )
            for token in made:
                self.text(token)
            deeds = [self._deed(asker, "keys.token.new", f"token {token.id}, {token.uses} uses") for token in made]
            await self._journal.commit(self.tokens.adding(made), [], deeds)
            self.tokens.keep(made)
        self.changed.set()
        return made

    def text(self, token: MadeToken) -> str:
        """A token as it is shown, once. Raises ``UsageInvalid`` for an address that no device could read."""
        root = self._authority.anchor.root
        assert root is not None
        try:
            return JoinToken(
                root=root.fingerprint,
                id=bytes.fromhex(token.id),
                secret=token.secret,
                site=self._site,
                address=token.address,
                tls=self._entrance().tls_port is not None,
            ).text()
        except Refused as refusal:
            raise UsageInvalid(
                "no token can be made of this",
                where="--address",
                found=refusal.detail,
                allowed="HOST:PORT, as the device reaches the broker's enrollment listener",
            ) from None

    def token_view(self, token: MadeToken) -> dict[str, Any]:
        """A token as the API shows it."""
        return token.view(self._authority.now())

    def token_views(self) -> list[dict[str, Any]]:
        """Every token, the newest first."""
        return self.tokens.views(self._authority.now())

    async def revoke_token(self, wanted: str, asker: Asker) -> MadeToken:
        """Let nobody in by a token any more. Raises ``NotFound`` and ``UsageInvalid``."""
        async with self._changing:
            token, statement = self.tokens.revoking(wanted, self._authority.now())
            await self._journal.commit([statement], [], [self._deed(asker, "keys.token.revoke", f"token {token.id}")])
            self.tokens.keep([token])
        self.changed.set()
        return token

    async def tidy(self) -> None:
        """Empty the secrets that nobody can need any more."""
        now = self._authority.now()
        needed = {device.token for device in self._book.rejoining.values()}
        wiped, statements = self.tokens.tidying(needed, now)
        if any(rows for _, rows in statements):
            await self._journal.write(statements, wipes=bool(wiped))
            self.tokens.tidied(wiped, now)

    # --- expected keys ---------------------------------------------------------------------------------------------

    async def expect(self, listed: Sequence[tuple[str, str]], asker: Asker) -> list[ExpectedKey]:
        """Expect keys. Raises ``UsageInvalid`` and ``PolicyRefused``; then none of them is."""
        async with self._changing:
            entries, statements = self.expected.adding(listed, self._authority.now(), asker.user)
            await self._journal.commit(statements, [], [self._deed(asker, "keys.expect", f"{len(entries)} keys")])
            self.expected.keep(entries)
        self.changed.set()
        return entries

    async def expect_no_more(self, text: str, asker: Asker) -> ExpectedKey:
        """Expect a key no more. Raises ``NotFound``."""
        async with self._changing:
            entry = self.expected.find(text)
            if entry is None:
                raise NotFound(f"no key {text[:60]!r} is expected", hint="outstation keys list --expected")
            await self._journal.commit(
                [self.expected.taking(entry)], [], [self._deed(asker, "keys.expect.end", f"key {entry.key}")]
            )
            self.expected.drop(entry)
        self.changed.set()
        return entry

    @staticmethod
    def _deed(asker: Asker, action: str, subject: str) -> Deed:
        return Deed(user=asker.user, door=asker.door, action=action, subject=subject, verdict="allow")
