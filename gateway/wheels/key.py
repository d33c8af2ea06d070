"""``key``: who may be here, in the words of Salt's wheel: devices on a gateway, sites on a master, both on a relay.

A name is accepted here without its fingerprint, which proves nothing: what is let in so is marked as unproven for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from device_agent.errors import PolicyRefused
from device_agent.protocol.globs import WILDCARDS, compile_glob
from gateway.calls.call import About, CallFailed
from gateway.calls.functions import Function
from gateway.calls.running import Running
from gateway.devices.enrolled import Enrolled
from gateway.devices.enrollment import Enrollment
from gateway.devices.enrollment_journal import Asker
from gateway.devices.site_keys import SiteKeys
from upstream.curve import CurveKeys, fingerprint

Section = Literal["minions", "minions_pre", "minions_rejected", "minions_denied"]
SECTIONS: Final[tuple[Section, ...]] = ("minions", "minions_denied", "minions_pre", "minions_rejected")

STATES: Final[Mapping[str, Section]] = {
    "accepted": "minions",
    "pending": "minions_pre",
    "rejected": "minions_rejected",
    # Of one that was accepted two were seen: Salt has no word that is nearer.
    "quarantined": "minions_denied",
    "denied": "minions_denied",
}
WORDS: Final[Mapping[str, Section]] = {
    "acc": "minions",
    "accepted": "minions",
    "pre": "minions_pre",
    "un": "minions_pre",
    "unaccepted": "minions_pre",
    "rej": "minions_rejected",
    "rejected": "minions_rejected",
    "den": "minions_denied",
    "denied": "minions_denied",
}
OWN_KEY: Final = "station.pub"
"""What stands where Salt has the name of the master's key file."""

MADE_THERE: Final = "a device makes its own key, which never leaves it; let it in with `outstation keys token new`"

RevokeSite = Callable[[str, str, str, str], Awaitable[object]]


@dataclass(frozen=True)
class Known:
    """One key of a device or a site. ``did`` is empty for a site."""

    name: str
    section: Section
    fingerprint: str
    public: str
    did: str = ""


