"""A job is held to the policy: what its operator asks for here, and what the centre may do at this site.

Targets are judged against every device that is known here and that the target matches. A device that nobody knows yet
could match as well, so a job of an operator with limited targets is narrowed to them: each device checks that too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as dataclass_replace
from typing import Any

from msgspec.structs import replace

from device_agent.clock import Clock
from device_agent.errors import PolicyRefused, Refused
from device_agent.protocol.messages import AuditVerdict, Job
from device_agent.protocol.several import SEVERAL, Call, calls, title
from device_agent.protocol.stations import meanable
from device_agent.protocol.targeting import Target, compile_target
from gateway.audit.book import AuditBook
from gateway.audit.deed import Deed
from gateway.devices.device import Device
from gateway.devices.policy import (
    Allow,
    Deny,
    Hold,
    Operator,
    Policy,
    Verdict,
    call_text,
    matches_any,
    not_allowed,
)
from gateway.devices.policy_by_name import denied_by_name
from gateway.devices.registry import Registry
from gateway.jobs.asker import asker, is_own
from gateway.jobs.narrowing import named_devices, narrowed_to
from gateway.metrics import Metrics
from gateway.store.writer import Statement

REASON_CHARACTERS = 500
FIRE = "event.send"
"""What firing an event is to the policy: Salt's function for it, with the tag and the data as arguments."""

MINE = "mine.get"
PILLAR = "pillar.get"
TAGS_NAMED = 5


@dataclass(frozen=True)
class RefusedDevice:
    """A device behind a site below that the policy keeps a job from. ``seen`` is when it was last heard."""

    site: str
    id: str
    seen: float
    why: str


@dataclass(frozen=True)
class Ruling:
    """How a job is taken: ``held`` until a release, ``refused`` on these own devices and why, ``shut`` out of sites.

    ``below`` are the known devices of those sites; ``statements`` are the audit rows, to be committed with the job.
    """

    held: bool = False
    refused: Mapping[str, str] = field(default_factory=dict)
    shut: frozenset[str] = frozenset()
    below: tuple[RefusedDevice, ...] = ()
    statements: tuple[Statement, ...] = ()


FREE = Ruling()
"""For what the station itself asks, of which no policy says anything."""


