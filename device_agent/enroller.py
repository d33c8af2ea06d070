"""Joins a site over the broker's listener for joining, and says in words how far it is.

It asks until it is accepted: who accepts is a person, and may be away. What it tells is for the log of an agent or for
the terminal of ``agent join``; a sentence is told when it is another one than before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from device_agent.backoff import Backoff
from device_agent.clock import Clock
from device_agent.counters import Counters
from device_agent.errors import PolicyRefused, Refused
from device_agent.identity import Identity
from device_agent.joining import JOIN_USER, Invitation, Joining
from device_agent.mqtt import BrokerAddress, MqttLink, NotConnected
from device_agent.trust.join_answer import NotYet, State

log = logging.getLogger(__name__)

ASK_FIRST_SECONDS = 1.0
ASK_CEILING_SECONDS = 60.0
ANSWERS_WAITING = 16
LOOK_SECONDS = 1.0
"""How often the link is looked at, to say why there is no answer."""

FINAL: Final[frozenset[State]] = frozenset(
    {"rejected", "revoked", "token_used", "token_expired", "token_unknown", "token_other_site", "token_other_serial"}
)
"""What asking again does not change; only a person at the gateway does."""

_ANOTHER = "on the gateway: outstation keys token new, and join with that one"
MENDING: Final[dict[State, str]] = {
    "token_used": _ANOTHER,
    "token_expired": _ANOTHER,
    "token_unknown": _ANOTHER,
    "token_other_serial": _ANOTHER,
    "token_other_site": "take the token of this site; or on its gateway: outstation keys token new",
}

MEANING: Final[dict[State, str]] = {
    "pending": "waits to be accepted",
    "rejected": "was rejected at the gateway",
    "revoked": "was revoked",
    "full": "must wait: too many devices wait at the gateway",
    "token_used": "has a token that was used already",
    "token_expired": "has a token that has expired",
    "token_unknown": "has a token that the gateway does not know",
    "token_other_site": "has a token of another site",
    "token_other_serial": "has a token that is for another serial number",
    "window_closed": "must wait: the gateway takes no devices now",
}

Keep = Callable[[], Awaitable[None]]
"""Has the identity on disk when it returns."""


class Enroller:
    """One device that joins. ``tell`` gets each sentence; ``keep`` is waited for before the gateway gets our word."""

    def __init__(
        self,
        identity: Identity,
        invited: Invitation,
        *,
        serial: str,
        model: str,
        keep: Keep,
        tell: Callable[[str], object],
        clock: Clock,
        counters: Counters,
    ) -> None:
        self._identity = identity
        self._invited = invited
        self._joining = Joining(identity, invited, serial, model, clock)
        self._keep = keep
        self._tell = tell
        self._counters = counters
        self._told = ""
        self._answered = False
        self._connected = asyncio.Event()
        self._answers: asyncio.Queue[bytes] = asyncio.Queue(maxsize=ANSWERS_WAITING)
        self._link = MqttLink(
            BrokerAddress(invited.host, invited.port, None, JOIN_USER, JOIN_USER),
            identity.did,
            subscriptions=[self._joining.subscription()],
            on_message=self._heard,
            on_connected=self._on_connected,
            on_lost=self._connected.clear,
            count=lambda _name: None,
            incoming=ANSWERS_WAITING,
            name="join",
            clock=clock,
        )

    async def join(self, *, final: frozenset[State] = frozenset()) -> None:
        """Ask until we are accepted; the identity is on disk then and the gateway has our word.

        Raises ``PolicyRefused`` when the gateway proves itself and gives an answer among ``final``.
        """
        async with asyncio.TaskGroup() as group:
            link = group.create_task(self._link.run(), name="join/link")
            refused = await self._ask(final)
            link.cancel()
        if refused is not None:
            raise PolicyRefused(
                f"this device {MEANING[refused.state]}",
                found=refused.text or None,
                hint=MENDING.get(refused.state, f"its fingerprint is {self._identity.fingerprint}"),
            )

    async def _ask(self, final: frozenset[State]) -> NotYet | None:
        backoff = Backoff(ASK_FIRST_SECONDS, ASK_CEILING_SECONDS, floor=ASK_FIRST_SECONDS)
        while True:
            await self._until_connected()
            try:
                await self._link.publish(*self._joining.request())
                answer = await self._answer(backoff.next(), final)
                if isinstance(answer, NotYet):
                    return answer
                if answer:
                    await self._link.publish(*self._joining.confirmation())
                    self._say(f"joined site={self._identity.site} name={self._identity.name}")
                    return None
            except NotConnected as error:
                self._say(f"cannot join yet: {error.what}")
            except OSError as error:
                self._say(f"cannot join yet: the identity cannot be written: {error.strerror or error}")
                await asyncio.sleep(backoff.next())

    async def _until_connected(self) -> None:
        while not self._connected.is_set():
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._connected.wait()
            except TimeoutError:
                state = self._link.state
                if state.login_refused:
                    self._say(
                        "the gateway lets no device join now: make a token there (outstation keys token new), or open "
                        "a window (outstation keys window open)"
                    )
                elif state.last_error is not None:
                    self._say(f"cannot reach the broker at {self._link.address}: {state.last_error}")

    async def _answer(self, seconds: float, final: frozenset[State]) -> NotYet | bool:
        """Wait so long for answers: True when we are accepted, one that is final, or False."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    payload = await self._answers.get()
                    self._answered = True
                    try:
                        answer = self._joining.judge(payload)
                    except Refused as refused:
                        self._counters.refused(refused.reason, refused.detail, self._identity.did)
                        self._say(f"an answer that proves nothing was ignored: {refused}")
                        continue
                    if answer is None:
                        break
                    self._say_state(answer)
                    if answer.verified and answer.state in final:
                        return answer
        except TimeoutError:
            if not self._answered:
                self._say(f"asked to join site={self._invited.site} at {self._link.address}: no answer yet")
            return False
        await self._keep()
        if self._invited.root is None and self._identity.anchor.pinned is not None:
            self._say(f"believed on first use, as trust_on_first_use says: root={self._identity.anchor.pinned.hex()}")
        return True

    def _say_state(self, answer: NotYet) -> None:
        identity = self._identity
        words = f"this device {MEANING[answer.state]}"
        if answer.text:
            words += f": {answer.text}"
        if not answer.verified:
            words += " (nobody has proven to be the gateway yet)"
        if answer.state == "pending":
            words += (
                f"; accept it on the gateway: outstation keys accept {identity.did} "
                f"--fingerprint {identity.fingerprint}"
            )
        self._say(words)

    def _say(self, words: str) -> None:
        if words != self._told:
            self._told = words
            self._tell(words)

    def _heard(self, _topic: str, payload: bytes) -> None:
        if not self._answers.full():
            self._answers.put_nowait(payload)

    async def _on_connected(self) -> None:
        self._connected.set()
