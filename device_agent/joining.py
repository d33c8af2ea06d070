"""How one device comes into its site: what it asks, how it judges the answer, what it keeps of it. No I/O.

A device that belongs to a site already asks in the same way when its broker no longer lets it in: the gateway was
replaced and gives it a new password. What it knows by then is held against the answer as well.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field

from device_agent.clock import Clock
from device_agent.config import AgentSettings, BrokerSettings
from device_agent.errors import ConfigInvalid, Refused
from device_agent.grains import machine_model, machine_serial
from device_agent.identity import Identity
from device_agent.mqtt import BrokerAddress
from device_agent.protocol import topics
from device_agent.trust.chain import SKEW_SECONDS
from device_agent.trust.join import NONCE_BYTES, confirm, request
from device_agent.trust.join_answer import Accepted, NotYet, open_response
from device_agent.trust.root_list import read_root_list
from device_agent.trust.signed_job import FUTURE_SECONDS
from device_agent.trust.token import JoinToken

log = logging.getLogger(__name__)

JOIN_USER = "enroll"
"""User and password at the listener for joining; everybody knows them, and they are of use for nothing else."""

LOGIN_REFUSED_SECONDS = 60.0
"""A device of a site that the broker keeps out for so long asks for another password: its word may have been lost."""


class NothingToJoinBy(ConfigInvalid):
    """A device of no site yet, without a token and without the settings that would do."""

    default_id = "config.nothing_to_join_by"


@dataclass(frozen=True, slots=True)
class Invitation:
    """What a device joins by. ``root`` is whom it believes; None believes whoever answers first."""

    site: str
    host: str
    port: int
    root: bytes | None
    token: tuple[bytes, bytes] | None = field(default=None, repr=False)
    tls: bool = False


def invited_by_token(token: JoinToken) -> Invitation:
    """The invitation in a token."""
    host, _, port = token.address.rpartition(":")
    return Invitation(token.site, host.strip("[]"), int(port), token.root, (token.id, token.secret), token.tls)


def invitation(table: AgentSettings, token: JoinToken | None, identity: Identity) -> Invitation:
    """What this device joins by: its token, its settings, and what it knows since it last joined.

    Raises ``NothingToJoinBy`` when something is missing, ``ConfigInvalid`` when two of these contradict each other.
    """
    given = invited_by_token(token) if token is not None else None
    site = _agreed("site", identity.site, given.site if given else "", table.site or "")
    known = (identity.anchor.pinned or b"") if identity.joined else b""
    shown = given.root if given and given.root else b""
    pinned = bytes.fromhex(table.root or "")
    root = _agreed("root", known.hex(), _pinned_as(identity, shown).hex(), _pinned_as(identity, pinned).hex())
    host = table.broker.host or (given.host if given else "") or identity.host
    port = table.broker.port or (given.port if given else 0) or identity.join_port
    missing = [name for name, value in (("site", site), ("broker.host", host), ("broker.port", port)) if not value]
    if not root and not table.trust_on_first_use:
        missing.append("root")
    if missing:
        raise NothingToJoinBy(
            "this device belongs to no site yet, and there is nothing to join one by",
            where=", ".join(missing),
            found="no token",
            allowed="a token, or these settings",
            hint="outstation-agent join TOKEN, with a token that `outstation keys token new` made on the gateway",
        )
    return Invitation(
        site,
        host,
        port,
        bytes.fromhex(root) if root else None,
        given.token if given else None,
        tls=table.broker.tls or (given.tls if given else identity.tls),
    )


def broker_address(identity: Identity, wanted: BrokerSettings) -> BrokerAddress:
    """Where a device that belongs to a site listens, and who it is there."""
    tls = identity.tls_port if wanted.tls or identity.tls else 0
    if wanted.tls and not tls:
        log.warning("the broker of this site has no TLS: connected without")
    return BrokerAddress(
        wanted.host or identity.host,
        tls or identity.port,
        None,
        identity.did,
        identity.password,
        identity.authority if tls else b"",
    )


def shown_machine(table: AgentSettings) -> tuple[str, str]:
    """Serial number and model, as the request shows them to whoever accepts it."""
    return table.serial or machine_serial(), table.model or machine_model()


def _pinned_as(identity: Identity, root: bytes) -> bytes:
    """Root keys that followed those which a device has pinned, as its own root lists prove, are no other fleet's."""
    lists = identity.anchor.root_lists if identity.joined else []
    followed = any(read_root_list(body).fingerprint == root for body in lists)
    return identity.anchor.pinned or root if followed else root