class KeyWheel:
    """The wheel. ``enrollment`` is there once the station has devices of its own."""

    enrollment: Enrollment | None = None

    def __init__(self, *, keys: CurveKeys, site_keys: SiteKeys, revoke_site: RevokeSite) -> None:
        self._keys = keys
        self._site_keys = site_keys
        self._revoke_site = revoke_site

    def functions(self) -> list[Function]:
        """What it has."""
        return [
            Function("key.list", self.list_, need="view"),
            Function("key.list_all", self.list_all, need="view"),
            Function("key.name_match", self.name_match, need="view"),
            Function("key.finger", self.finger, need="view"),
            Function("key.finger_master", self.finger_master, need="view"),
            Function("key.key_str", self.key_str, need="view"),
            Function("key.accept", self.accept, need="keys", again=True),
            Function("key.accept_dict", self.accept_dict, need="keys", again=True),
            Function("key.reject", self.reject, need="keys", again=True),
            Function("key.reject_dict", self.reject_dict, need="keys", again=True),
            Function("key.delete", self.delete, need="keys", again=True),
            Function("key.delete_dict", self.delete_dict, need="keys", again=True),
            Function("key.gen", self.gen, need="admin", refused=MADE_THERE),
            Function("key.gen_accept", self.gen, need="admin", refused=MADE_THERE),
            Function("key.gen_keys", self.gen, need="admin", refused=MADE_THERE),
        ]

    # --- looking ---------------------------------------------------------------------------------------------------

    async def list_(self, _: Running, match: str) -> dict[str, list[str]]:
        """List the keys in a state: acc, pre, rej, den, or all.

        CLI example: ``outstation wheel key.list pre``
        """
        if match == "all":
            return self._all()
        section = WORDS.get(match)
        if section is None:
            raise CallFailed(f"there is no state {match!r}; there are all, {', '.join(WORDS)}")
        return {section: self._names(section)}

    async def list_all(self, _: Running) -> dict[str, list[str]]:
        """List all keys by their state.

        CLI example: ``outstation wheel key.list_all``
        """
        return self._all()

    async def name_match(self, _: Running, match: str) -> dict[str, list[str]]:
        """List the keys whose name matches a glob, by their state.

        CLI example: ``outstation wheel key.name_match 'cam-*'``
        """
        return self._matching(match)

    async def finger(self, running: Running, match: str) -> dict[str, dict[str, str]]:
        """Say the fingerprints of the keys whose name matches a glob, by their state.

        CLI example: ``outstation wheel key.finger 'cam-*'``
        """
        return self._told(running, match, lambda known: known.fingerprint)

    async def finger_master(self, _: Running) -> dict[str, dict[str, str]]:
        """Say the fingerprint of this station's own key.

        CLI example: ``outstation wheel key.finger_master``
        """
        return {"local": {OWN_KEY: fingerprint(self._keys.public)}}

    async def key_str(self, running: Running, match: str) -> dict[str, dict[str, str]]:
        """Say the public keys whose name matches a glob, by their state.

        CLI example: ``outstation wheel key.key_str cam-1``
        """
        return self._told(running, match, lambda known: known.public)

    # --- deciding --------------------------------------------------------------------------------------------------

    async def accept(
        self, running: Running, match: str, include_rejected: bool = False, include_denied: bool = False
    ) -> dict[str, list[str]]:
        """Let in those that wait under a name. Devices are marked as unproven: nobody compared a fingerprint.

        A glob is taken while a join window is open.


        CLI example: ``outstation wheel key.accept cam-1``
        """
        if include_rejected or include_denied:
            raise CallFailed("who was turned away is let in by his fingerprint: outstation keys accept")
        chosen = self._chosen(running, match, "minions_pre")
        self._check_window(match, chosen)
        return {"minions": await self._accepted(running, chosen)}

    async def accept_dict(self, running: Running, match: dict[str, list[str]]) -> dict[str, list[str]]:
        """The same for names by their state.

        CLI example: ``outstation wheel key.accept_dict '{minions_pre: [cam-1]}'``
        """
        return {"minions": await self._accepted(running, self._listed(running, match, "minions_pre"))}

    async def reject(
        self, running: Running, match: str, include_accepted: bool = False, include_denied: bool = False
    ) -> dict[str, list[str]]:
        """Turn those away that wait under a name or a glob.

        CLI example: ``outstation wheel key.reject cam-1``
        """
        if include_accepted or include_denied:
            raise CallFailed("who belongs here is not turned away but put out: outstation wheel key.delete")
        return {"minions_rejected": await self._rejected(running, self._chosen(running, match, "minions_pre"))}

    async def reject_dict(self, running: Running, match: dict[str, list[str]]) -> dict[str, list[str]]:
        """The same for names by their state.

        CLI example: ``outstation wheel key.reject_dict '{minions_pre: [cam-1]}'``
        """
        return {"minions_rejected": await self._rejected(running, self._listed(running, match, "minions_pre"))}

    async def delete(self, running: Running, match: str) -> dict[str, list[str]]:
        """Put out for good whom a name or a glob means, and turn away those that wait; it takes an admin to put out.

        CLI example: ``outstation wheel key.delete cam-1``
        """
        await self._deleted(running, self._chosen(running, match))
        return self._listing()

    async def delete_dict(self, running: Running, match: dict[str, list[str]]) -> dict[str, list[str]]:
        """The same for names by their state.

        CLI example: ``outstation wheel key.delete_dict '{minions: [cam-1]}'``
        """
        await self._deleted(running, self._listed(running, match, *SECTIONS))
        return self._listing()

    async def gen(self, _: Running, id_: str = "", keysize: int = 2048) -> None:
        """Make a key for a device: refused here.

        CLI example: ``outstation wheel key.gen``
        """

    async def _accepted(self, running: Running, chosen: Sequence[Known]) -> list[str]:
        asker = _asker(running)
        sites = [known for known in chosen if not known.did]
        names = [await self._site_accepted(known) for known in sites]
        about = running.call.about
        # It is let in under what it went by when that was judged, whatever it says of itself by now.
        devices = {known.did: about.id if about and about.did == known.did else "" for known in chosen if known.did}
        if devices and self.enrollment is not None:
            why = f"unproven, wheel key.accept {running.jid}"
            outcome = await self.enrollment.verdicts.accept_unproven(devices, why, asker)
            if outcome.waiting:
                told = "; ".join(f"{did}: {why}" for did, why in sorted(outcome.waiting.items()))
                raise CallFailed(f"not all were let in: {told}")
            names += [device.label for device in outcome.accepted]
        return sorted(names)

    async def _site_accepted(self, known: Known) -> str:
        await self._site_keys.accept(known.name, known.fingerprint)
        return known.name

    async def _rejected(self, running: Running, chosen: Sequence[Known]) -> list[str]:
        for known in chosen:
            if not known.did:
                await self._site_keys.reject(known.name, known.fingerprint)
            elif self.enrollment is not None:
                await self.enrollment.verdicts.reject(known.did, None, _asker(running))
        return sorted(known.name for known in chosen)

    async def _deleted(self, running: Running, chosen: Sequence[Known]) -> None:
        belonging = [known for known in chosen if known.section == "minions" or (known.did and _belongs(known))]
        if belonging and not running.operator.may("admin"):
            raise PolicyRefused(
                "only an admin puts out who belongs here",
                error_id="policy.admin",
                found=", ".join(known.name for known in belonging[:5]),
                allowed=running.operator.role_words(),
            )
        why, asker = f"wheel key.delete {running.jid}", _asker(running)
        for known in belonging:
            if not known.did:
                await self._revoke_site(known.name, asker.user, asker.door, why)
            elif self.enrollment is not None:
                await self.enrollment.verdicts.revoke(known.did, why, asker)
        await self._rejected(running, [known for known in chosen if known.section == "minions_pre"])

    # --- who is there ----------------------------------------------------------------------------------------------

    def _known(self) -> list[Known]:
        devices = list(self.enrollment.all()) if self.enrollment is not None else []
        found = [_device(device) for device in devices if device.state in STATES]
        sites = [view for view in self._site_keys.views() if view["state"] in STATES]
        return found + [Known(view["site"], STATES[view["state"]], view["fingerprint"], view["key"]) for view in sites]

    def _names(self, section: Section, match: str = "*") -> list[str]:
        matches = compile_glob(match)
        return sorted({known.name for known in self._known() if known.section == section and matches(known.name)})

    def _listing(self) -> dict[str, list[str]]:
        return {section: self._names(section) for section in SECTIONS}

    def _all(self) -> dict[str, list[str]]:
        return {"local": [OWN_KEY], **self._listing()}

    def _matching(self, match: str) -> dict[str, list[str]]:
        found = {section: self._names(section, match) for section in SECTIONS}
        return {section: names for section, names in found.items() if names}

    def _told(self, running: Running, match: str, say: Callable[[Known], str]) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for known in self._chosen(running, match):
            found.setdefault(known.section, {})[known.name] = say(known)
        return found

    def _chosen(self, running: Running, match: str, *sections: Section) -> list[Known]:
        matches = compile_glob(match)
        return [
            known
            for known in self._known()
            if (not sections or known.section in sections)
            and _meant(known, match, running.call.about, matches(known.name) or known.did == match)
        ]

    def _listed(self, running: Running, match: Mapping[str, list[str]], *sections: Section) -> list[Known]:
        return [
            known
            for known in self._known()
            if known.section in sections
            and any(
                _meant(known, name, running.call.about, known.name == name) for name in match.get(known.section, [])
            )
        ]

    def _check_window(self, match: str, chosen: Sequence[Known]) -> None:
        """A pattern over devices that nobody has looked at counts only while somebody said that they may come."""
        if not WILDCARDS.intersection(match) or not any(known.did for known in chosen) or self.enrollment is None:
            return
        if self.enrollment.doors.window.open is None:
            raise PolicyRefused(
                "a pattern proves nothing, so it needs an open join window",
                error_id="window.closed",
                hint="outstation keys window open --for 10m --max N",
            )


def _device(device: Enrolled) -> Known:
    return Known(device.label, STATES[device.state], device.fingerprint, device.sig.hex(), device.did)


def _meant(known: Known, match: str, about: About | None, fits: bool) -> bool:
    """Whether this one is meant: by what fits, but a name of the device that a call is about means that one alone."""
    if about is None or match not in (about.id, about.did):
        return fits
    return bool(about.did) and known.did == about.did


def _belongs(known: Known) -> bool:
    return known.section in ("minions", "minions_denied")


def _asker(running: Running) -> Asker:
    operator = running.operator
    return Asker(operator.name, operator.door)
