"""A job as a device takes it: first who signed it and for whom, and only when it is new here, its seal.

The order is that of the design: size, kind, signer, role, signature, site, device; then, as the device's jobs ask for
it, time, number, seal and grant. What fails before the site and the device are proven is counted and not answered:
whoever carries bytes could otherwise make a device refuse what it was never asked.
"""

from __future__ import annotations

from device_agent.beliefs import Beliefs
from device_agent.errors import Refused
from device_agent.heard import Delivery
from device_agent.protocol.messages import Job
from device_agent.trust.chain import Issuer
from device_agent.trust.policy import check_function, check_reach
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

SHELL_MODULE = "cmd."
SHELL_ROLE = "root-shell"


class SignedDelivery(Delivery):
    """A job whose signature holds. ``remaining`` is the hint that came with it, in seconds."""

    __slots__ = ("_beliefs", "_issuer", "_monotonic", "_remaining", "_sealed")

    def __init__(self, sealed: SealedJob, issuer: Issuer, remaining: float, beliefs: Beliefs, monotonic: float) -> None:
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
        self._check_grant(order)
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
        )
        return job, remaining

    def _order(self) -> Order:
        identity = self._beliefs.identity
        if self._sealed.header.epoch is None:
            return open_single(self._sealed, identity.kem)
        return open_group(self._sealed, identity.groups.key(self._sealed.header.epoch, self._monotonic))

    def _check_grant(self, order: Order) -> None:
        header, policy = self._sealed.header, self._issuer.policy
        granting = self._issuer.roles if policy is None else self._issuer.certifier
        if order.fun.startswith(SHELL_MODULE) and SHELL_ROLE not in granting:
            # A master without the role cannot lend it to a site that it certifies either.
            raise Refused("not_granted", f"{order.fun} needs a master with the role {SHELL_ROLE}")
        if policy is not None:
            check_function(policy, order.fun, order.arg, order.kwarg, origin=order.origin)
            group = ALL if header.sub == ALL else ""
            check_reach(policy, group=group, seconds=header.expires - header.issued)


def vouched(body: bytes, remaining: float, beliefs: Beliefs, monotonic: float) -> SignedDelivery:
    """A job that somebody who may order jobs signed for this site and this device. Raises ``Refused``."""
    identity = beliefs.identity
    job = read_job(body)
    issuer = beliefs.issuer(job.kid, "job")
    if issuer.kind == "site" and not identity.floor.has_time:
        raise Refused("no_time", "the site has not said yet what time it is")
    sealed = job.verified(issuer.public)
    header = sealed.header
    if header.site != identity.site:
        raise Refused("wrong_site", header.site)
    if header.sub not in {ALL, identity.did}:
        raise Refused("not_for_us", header.sub)
    if issuer.kind == "master":
        identity.floor.master_signed(header.issued, monotonic)
    return SignedDelivery(sealed, issuer, remaining, beliefs, monotonic)