def _agreed(name: str, known: str, token: str, written: str) -> str:
    """The one value of several that may be there."""
    found = {value for value in (known, token, written) if value}
    if len(found) > 1:
        raise ConfigInvalid(
            "this device, its token and its settings do not belong together",
            where=name,
            found=", ".join(
                f"{value} ({place})"
                for value, place in ((known, "joined"), (token, "the token"), (written, "the settings"))
                if value
            ),
            hint="a device that shall join another fleet or site needs a state directory of its own",
        )
    return found.pop() if found else ""


class Joining:
    """One request and its answers. The request stays the same for as long as this lives: it may be said again."""

    __slots__ = ("_clock", "_identity", "_invitation", "_request")

    def __init__(self, identity: Identity, invited: Invitation, serial: str, model: str, clock: Clock) -> None:
        self._identity = identity
        self._invitation = invited
        self._clock = clock
        self._request = request(
            identity.sig,
            identity.kem.public,
            nonce=os.urandom(NONCE_BYTES),
            serial=serial,
            model=model,
            token=invited.token,
            first_use=invited.root is None,
        )

    def subscription(self) -> str:
        """Where the answer comes."""
        return topics.enrol_response(self._invitation.site, self._identity.did)

    def request(self) -> tuple[str, bytes]:
        """What to say, and where."""
        return topics.enrol_request(self._invitation.site), self._request.payload

    def judge(self, payload: bytes) -> NotYet | None:
        """Judge an answer. None: we are accepted, and the identity has all that came with it. Raises ``Refused``."""
        identity, invited = self._identity, self._invitation
        now = identity.floor.now(self._clock.monotonic())
        answer = open_response(payload, self._request, identity.kem, site=invited.site, pinned=invited.root, floor=now)
        if isinstance(answer, NotYet):
            return answer
        if not answer.site.issued - FUTURE_SECONDS <= answer.terms.issued <= answer.site.expires + SKEW_SECONDS:
            raise Refused("wrong_time", f"{answer.terms.issued} is outside the certificate of {answer.site.site}")
        if identity.joined:
            self._check_known(answer, now)
        else:
            identity.anchor = answer.anchor
        self._keep(answer)
        return None

    def confirmation(self) -> tuple[str, bytes]:
        """The word that we have the answer, once it is on disk."""
        site = self._identity.site
        return topics.enrol_request(site), confirm(self._identity.sig, site=site, request_body=self._request.body)

    def _check_known(self, answer: Accepted, now: float) -> None:
        """What a device knows counts before what it is told: newer root lists, revoked gateways."""
        anchor = self._identity.anchor
        anchor.take_root_lists(answer.root_lists)
        anchor.take_site_certificate(answer.site.body, now)
        anchor.issuer(answer.site.kid, "enrol", answer.site.site, now)
        anchor.open_device_certificate(answer.certificate.body, now)

    def _keep(self, answer: Accepted) -> None:
        identity, invited, terms = self._identity, self._invitation, answer.terms
        identity.floor.root_signed(answer.root.issued)
        identity.floor.master_signed(answer.site.issued)
        identity.floor.told(terms.issued, self._clock.monotonic())
        identity.groups.hold(answer.site.kid, terms.epoch, terms.group_key)
        identity.site = answer.site.site
        identity.name = answer.certificate.name
        identity.certificate = answer.certificate.body
        identity.index = terms.index
        identity.password = terms.password
        identity.host, identity.join_port = invited.host, invited.port
        identity.port, identity.tls_port = terms.port, terms.tls_port or 0
        identity.authority = terms.authority or b""
        identity.tls = invited.tls
        identity.changed = True
