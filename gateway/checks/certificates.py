"""For how long do the certificates count that an administrator has put here? ``trust`` is about those of the fleet."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cryptography import x509

from device_agent.clock import iso
from gateway.checks.box import Box
from gateway.checks.finding import Facts, Finding

DAY_SECONDS: Final = 86_400
WARN_DAYS: Final = 21
"""Whoever renews by machine does so a month before; then three weeks mean that it did not work."""


async def check(facts: Facts) -> list[Finding]:
    """A finding about the certificate of the API; none where it has none."""
    return at_rest(facts.box())


def at_rest(box: Box) -> list[Finding]:
    """The same from the files alone."""
    api = box.settings.api
    if api is None or api.certificate is None:
        return []
    path = Path(api.certificate)
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no certificate in PEM"
        return [
            _wrong(
                f"the certificate of the API cannot be read: {path}: {why}",
                f"ls -l {path}; set api.certificate in the settings, then systemctl reload {box.unit}",
            )
        ]
    now, first = box.clock.wall(), certificate.not_valid_before_utc.timestamp()
    last = certificate.not_valid_after_utc.timestamp()
    fix = f"put a new one to {path} and its key to {api.key}, then systemctl reload {box.unit}"
    if now >= last:
        return [_wrong(f"the certificate of the API ended at {iso(last)}", fix)]
    if now < first:
        return [_wrong(f"the certificate of the API counts from {iso(first)} on, and not yet", "timedatectl")]
    days = f"in {(last - now) / DAY_SECONDS:.0f} days"
    if last - now < WARN_DAYS * DAY_SECONDS:
        return [
            Finding(
                check="certificates",
                severity="warning",
                finding=f"the certificate of the API ends {days}, at {iso(last)}",
                meaning="after that nobody's outstation --api gets in any more; the socket on this machine goes on",
                fix=fix,
            )
        ]
    return [Finding(check="certificates", severity="ok", finding=f"that of the API ends {days}, at {iso(last)}")]


def _wrong(finding: str, fix: str) -> Finding:
    return Finding(
        check="certificates",
        severity="error",
        finding=finding,
        meaning="nobody gets in with outstation --api; the socket on this machine goes on",
        fix=fix,
    )
