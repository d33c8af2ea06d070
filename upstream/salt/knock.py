"""Signing in at one Salt master: asks, keeps its key at the first contact, and has words for whoever must act."""

from __future__ import annotations

import asyncio
import logging

from device_agent.clock import iso
from device_agent.errors import ConfigInvalid, Refused
from device_agent.questions import Unanswered
from upstream.dealer import LinkLost
from upstream.salt.box import new_nonce
from upstream.salt.channel import Connections
from upstream.salt.ends import LINK, Ends
from upstream.salt.rsa_keys import MasterKey, file_fingerprint
from upstream.salt.sign_in import Full, NotVouched, OtherKey, Pending, Rejected, Session, SignIn

log = logging.getLogger(__name__)


class NotLetIn(LinkLost):
    """The master, or what we know of it, says no. ``state`` is that of the link then."""

    def __init__(self, state: str, why: str) -> None:
        super().__init__(why)
        self.state = state


class Knock:
    """Knocks at the master with this address."""

    def __init__(self, address: str, ends: Ends) -> None:
        self._address = address
        self._ends = ends

    async def once(self, connections: Connections) -> Session:
        """One sign-in. Raises ``NotLetIn``, and ``Unanswered`` when nobody answers as a master does."""
        ends = self._ends
        try:
            known, signing = await asyncio.to_thread(self._keys)
        except ConfigInvalid as error:
            raise NotLetIn("refused", str(error)) from None
        sign_in = SignIn(ends.rules, ends.key, known, new_nonce(), signing)
        try:
            outcome = sign_in.outcome(await connections.ask(sign_in.request(), ends.rules.auth_timeout))
        except OtherKey as other:
            raise NotLetIn("refused", await self._set_aside(other)) from None
        except NotVouched as refusal:
            ends.refusals.refused(LINK, refusal.reason, self._address, refusal.detail)
            raise NotLetIn("refused", self._not_vouched_words(refusal)) from None
        except Refused as refusal:
            ends.refusals.refused(LINK, refusal.reason, self._address, refusal.detail)
            raise Unanswered(f"the sign-in failed: {refusal}") from None
        match outcome:
            case Pending():
                raise NotLetIn("pending", self.pending_words())
            case Rejected():
                raise NotLetIn(
                    "refused",
                    f"the master rejects this gateway's key, or has accepted another one for {ends.rules.id}; look at "
                    f"salt-key -L there, then: salt-key -d {ends.rules.id}; salt-key -a {ends.rules.id}",
                )
            case Full():
                raise NotLetIn("refused", "the master takes no more minions: raise max_minions there")
            case Session():
                if known is None or known.pem != outcome.master.pem:
                    await self._keep(
                        outcome, "first contact" if known is None else "signed by the masters' signing key"
                    )
                return outcome

    def pending_words(self) -> str:
        """What to type on the master."""
        rules, key = self._ends.rules, self._ends.key
        return (
            f"accept it on the master: salt-key -a {rules.id} (salt-key -f {rules.id} there shows "
            f"{key.whole_fingerprint}, or with Salt 3006 and 3007 {key.fingerprint})"
        )

    def not_taken_words(self, now: float) -> str:
        """What to look at where the master lets us in, and takes nothing under what it gave us then."""
        return (
            "the master lets this gateway in, and refuses what it says then. Where it has request_server_ttl, both"
            f" clocks must agree: here it is {iso(now)}, there: date -u. Its log names the reason:"
            f" grep {self._ends.rules.id} /var/log/salt/master"
        )

    def _keys(self) -> tuple[MasterKey | None, MasterKey | None]:
        """The key of this master, and the one that may vouch for another; None for what is not there."""
        pins, rules = self._ends.pins, self._ends.rules
        signing = pins.signing(rules.master_sign_key_name) if rules.verify_master_pubkey_sign else None
        return pins.known(self._address), signing

    async def _keep(self, session: Session, why: str) -> None:
        """A master whose key cannot be kept could be another one tomorrow."""
        try:
            await asyncio.to_thread(self._ends.pins.keep, self._address, session.master)
        except OSError as error:
            where = self._ends.pins.place(self._address)
            raise NotLetIn("refused", f"the master's key cannot be kept in {where}: {error.strerror}") from None
        log.warning(
            "the key of a salt master is kept why=%s master=%s fingerprint=%s fingerprint_3006_3007=%s file=%s",
            why,
            self._address,
            file_fingerprint(session.master.pem),
            session.master.fingerprint,
            self._ends.pins.place(self._address),
        )

    def _not_vouched_words(self, refusal: NotVouched) -> str:
        name = self._ends.rules.master_sign_key_name
        place = self._ends.pins.signing_place(name)
        mend = f"compare with salt-key -F master there; if it is the master, copy its pki/master/{name}.pub to {place}"
        if refusal.missing:
            mend = "if it is the master, there: master_sign_pubkey: True, and start it anew"
        return f"the signing key does not vouch for the key of the master: {refusal.detail}. {mend}"

    async def _set_aside(self, other: OtherKey) -> str:
        ends = self._ends
        ends.refusals.refused(LINK, other.reason, self._address, other.detail)
        try:
            aside = str(await asyncio.to_thread(ends.pins.set_aside, self._address, other.pem))
        except OSError as error:
            aside = f"FILE (it could not be kept here: {error.strerror})"
        place = ends.pins.place(self._address)
        settle = "put it in upstream.master_finger, and " if other.by_settings else ""
        return (
            f"the master shows another key than the one that is known: {other.detail}. Somebody may be in between. "
            f"If it was made anew, compare with salt-key -F master there; then: {settle}mv {aside} {place}"
        )
