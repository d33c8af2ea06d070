"""A job as a device takes it: first who signed it and for whom, and only when it is new here, its seal.

The order is that of the design: size, kind, signer, role, signature, site, device; then, as the device's jobs ask for
it, time, number, seal and grant. What fails before the site and the device are proven is counted and not answered:
whoever carries bytes could otherwise make a device refuse what it was never asked.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from msgspec import UNSET

from device_agent.errors import Refused
from device_agent.heard import Delivery
from device_agent.protocol import several
from device_agent.protocol.messages import Job
from device_agent.trust.chain import Issuer
from device_agent.trust.keys import KemKey
from device_agent.trust.policy import check_function, check_reach
from device_agent.trust.reach import SHELL_ROLE, Custom, Reach, needs_shell, no_custom
from device_agent.trust.replay import Replay
from device_agent.trust.signed_job import (
    ALL,
    JOB_SKEW,
    Order,
    SealedJob,
    check_times,
    open_group,
    open_single,
    read_job,
)


class Times(Protocol):
    """What time it is for whoever takes a job (``trust.floor.Floor``)."""

    @property
    def has_time(self) -> bool:
        """Whether it is known what time it is."""

    def master_signed(self, issued: int, monotonic: float | None = None) -> None:
        """Something that a master signed, and that was verified, was issued then."""


class GroupKeys(Protocol):
    """The keys of the site's group (``trust.epochs.GroupKeys``)."""

    def key(self, epoch: int, now: float, /) -> bytes:
        """The key of an epoch that counts now. Raises ``Refused`` (``unknown_epoch``, ``stale_epoch``)."""


class Addressee(Protocol):
    """Whom a job is for (``identity.Identity``)."""

    @property
    def site(self) -> str: ...

    @property
    def did(self) -> str: ...

    @property
    def kems(self) -> tuple[KemKey, ...]: ...

    def sealed_to_another(self) -> None:
        """A job came that was sealed to a key that the addressee does not have."""

    @property
    def floor(self) -> Times: ...

    @property
    def groups(self) -> GroupKeys: ...


class Judgement(Protocol):
    """Whom the addressee believes (``beliefs.Beliefs``)."""

    @property
    def identity(self) -> Addressee: ...

    @property
    def replay(self) -> Replay: ...

    def now(self) -> float:
        """The time by which everything is judged."""

    def issuer(self, kid: bytes, role: str) -> Issuer:
        """Who may sign this now. Raises ``Refused``."""

    def custom_reach(self, fun: str) -> Reach | None:
        """The class of a function that the site brought; None for one that it did not."""


class SignedDelivery(Delivery):
    """A job whose signature holds. ``remaining`` is the hint that came with it, in seconds."""

    __slots__ = ("_beliefs", "_issuer", "_monotonic", "_remaining", "_sealed")

    def __init__(
        self, sealed: SealedJob, issuer: Issuer, remaining: float, beliefs: Judgement, monotonic: float
    ) -> None:
        header = sealed.header
        super().__init__(header.jid, header.tgt, header.tgt_type, sealed.kid, header.seq)
        self._sealed = sealed
        self._issuer = issuer
        self._remaining = remaining
        self._beliefs = beliefs
        self._monotonic = monotonic

    def open(self) -> tuple[Job, float]:
        """The job, and the seconds it has left to start; from now on its number is taken. Raises ``Refused``."""
        beliefs, header = self._beliefs, self._sealed.header
        now = beliefs.now()
        check_times(header, now, exact=beliefs.identity.floor.has_time)
        remaining = min(self._remaining, header.expires + JOB_SKEW - now)
        if remaining <= 0:
            raise Refused("expired", "the deadline had passed when the job arrived")
        beliefs.replay.check(self.kid, self.seq)
        order = self._order()
        folders = {*order.folders, *self._check_grant(order)}
        beliefs.replay.note(self.kid, self.seq)
        job = Job(
            jid=header.jid,
            tgt=header.tgt,
            tgt_type=header.tgt_type,
            fun=order.fun,
            arg=order.arg,
            kwarg=order.kwarg,
            user=order.user,
            issued=float(header.issued),
            expires=float(header.expires),
            late=header.late,
            run_limit=header.run_limit,
            origin=order.origin,
            folders=sorted(folders) if folders else UNSET,
        )
        return job, remaining

    def _order(self) -> Order:
        identity = self._beliefs.identity
        if self._sealed.header.epoch is None:
            try:
                return open_single(self._sealed, *identity.kems)
            except Refused as refused:
                if refused.reason == "not_sealed_to_us":
                    identity.sealed_to_another()
                raise
        return open_group(self._sealed, identity.groups.key(self._sealed.header.epoch, self._monotonic))

    def _check_grant(self, order: Order) -> list[str]:
        header, policy = self._sealed.header, self._issuer.policy
        folders = check_call(self._issuer, order.fun, order.arg, order.kwarg, order.origin, self._beliefs.custom_reach)
        if policy is not None:
            group = ALL if header.sub == ALL else ""
            check_reach(policy, group=group, seconds=header.expires - header.issued)
        return folders


def check_call(
    issuer: Issuer, fun: str, arg: list[Any], kwarg: dict[str, Any], origin: str = "", custom: Custom = no_custom
) -> list[str]:
    """Whether an issuer may order a call, which of several functions is each. Raises ``Refused`` (``not_granted``).

    Returns the folders that paths among the arguments must not leave (``check_function``).
    """
    policy = issuer.policy
    granting = issuer.roles if policy is None else issuer.certifier
    for call in several.calls(fun, arg, kwarg):
        if needs_shell(call.fun, (call.arg, call.kwarg), custom) and SHELL_ROLE not in granting:
            # A master without the role cannot lend it to a site that it certifies either.
            raise Refused("not_granted", f"{call.fun} needs a master with the role {SHELL_ROLE}")
    return [] if policy is None else check_function(policy, fun, arg, kwarg, origin=origin, custom=custom)


class Proven(NamedTuple):
    """A job whose signer may order jobs and has signed it. For whom it is was not asked yet."""

    sealed: SealedJob
    issuer: Issuer


def proven(body: bytes, beliefs: Judgement) -> Proven:
    """A job that somebody who may order jobs signed. Raises ``Refused``."""
    job = read_job(body)
    issuer = beliefs.issuer(job.kid, "job")
    if issuer.kind == "site" and not beliefs.identity.floor.has_time:
        raise Refused("no_time", "the site has not said yet what time it is")
    return Proven(job.verified(issuer.public), issuer)


def vouched(body: bytes, remaining: float, beliefs: Judgement, monotonic: float) -> SignedDelivery:
    """A job that somebody who may order jobs signed for this site and this device. Raises ``Refused``."""
    return addressed(proven(body, beliefs), remaining, beliefs, monotonic)


def addressed(job: Proven, remaining: float, beliefs: Judgement, monotonic: float) -> SignedDelivery:
    """A proven job, if it is for this site and this device. Raises ``Refused``."""
    identity, (sealed, issuer) = beliefs.identity, job
    header = sealed.header
    if header.site != identity.site:
        raise Refused("wrong_site", header.site)
    if header.sub not in {ALL, identity.did}:
        raise Refused("not_for_us", header.sub)
    if issuer.kind == "master":
        identity.floor.master_signed(header.issued, monotonic)
    return SignedDelivery(sealed, issuer, remaining, beliefs, monotonic)
