"""Jobs are signed and sealed: by whoever issues them, when they are handed out, for one site at a time.

A job that waited for a dark site is sealed under the group key of the day. What came sealed from above is held against
its definition and passed on as it is; when the site's group key has changed since, whoever issued it is asked again.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec.structs import replace

from device_agent.clock import iso
from device_agent.errors import PolicyRefused, Refused
from device_agent.protocol.links import Parcel, Sealed
from device_agent.protocol.messages import Job, decode_job, encode
from device_agent.protocol.several import calls, title
from device_agent.trust import policy, signed_job
from device_agent.trust.reach import SHELL_ROLE, Custom, needs_shell, no_custom, words
from device_agent.trust.replay import next_seq
from device_agent.trust.signed_job import JobHeader, Order
from gateway.devices.authority import Authority
from gateway.fleet.join_words import JOIN
from gateway.jobs.open_jobs import LOCAL, OpenJob

GROUP = "all"
SALT_BYTES = 16
SEALED_DEVICES = 500
"""Most devices that one job is sealed to one by one."""


class Keyring(Protocol):
    """Who can be sealed to, as far as this station knows."""

    def group_key(self, site: str) -> tuple[int, bytes] | None:
        """The newest epoch of a site's group key, and the key; None when the site has not told it yet."""

    def kem_of(self, site: str, device: str) -> tuple[str, bytes] | None:
        """A device's identity (as in topics) and its sealing key; None for a device without a certificate here."""


class IssuerSequence:
    """The numbers this station gives its jobs: never one twice, whatever store or clock it was restored with."""

    def __init__(self) -> None:
        self._last = 0

    def next(self, wall_seconds: float) -> int:
        """The next number."""
        self._last = next_seq(self._last, wall_seconds)
        return self._last

    def raise_to(self, number: int) -> None:
        """A device has seen this number from us: go on above it."""
        self._last = max(self._last, number)


