"""Does what this station is vouched for with still count, and for how long?"""

from __future__ import annotations

from typing import Any

from device_agent.clock import iso
from gateway.checks.box import Box
from gateway.checks.finding import Facts, Finding, Severity
from gateway.devices.authority import Authority
from gateway.fleet.join_words import JOIN
from upstream.curve import load_or_make

DAY_SECONDS = 86_400
CERTIFICATE_DAYS = 7
"""A certificate is renewed long before so few days are left, or half its life, as long as a master is reached."""

ROOT_DAYS = 330
ROOT_LONGEST_DAYS = 400
"""A root list is issued anew at least yearly; no clock is led further beyond it than this."""

_DATE = (
    "if this is not the date of today: sudo timedatectl set-ntp false; sudo timedatectl set-time 'YYYY-MM-DD HH:MM:SS'"
)
_RENEW = (
    "let this machine reach a master, which renews it by itself; without a network: outstation gateway init --file"
    " REQUEST, on a master outstation keys accept SITE --request REQUEST --bundle BUNDLE, here outstation gateway join"
    " --bundle BUNDLE"
)


async def check(facts: Facts) -> list[Finding]:
    """Findings about the place in the fleet, the site certificate and the root list."""
    return judged(facts.fleet_view(), facts.now())


def at_rest(box: Box) -> list[Finding]:
    """The same from the files of a station that does not run. Raises ``ConfigInvalid`` for damaged ones."""
    folder = box.state_dir
    if not ((folder / "curve.key").exists() and (folder / "trust.keys").exists()):
        # It makes its keys when it starts; looking at them must not.
        return _standing(box.role, joined=False, root=None)
    curve = load_or_make(folder / "curve.key")
    authority = Authority(folder, role=box.role, site=box.settings.name, curve=curve, clock=box.clock)
    return judged(authority.view(), authority.now())


def judged(fleet: dict[str, Any], now: float) -> list[Finding]:
    """Findings about a standing, as the API shows it."""
    lapsed = "" if fleet["joined"] else fleet.get("lapsed") or ""
    if lapsed and lapsed != "expired":
        return [_no_certificate(f"the site certificate does not count any more ({lapsed})", _RENEW)]
    found = [] if lapsed else _standing(fleet["role"], joined=fleet["joined"], root=fleet["root_version"])
    if fleet["expires"] is not None:
        found += _certificate(fleet["certified"], fleet["expires"], now)
    # A clock that runs ahead lets the root list look old as well, and that is not what there is to mend.
    if fleet["root_issued"] is not None and not lapsed:
        found += _root_list(fleet["root_version"], fleet["root_issued"], now)
    return found or [_fine(fleet["root_version"], fleet["expires"], now)]


def _fine(version: int, expires: int | None, now: float) -> Finding:
    until = ""
    if expires is not None:
        until = f", certificate until {iso(expires)}, {(expires - now) / DAY_SECONDS:.0f} days from now"
    return Finding(check="trust", severity="ok", finding=f"root list version {version}{until}")


def _standing(role: str, *, joined: bool, root: int | None) -> list[Finding]:
    if joined:
        return []
    if role == "master" and root is not None:
        return [
            Finding(
                check="trust",
                severity="error",
                finding="this master is not in the newest root list",
                meaning="whatever it signs, no gateway and no device believes it",
                fix="where the root keys are: outstation fleet add-master; here: outstation fleet publish FILE",
            )
        ]
    if role == "master":
        fix = "outstation master init, and then where the root keys are: outstation fleet add-master DESCRIPTION"
    else:
        fix = f"{JOIN}, and then on the master: outstation keys accept SITE"
    return [
        Finding(
            check="trust",
            severity="warning",
            finding="nobody vouches for this station yet",
            meaning="no device takes a job from it, and it can let none in",
            fix=fix,
        )
    ]


def _certificate(issued: int, expires: int, now: float) -> list[Finding]:
    left = expires - now
    if left > min(CERTIFICATE_DAYS * DAY_SECONDS, (expires - issued) / 2):
        return []
    if left > 0:
        return [_no_certificate(f"the site certificate ends at {iso(expires)}", _RENEW, severity="warning")]
    ended = f"the site certificate expired at {iso(expires)}, and the clock of this machine says {iso(now)}"
    return [_no_certificate(ended, f"{_DATE}; if it is, {_RENEW}")]


def _no_certificate(finding: str, fix: str, *, severity: Severity = "error") -> Finding:
    return Finding(
        check="trust",
        about="certificate",
        severity=severity,
        finding=finding,
        meaning="without it no device speaks with this station any more, a day after at the latest:"
        " no job reaches them, a master's neither, and no new device gets in",
        fix=fix,
    )


def _root_list(version: int, issued: float, now: float) -> list[Finding]:
    days = (now - issued) / DAY_SECONDS
    if days < ROOT_DAYS:
        return []
    return [
        Finding(
            check="trust",
            about="root list",
            severity="error" if days >= ROOT_LONGEST_DAYS else "warning",
            finding=f"root list version {version} is {days:.0f} days old",
            meaning="devices without a clock learn the time from it; it is issued anew at least once a year",
            fix="where the root keys are: outstation fleet rotate; then on a master: outstation fleet publish FILE",
        )
    ]
