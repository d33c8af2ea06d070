"""Keys in the API: of devices on a gateway, of sites on a master, of both on a relay; and what lets devices in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, get_args

from device_agent.errors import NotFound, PolicyRefused, UsageInvalid
from gateway.api.devices import RefusedOf, refused_by
from gateway.api.key_requests import (
    ExpectedList,
    JoinTokenWish,
    KeyAcceptance,
    KeyChoice,
    KeyKind,
    KeyReason,
    MatchingDevices,
    WindowTerms,
)
from gateway.api.operation import Answer, Asked, Handler, Operation, whole
from gateway.audit.book import AuditBook
from gateway.audit.deed import Deed
from gateway.devices.doors import TokenWish
from gateway.devices.enrolled import Enrolled, EnrollmentState
from gateway.devices.enrollment import Enrollment
from gateway.devices.enrollment_journal import Asker
from gateway.devices.naming import DEFAULT_TEMPLATE
from gateway.devices.site_keys import SiteKeys
from gateway.devices.verdicts import Outcome
from gateway.fleet import armor
from gateway.fleet.grants import Grant
from upstream.curve import CurveKeys, fingerprint

PAGE = 1000
STATES = (*get_args(EnrollmentState), "denied")

RevokeSite = Callable[[str, str, str, str], Awaitable[object]]
"""Puts a site out for good: its name, the user, the door, and why."""


class KeysApi:
    """Operations on keys. Without an ``enrollment`` there are only those of sites."""

    def __init__(
        self,
        *,
        site: str,
        site_keys: SiteKeys,
        revoke_site: RevokeSite,
        keys: CurveKeys,
        enrollment: Enrollment | None,
        audit: AuditBook,
        refused_of: RefusedOf = dict,
    ) -> None:
        self._site = site
        self._site_keys = site_keys
        self._revoke_site = revoke_site
        self._keys = keys
        self._enrollment = enrollment
        self._audit = audit
        self._refused_of = refused_of

    def operations(self) -> list[Operation]:
        """The table."""
        return [
            Operation(
                "GET",
                "/keys",
                "This station's key, and the keys of sites and devices",
                self._list,
                query={
                    "name": "only those that a name, a did, a serial number or a fingerprint means",
                    "kind": "site or device",
                    "state": f"only those in this state: {', '.join(STATES)}",
                    "limit": f"at most so many, up to {PAGE}; default {PAGE}",
                    "after": "the cursor of the page before",
                },
            ),
            _decision("/keys/{name}/accept", "Accept a key", self._accept, "keys.accept", body=KeyAcceptance),
            _decision("/keys/{name}/reject", "Reject a key", self._reject, "keys.reject", body=KeyChoice),
            _decision("/keys/{name}/revoke", "Revoke a key for good", self._revoke, "keys.revoke", body=KeyReason),
            Operation(
                "GET",
                "/keys/matching",
                "Devices in the open join window that claim such a serial number",
                self._matching,
                query={"serial": "a glob"},
            ),
            _decision(
                "/keys/matching",
                "Let those in that claim such a serial number; they stay marked as unproven",
                self._accept_matching,
                "keys.accept",
                body=MatchingDevices,
            ),
            Operation("GET", "/keys/expected", "Keys that are expected", self._expected),
            _decision("/keys/expected", "Expect keys", self._expect, "keys.expect", body=ExpectedList),
            Operation("GET", "/keys/window", "The join window, and why devices may ask", self._window),
            _opening("/keys/window/open", "Open a join window", self._open, "keys.window.open", body=WindowTerms),
            _opening("/keys/window/close", "Close the join window", self._close, "keys.window.close"),
            Operation("GET", "/keys/tokens", "Join tokens, without their secrets", self._tokens),
            _opening(
                "/keys/tokens",
                "Make join tokens; their text is said this once",
                self._new_tokens,
                "keys.token.new",
                body=JoinTokenWish,
                status=201,
            ),
            _opening("/keys/tokens/{id}/revoke", "End a join token", self._revoke_token, "keys.token.revoke"),
        ]

    # --- looking ---------------------------------------------------------------------------------------------------

    async def _list(self, asked: Asked) -> Answer:
        name, kind, state = (asked.query.get(key) for key in ("name", "kind", "state"))
        if kind not in (None, *get_args(KeyKind)) or state not in (None, *STATES):
            raise UsageInvalid(
                "no such kind or state of keys", found=f"{kind or state}", allowed=f"site, device; {', '.join(STATES)}"
            )
        limit, after = whole(asked, "limit", PAGE, PAGE), asked.query.get("after", "")
        found: list[tuple[str, dict[str, Any] | Enrolled]] = []
        if kind != "device":
            found += [
                (f"0/{view['site']}/{view['key']}", view)
                for view in self._sites(name)
                if state in (None, view["state"])
            ]
        if kind != "site":
            found += [
                (f"1/{STATES.index(device.state)}/{device.label}/{device.did}", device)
                for device in self._devices(name)
                if state in (None, device.state)
            ]
        listed = sorted((entry for entry in found if entry[0] > after), key=lambda entry: entry[0])
        page = listed[:limit]
        own = {"public_key": self._keys.public, "fingerprint": fingerprint(self._keys.public)}
        refused = self._refused_of()
        return {
            "station": own,
            "keys": [
                {**each.view(self._site), "refused": refused_by(refused, each.label, each.did)}
                if isinstance(each, Enrolled)
                else each
                for _, each in page
            ],
            "next": page[-1][0] if page and len(listed) > len(page) else None,
        }

    def _sites(self, name: str | None) -> list[dict[str, Any]]:
        return [
            {**view, "kind": "site", "name": view["site"]}
            for view in self._site_keys.views()
            if name is None or name in (view["site"], view["fingerprint"])
        ]

    def _devices(self, name: str | None) -> list[Enrolled]:
        if self._enrollment is None:
            return []
        return self._enrollment.verdicts.find(name) if name is not None else list(self._enrollment.all())

    async def _matching(self, asked: Asked) -> Answer:
        found = self._here().verdicts.matching(asked.query.get("serial", "*"))
        return {"keys": self._views(found)}

    async def _expected(self, _: Asked) -> Answer:
        return {"expected": self._here().doors.expected.views()}

    async def _window(self, _: Asked) -> Answer:
        return self._here().doors.view()

    async def _tokens(self, _: Asked) -> Answer:
        return {"tokens": self._here().doors.token_views()}

    # --- deciding --------------------------------------------------------------------------------------------------

    async def _accept(self, asked: Asked) -> Answer:
        name, wanted = asked.path["name"], asked.body
        if self._kind(name, "site" if wanted.request is not None else wanted.kind) == "device":
            accepted = await self._here().verdicts.accept(name, wanted.fingerprint, wanted.name, _asker(asked))
            return {"keys": self._views([accepted])}
        grant = Grant(tuple(wanted.grants), wanted.origin, wanted.only, wanted.days)
        if grant != Grant():
            self._need_admin(asked, "only an admin grants functions to a site")
        bundle = {}
        if wanted.request is None:
            changed = await self._site_keys.accept(name, wanted.fingerprint, grant)
        else:
            changed = await self._site_keys.accept_request(armor.unwrap("os-request", wanted.request), name, grant)
            bundle = {"bundle": self._site_keys.bundle(name)}
        await self._note(asked, "keys.accept", name, ", ".join(grant.functions))
        return {"keys": self._site_views(changed), **bundle}

    async def _reject(self, asked: Asked) -> Answer:
        name, wanted = asked.path["name"], asked.body
        if self._kind(name, wanted.kind) == "site":
            changed = await self._site_keys.reject(name, wanted.fingerprint)
            await self._note(asked, "keys.reject", name)
            return {"keys": self._site_views(changed)}
        here = self._here()
        if not here.verdicts.find(name) and here.doors.expected.find(name) is not None:
            entry = await here.doors.expect_no_more(name, _asker(asked))
            return {"keys": [], "expected_no_more": [entry.key]}
        return {"keys": self._views(await here.verdicts.reject(name, wanted.fingerprint, _asker(asked)))}

    async def _revoke(self, asked: Asked) -> Answer:
        # An approver lets in and turns away; what belongs here and works is not his to end.
        self._need_admin(asked, "only an admin revokes a key")
        name, wanted = asked.path["name"], asked.body
        if self._kind(name, wanted.kind) == "site":
            await self._revoke_site(name, asked.operator.name, asked.operator.door, wanted.why)
            return {"keys": self._sites(name)}
        return {"keys": self._views([await self._here().verdicts.revoke(name, wanted.why, _asker(asked))])}

    def _kind(self, name: str, said: KeyKind | None) -> KeyKind:
        """Whether a name means a site or a device. Raises ``UsageInvalid`` when it could be either."""
        if said is not None:
            return said
        if self._enrollment is None:
            return "site"
        devices, sites = self._devices(name), self._sites(name)
        if devices and sites:
            raise UsageInvalid(
                f"{name} is a site and a device here",
                error_id="keys.site_or_device",
                found=f"site {name}, device {devices[0].label}",
                allowed="one of them: --site or --device",
                hint=f"outstation keys show {name}",
            )
        return "site" if sites or (not devices and self._site_keys.views()) else "device"

    async def _accept_matching(self, asked: Asked) -> Answer:
        wanted = asked.body
        outcome = await self._here().verdicts.accept_matching(wanted.serial, wanted.name, wanted.dids, _asker(asked))
        return self._outcome(outcome)

    async def _expect(self, asked: Asked) -> Answer:
        listed = [(entry.key, entry.name) for entry in asked.body.keys]
        outcome = await self._here().verdicts.expect(listed, _asker(asked))
        return {"expected": len(listed) - len(outcome.accepted), **self._outcome(outcome)}

    # --- window and tokens -----------------------------------------------------------------------------------------

    async def _open(self, asked: Asked) -> Answer:
        terms = asked.body
        doors = self._here().doors
        await doors.open_window(
            seconds=terms.seconds, most=terms.max, subnet=terms.subnet, model=terms.model, asker=_asker(asked)
        )
        return doors.view()

    async def _close(self, asked: Asked) -> Answer:
        doors = self._here().doors
        await doors.close_window(_asker(asked))
        return doors.view()

    async def _new_tokens(self, asked: Asked) -> Answer:
        wanted, doors = asked.body, self._here().doors
        wish = TokenWish(
            uses=wanted.uses,
            serial=wanted.serial,
            seconds=wanted.seconds,
            name=wanted.name or DEFAULT_TEMPLATE,
            address=wanted.address,
            number=wanted.count,
        )
        made = await doors.new_tokens(wish, _asker(asked))
        return {"tokens": [{**doors.token_view(token), "text": doors.text(token)} for token in made]}

    async def _revoke_token(self, asked: Asked) -> Answer:
        doors = self._here().doors
        return doors.token_view(await doors.revoke_token(asked.path["id"], _asker(asked)))

    # --- inside ----------------------------------------------------------------------------------------------------

    def _here(self) -> Enrollment:
        if self._enrollment is None:
            raise NotFound(
                "this station has no devices of its own, so no device joins here",
                error_id="keys.no_devices",
                allowed="a gateway",
                hint="run it on the gateway, whose devices these are",
            )
        return self._enrollment

    def _views(self, devices: list[Enrolled]) -> list[dict[str, Any]]:
        return [device.view(self._site) for device in devices]

    def _outcome(self, outcome: Outcome) -> dict[str, Any]:
        return {"keys": self._views(outcome.accepted), "waiting": outcome.waiting}

    @staticmethod
    def _site_views(changed: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**view, "kind": "site", "name": view["site"]} for view in changed]

    async def _note(self, asked: Asked, action: str, site: str, why: str = "") -> None:
        deed = Deed(
            user=asked.operator.name,
            door=asked.operator.door,
            action=action,
            subject=f"site {site}",
            verdict="allow",
            why=why,
        )
        await self._audit.write([deed])

    @staticmethod
    def _need_admin(asked: Asked, what: str) -> None:
        if not asked.operator.may("admin"):
            raise PolicyRefused(
                what, error_id="policy.admin", found=asked.operator.role_words(), allowed="the role admin"
            )


def _decision(path: str, summary: str, handler: Handler, action: str, body: type[Any] | None = None) -> Operation:
    """What was decided is kept with what it changes; under the same word, here, that somebody may not."""
    return Operation("POST", path, summary, handler, body=body, needs="keys", action=action, own_row=True)


def _opening(
    path: str, summary: str, handler: Handler, action: str, body: type[Any] | None = None, status: int = 200
) -> Operation:
    """The same for what lets devices come before anybody has looked at one: no approver's to decide."""
    return Operation(
        "POST", path, summary, handler, body=body, status=status, needs="admin", action=action, own_row=True
    )


def _asker(asked: Asked) -> Asker:
    return Asker(asked.operator.name, asked.operator.door)