class Sealer:
    """Makes what the devices believe."""

    def __init__(self, *, site: str, authority: Authority, keyring: Keyring, sequence: IssuerSequence) -> None:
        self._site = site
        self._authority = authority
        self._keyring = keyring
        self._sequence = sequence
        self.custom_reach: Custom = no_custom
        """The class of a function that was brought here, by the release list that is known here."""

    # --- jobs issued here ------------------------------------------------------------------------------------------

    def now(self) -> float:
        """The time that a job is issued at: the one by which devices judge what this station signs."""
        return self._authority.now()

    def signs_for_sites(self) -> bool:
        """Whether devices of other sites take jobs from this station: the key of a site counts for its own alone."""
        return self._authority.master is not None

    def longest(self) -> float | None:
        """The longest life of a job issued here, in seconds; None where nothing but the product's own limit counts."""
        certificate = self._authority.certificate
        return None if self._authority.master is not None or certificate is None else float(certificate.policy.ttl)

    def may_issue(self, job: Job, *, by_name: bool = False) -> None:
        """Raises ``PolicyRefused`` when no device would take this job from this station.

        ``by_name``: its arguments are not known and left out. It is refused if the site may not order its function
        with any arguments.
        """
        if self._authority.master is not None:
            self._master_may_issue(job)
            return
        certificate, fun = self._authority.certificate, title(job.fun, job.arg, job.kwarg)
        if certificate is None:
            raise PolicyRefused(
                "this gateway belongs to no fleet yet, so no device would believe it",
                error_id="station.not_joined",
                hint=JOIN,
            )
        try:
            own = self._authority.anchor.issuer(self._authority.signing.kid, "job", self._site, self._authority.now())
            for call in calls(job.fun, job.arg, job.kwarg):
                fun = call.fun
                if needs_shell(fun, (call.arg, call.kwarg), self.custom_reach) and SHELL_ROLE not in own.certifier:
                    raise Refused(
                        "not_granted",
                        "it is as good as a root shell, which the master of this site may not order itself",
                    )
                if by_name:
                    policy.check_function_name(certificate.policy, fun, custom=self.custom_reach)
                else:
                    policy.check_function(certificate.policy, *call, origin=job.origin, custom=self.custom_reach)
        except Refused as refused:
            if refused.reason == "issuer_expired":
                raise PolicyRefused(
                    "the certificate of this site has ended, so no device would believe it",
                    error_id="policy.certificate_ended",
                    found=f"at {iso(certificate.expires)}",
                    hint="outstation check: a master that is reached renews it",
                ) from None
            raise PolicyRefused(
                f"{fun} is not granted to this site",
                error_id="policy.not_granted",
                found=refused.detail or refused.reason,
                allowed=", ".join(map(words, certificate.policy.fun)),
                hint=f"run it from a master, or grant it there: outstation keys accept {self._site} --grant '{fun}'",
            ) from None

    def _master_may_issue(self, job: Job) -> None:
        try:
            self._authority.check_role("job")
            if needs_shell(job.fun, (job.arg, job.kwarg), self.custom_reach):
                # One of several is enough.
                self._authority.check_role(SHELL_ROLE)
        except Refused as refused:
            raise PolicyRefused(
                f"no device would take {title(job.fun, job.arg, job.kwarg)} from this master",
                error_id="policy.no_role",
                found=refused.detail or refused.reason,
                allowed=", ".join(sorted(self._authority.roles())) or "nothing: it is not in the fleet's root list",
                hint="the holders of the root keys give roles: outstation fleet add-master … --root-shell",
            ) from None

    # --- handing out -----------------------------------------------------------------------------------------------

    def for_devices(self, opened: OpenJob, names: Iterable[str]) -> Parcel | None:
        """A job for devices of this station; None when it must first be sealed anew by whoever issued it."""
        if opened.origin == LOCAL:
            return self._fresh(opened, [(self._site, names)])
        if opened.job.sealed:
            return Parcel(opened.body, tuple(opened.sealed))
        if not any(entry.site == self._site for entry in opened.sealed) or self._stale(opened):
            return None
        return Parcel(opened.body, tuple(opened.sealed))

    def for_sites(self, opened: OpenJob, leaves: Sequence[tuple[str, Iterable[str]]]) -> Parcel | None:
        """A job for a site below and those behind it, each with the names of its devices that are meant.

        None while the site has not told its group key, which it does right after its welcome.
        """
        if opened.origin == LOCAL and self._authority.master is not None:
            return self._fresh(opened, leaves)
        wanted = {leaf for leaf, _ in leaves}
        return Parcel(opened.body, tuple(entry for entry in opened.sealed if entry.site in wanted))

    def _stale(self, opened: OpenJob) -> bool:
        current = self._keyring.group_key(self._site)
        for entry in opened.sealed:
            if entry.site == self._site and not entry.device:
                return current is None or signed_job.read_job(entry.body).header.epoch != current[0]
        return False

    def _fresh(self, opened: OpenJob, leaves: Sequence[tuple[str, Iterable[str]]]) -> Parcel | None:
        """Sealed here and now; the same bytes for a repeat under the same keys, so that a repeat can be recognised."""
        sealed: list[Sealed] = []
        for place, (leaf, names) in enumerate(leaves):
            if opened.job.sealed:
                sealed += self._to_each(opened, leaf, names)
                continue
            known = self._keyring.group_key(leaf)
            if known is not None:
                sealed.append(self._to_group(opened, leaf, *known))
            elif place == 0:
                return None
            # A site further down that has not told its key asks for its seal when the job gets there.
        return Parcel(encode(public(opened.job)), tuple(sealed))

    def _to_group(self, opened: OpenJob, leaf: str, epoch: int, key: bytes) -> Sealed:
        kept = opened.made.get((leaf, ""))
        if kept is not None and kept[0] == epoch:
            return kept[1]
        header = self._header(opened.job, leaf, GROUP, epoch)
        body = signed_job.seal_for_group(self._authority.signing, header, _order(opened.job), key, header.salt or b"")
        made = Sealed(leaf, "", body)
        opened.made[leaf, ""] = (epoch, made)
        return made

    def _to_each(self, opened: OpenJob, leaf: str, names: Iterable[str]) -> list[Sealed]:
        sealed = []
        for name in names:
            known = self._keyring.kem_of(leaf, name)
            if known is None:
                continue
            kept = opened.made.get((leaf, name))
            identity, kem = known
            # Under the key of the day, as a group's seal is under its epoch.
            place = int.from_bytes(kem)
            if kept is None or kept[0] != place:
                header = self._header(opened.job, leaf, identity, None)
                body = signed_job.seal_for_device(self._authority.signing, header, _order(opened.job), kem)
                kept = opened.made[leaf, name] = (place, Sealed(leaf, name, body))
            sealed.append(kept[1])
        return sealed

    def _header(self, job: Job, leaf: str, sub: str, epoch: int | None) -> JobHeader:
        return JobHeader(
            sub=sub,
            site=leaf,
            issued=math.floor(job.issued),
            expires=math.ceil(job.expires),
            jid=job.jid,
            seq=self._sequence.next(self._authority.now()),
            tgt=job.tgt,
            tgt_type=job.tgt_type,
            late=job.late,
            run_limit=job.run_limit,
            epoch=epoch,
            salt=None if epoch is None else secrets.token_bytes(SALT_BYTES),
        )

    # --- jobs from above -------------------------------------------------------------------------------------------

    def check(self, job: Job, sealed: Iterable[Sealed]) -> None:
        """Hold what came sealed for this site against the definition that came with it. Raises ``Refused``."""
        for entry in sealed:
            if entry.site != self._site:
                continue
            read = signed_job.read_job(entry.body)
            issuer = self._authority.anchor.issuer(read.kid, "job", self._site, self._authority.now())
            if issuer.kind != "master":
                raise Refused("no_role", "a job from above is signed by a master")
            signed = read.verified(issuer.public)
            header = signed.header
            said = (header.jid, header.tgt, header.tgt_type, header.late, header.site, header.expires)
            if said != (job.jid, job.tgt, job.tgt_type, job.late, self._site, math.ceil(job.expires)):
                raise Refused("definition_mismatch", f"job {job.jid}: the signed header says otherwise")
            if entry.device:
                if not job.sealed:
                    raise Refused("definition_mismatch", f"job {job.jid}: sealed to one device, and not said to be")
                continue
            known = self._keyring.group_key(self._site)
            if known is not None and header.epoch == known[0]:
                order = signed_job.open_group(signed, known[1])
                if order != _order(job):
                    raise Refused("definition_mismatch", f"job {job.jid}: the sealed function is another")


def public(job: Job) -> Job:
    """A job as the stations on its way may know it: without the arguments that only a device may read."""
    return replace(job, arg=[], kwarg={}) if job.sealed else job


def is_told_of(body: bytes, told: bytes) -> bool:
    """Whether a definition that came from elsewhere is that of this job; a sealed one is told without its arguments."""
    return told in (body, encode(public(decode_job(body))))


def _order(job: Job) -> Order:
    return Order(
        fun=job.fun,
        arg=job.arg,
        kwarg=job.kwarg,
        user=job.user,
        why=job.why,
        origin=job.origin,
        folders=tuple(job.folders or ()),
    )