class Permission:
    """Asks the policy about jobs, and keeps what it said."""

    def __init__(
        self,
        *,
        site: str,
        policy: Callable[[], Policy],
        audit: AuditBook,
        registry: Registry,
        sites_below: Callable[[], list[str]],
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._site = site
        self._policy = policy
        self._audit = audit
        self._registry = registry
        self._sites_below = sites_below
        self._metrics = metrics
        self._clock = clock

    async def here(self, operator: Operator, job: Job, target: Target) -> tuple[Job, Ruling]:
        """A job that somebody issues here, narrowed if need be. Raises ``PolicyRefused``."""
        narrowed, verdict, let = self._ruled(operator, job, target)
        if isinstance(verdict, Deny):
            self._metrics.add("jobs_denied")
            await self._audit.refused(_deed(operator, job, "deny", _both(verdict.why, job.why), jid=""))
            raise self._refusal(operator, job, verdict)
        held = isinstance(verdict, Hold)
        shut = frozenset(site for site in self._sites_below() if not all(self._reaches(one, site) for one in let))
        deed = _deed(operator, narrowed, "hold" if held else "allow", job.why)
        return narrowed, Ruling(held, shut=shut, statements=tuple(self._audit.statements([deed])))

    def refusal(self, operator: Operator, job: Job, target: Target, *, by_name: bool = False) -> PolicyRefused | None:
        """What ``here`` would raise; None for a job that it would take. Records nothing.

        ``by_name``: only the function of the job is known, so it is refused if no rule can let it through.
        """
        verdict: Verdict | None
        if by_name and self._policy().operator is not None:
            verdict = denied_by_name(self._policy(), operator, job.fun, can_wait=True)
        else:
            _, verdict, _ = self._ruled(operator, job, target)
        if not isinstance(verdict, Deny):
            return None
        return self._refused(operator, verdict, job.fun) if by_name else self._refusal(operator, job, verdict)

    def _ruled(self, operator: Operator, job: Job, target: Target) -> tuple[Job, Verdict, list[Allow | Hold]]:
        """The job, narrowed if need be, the verdict on it, and those that let its functions through."""
        # Whatever an admin means is granted, so there is no need to look at each device.
        devices = [] if "admin" in operator.roles else self._meant(target)
        ids = dict.fromkeys([*(device.id for device in devices), *named_devices(job)])
        sites = dict.fromkeys(device.site for device in devices)
        each = self._each_judged(operator, job, list(ids), list(sites))
        verdict = self._by_pillar(operator, target) or _of_all(each)
        if isinstance(verdict, Deny):
            return job, verdict, []
        let = [one for one in each if not isinstance(one, Deny)]
        narrowed: Job | None = job
        for within in dict.fromkeys(one.within for one in let):
            narrowed = narrowed and narrowed_to(narrowed, within)
        if narrowed is None:
            globs = ", ".join(glob for one in let for glob in one.within)
            denied = Deny("this target cannot be limited to what is granted", f"a glob, or a list, within {globs}")
            return job, denied, []
        folders = sorted({folder for one in let for folder in one.folders})
        return replace(narrowed, folders=folders) if folders else narrowed, verdict, let

    def lets_above(self, job: Job, ids: Sequence[str]) -> bool:
        """Whether a job from a master would run at once on all of these devices of this station. Records nothing."""
        if self._policy().centre is None:
            return True
        return isinstance(self._judged(asker(job.user), job, list(ids), [self._site]), Allow)

    def above(self, job: Job, target: Target) -> Ruling:
        """A job from a master: device by device of this station, and as a whole for each site below."""
        operator = asker(job.user)
        if self._policy().centre is None:
            return Ruling(statements=tuple(self._audit.statements([_deed(operator, job, "allow", job.why)])))
        own = [
            device for device in meanable(self._registry.own(), target.tgt) if target.matches(device.id, device.grains)
        ]
        held, refused, shut = False, dict[str, str](), dict[str, str]()
        below: list[RefusedDevice] = []
        sites = self._sites_below()
        if own or not sites:
            verdict = self._judged(operator, job, [device.id for device in own], [self._site])
            held = isinstance(verdict, Hold)
            # Refused as a whole; alone, some of them may be granted.
            for device in own if isinstance(verdict, Deny) else []:
                alone = self._judged(operator, job, [device.id], [self._site])
                held = held or isinstance(alone, Hold)
                if isinstance(alone, Deny):
                    refused[device.id] = self._reason(alone)
            if isinstance(verdict, Deny) and not own:
                shut[self._site] = self._reason(verdict)
        for site in sites:
            meant = [
                device
                for device in meanable(self._registry.below(site), target.tgt)
                if target.matches(device.id, device.grains)
            ]
            leaves = list(dict.fromkeys(device.site for device in meant)) or [site]
            there = self._judged(operator, job, [device.id for device in meant], leaves)
            held = held or isinstance(there, Hold)
            if isinstance(there, Deny):
                shut[site] = self._reason(there)
                below += [RefusedDevice(device.site, device.id, device.last_seen, shut[site]) for device in meant]
        reasons = list(dict.fromkeys([*refused.values(), *shut.values()]))
        verdict_word: AuditVerdict = "deny" if reasons else "hold" if held else "allow"
        if reasons:
            self._metrics.add("jobs_denied_from_above")
        statements = self._audit.statements([_deed(operator, job, verdict_word, _both("; ".join(reasons), job.why))])
        return Ruling(held, refused, frozenset(shut), tuple(below), tuple(statements))

    async def cancelling(self, operator: Operator, job: Job, *, issued_here: bool) -> list[Statement]:
        """The audit row of a cancel: of a job of one's own, or one could run oneself. Raises ``PolicyRefused``."""
        if "admin" not in operator.roles and not (issued_here and is_own(job.user, operator)):
            devices = self._meant(compile_target(job.tgt, job.tgt_type))
            ids, sites = [device.id for device in devices], list({device.site for device in devices})
            try:
                verdict = self._judged(operator, job, ids, sites)
            except Refused as refused:
                # From above, where the centre may do anything. Nobody was granted what nobody can read.
                verdict = Deny(f"what the job calls cannot be told: {refused.detail or refused.reason}")
            if isinstance(verdict, Deny):
                await self._audit.refused(_deed(operator, job, "deny", verdict.why, action="cancel"))
                raise self._refusal(operator, job, verdict, f"to cancel job {job.jid} of {job.user}: ")
        return self._audit.statements([_deed(operator, job, "allow", "", action="cancel")])

    async def releasing(self, operator: Operator, job: Job, *, issued_here: bool) -> list[Statement]:
        """The audit row of a release. Nobody releases what he asked for himself. Raises ``PolicyRefused``."""
        if issued_here and is_own(job.user, operator):
            await self._audit.refused(_deed(operator, job, "deny", "a job of his own", action="release"))
            raise PolicyRefused(
                f"{operator.name} may not release a job of his own",
                error_id="policy.own_job",
                found=f"job {job.jid} of {job.user}: {call_text(job.fun, job.arg, job.kwarg)}",
                allowed="a release by another approver or admin",
            )
        return self._audit.statements([_deed(operator, job, "allow", "", action="release")])

    async def firing(self, operator: Operator, events: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Statement]:
        """The audit row of events that somebody fires, each a tag with data. Raises ``PolicyRefused``."""
        named = [tag for tag, _ in events[:TAGS_NAMED]]
        subject = ", ".join(named) + (f" and {len(events) - TAGS_NAMED} more" if len(events) > TAGS_NAMED else "")
        deed = Deed(user=operator.name, door=operator.door, action="fire", subject=subject, verdict="allow", fun=FIRE)
        for tag, data in events:
            denied = self._firing_denied(operator, tag, data)
            if denied is not None:
                await self._audit.refused(dataclass_replace(deed, verdict="deny", why=denied.why))
                raise self._refused(operator, denied, f"{FIRE} {tag}"[:REASON_CHARACTERS])
        return self._audit.statements([deed])

    def firing_refusal(self, operator: Operator, tag: str, data: Mapping[str, Any]) -> PolicyRefused | None:
        """Return what ``firing`` would raise for an event; None if it may be fired. Records nothing."""
        denied = self._firing_denied(operator, tag, data)
        return None if denied is None else self._refused(operator, denied, f"{FIRE} {tag}"[:REASON_CHARACTERS])

    def _firing_denied(self, operator: Operator, tag: str, data: Mapping[str, Any]) -> Deny | None:
        now = self._clock.wall()
        verdict = self._policy().judge(operator, FIRE, [tag, data], {}, [], [self._site], now)
        if isinstance(verdict, Hold):
            return Deny("an event cannot wait for a release", f"a rule for {FIRE} without hold")
        return verdict if isinstance(verdict, Deny) else None

    def reading(self, operator: Operator, tgt: str, names: Sequence[str], devices: Sequence[tuple[str, str]]) -> None:
        """Whether somebody may read what these devices (site and id) keep in the mine: as if he ran ``mine.get`` there.

        Raises ``PolicyRefused``.
        """
        if "admin" in operator.roles or not devices:
            return
        sites, ids = list({site for site, _ in devices}), [device for _, device in devices]
        asked = [tgt, ",".join(names)]
        verdict = self._policy().judge(operator, MINE, asked, {}, ids, sites, self._clock.wall())
        if isinstance(verdict, Allow):
            beyond = [
                (site, device)
                for site, device in devices
                if (verdict.within and not matches_any(verdict.within, device))
                or (verdict.sites and not matches_any(verdict.sites, site))
            ]
            if not beyond:
                return
            granted = ", ".join([*verdict.within, *(f"site {site}" for site in verdict.sites)])
            verdict = Deny(f"{beyond[0][1]} of {beyond[0][0]} is not among the devices that are granted", granted)
        elif isinstance(verdict, Hold):
            verdict = Deny("what is read at once cannot wait for a release", f"a rule for {MINE} without hold")
        raise self._refused(operator, verdict, f"{MINE} {tgt}"[:REASON_CHARACTERS])

    def targeting(self, operator: Operator, target: Target) -> None:
        """Whether somebody may look which devices a target means. Raises ``PolicyRefused``."""
        verdict = self._by_pillar(operator, target)
        if verdict is not None:
            raise self._refused(operator, verdict, f"{target.tgt_type}: {target.tgt}"[:REASON_CHARACTERS])

    def _by_pillar(self, operator: Operator, target: Target) -> Deny | None:
        """Who may find devices by their pillar can find out what is in it: only who may read that of all of them."""
        if not target.needs_pillar or "admin" in operator.roles:
            return None
        verdict = self._policy().judge(operator, PILLAR, [], {}, [], [], self._clock.wall())
        if isinstance(verdict, Allow) and not (verdict.within or verdict.sites):
            return None
        return Deny(
            f"a target by pillar tells what is in the pillar of every device, and {PILLAR} is not granted on all",
            "a target by name, grain or address",
        )

    def _meant(self, target: Target) -> list[Device]:
        return [
            device
            for device in meanable(self._registry.everything(), target.tgt)
            if target.matches(device.id, device.grains)
        ]

    def _judged(self, operator: Operator, job: Job, ids: list[str], sites: list[str]) -> Verdict:
        return _of_all(self._each_judged(operator, job, ids, sites))

    def _each_judged(self, operator: Operator, job: Job, ids: list[str], sites: list[str]) -> list[Verdict]:
        """The verdict on each function of a job. Raises ``Refused`` for what is no list of functions."""
        # Whoever issues a sealed job here says here what it does; of one from above there is only its issuer's word.
        hidden = job.sealed and operator.door == "above"
        made = [Call(job.fun, job.arg, job.kwarg)] if hidden else calls(job.fun, job.arg, job.kwarg)
        policy, now = self._policy(), self._clock.wall()
        return [policy.judge(operator, *call, ids, sites, now, hidden=hidden) for call in made]

    def _reaches(self, verdict: Allow | Hold, site: str) -> bool:
        """Whether a site below is one of those that are granted, or the way to one."""
        leaves = {site, *(device.site for device in self._registry.below(site))}
        return not verdict.sites or any(matches_any(verdict.sites, leaf) for leaf in leaves)

    def _refusal(self, operator: Operator, job: Job, verdict: Deny, before: str = "") -> PolicyRefused:
        asked = f"{before}{call_text(job.fun, job.arg, job.kwarg)} on {_target_text(job)}"[:REASON_CHARACTERS]
        return self._refused(operator, verdict, asked)

    def _refused(self, operator: Operator, verdict: Deny, asked: str) -> PolicyRefused:
        policy = self._policy()
        if not operator.may("run"):
            return not_allowed(policy, operator, "run", asked)
        where = f"a rule in {policy.source}" if policy.source else "a policy file with a rule for it"
        return PolicyRefused(
            f"{operator.name} may not do this: {verdict.why}",
            error_id="policy.rule",
            where=f"role {', '.join(sorted(operator.roles))}",
            found=asked,
            allowed=verdict.allowed or operator.role_words(),
            hint=f"ask an admin to run it, or for {where}",
        )

    def _reason(self, verdict: Deny) -> str:
        allowed = f"; it grants {verdict.allowed}" if verdict.allowed else ""
        return f"the policy of site {self._site}: {verdict.why}{allowed}"[:REASON_CHARACTERS]


def _of_all(verdicts: Sequence[Verdict]) -> Verdict:
    """A job goes when each of its calls may, and waits when one of them has to."""
    worst: list[Verdict] = [each for each in verdicts if isinstance(each, Deny)]
    worst += [each for each in verdicts if isinstance(each, Hold)]
    return (worst or verdicts)[0]


def _deed(
    operator: Operator, job: Job, verdict: AuditVerdict, why: str, *, action: str = "run", jid: str | None = None
) -> Deed:
    return Deed(
        # Whoever asks for a job may have said on whose behalf, which stands in the job beside his name.
        user=job.user if action == "run" else operator.name,
        door=operator.door,
        action=action,
        subject=_target_text(job),
        verdict=verdict,
        why=why,
        jid=job.jid if jid is None else jid,
        fun=title(job.fun, job.arg, job.kwarg),
        arguments="" if job.sealed else _arguments(job),
    )


def _arguments(job: Job) -> str:
    """The arguments as they would be typed, and the commits of the files that they name."""
    typed = call_text(job.fun if job.fun == SEVERAL else "", job.arg, job.kwarg).strip()
    return f"{typed} (files of {job.commits})" if job.commits else typed


def _target_text(job: Job) -> str:
    signed = job.tgt if job.tgt_type == "glob" else f"{job.tgt_type}: {job.tgt}"
    return f"{job.typed_type}: {job.typed} = {signed}" if job.typed else signed


def _both(reason: str, why: str) -> str:
    """The reason of an answer with the one that was given for asking."""
    return f"{reason} (asked because: {why})" if reason and why else reason or why
