"""Do the releases that work together fit together?"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

from device_agent import __version__
from gateway.checks.box import Box
from gateway.checks.finding import Facts, Finding

PACKAGE: Final = "outstation"
NAMED: Final = 5


async def check(facts: Facts) -> list[Finding]:
    """A finding when another release is installed than the one that runs, and one for sites that have another."""
    installed = _installed()
    found = []
    if installed not in ("", __version__):
        found.append(
            Finding(
                check="versions",
                severity="warning",
                finding=f"release {__version__} runs, and {installed} is installed",
                meaning="an upgrade was not finished: what was mended in it is not mended here yet",
                fix=f"systemctl restart {facts.box().unit}",
                about="installed",
            )
        )
    newer, older = _other_sites(facts)
    if newer:
        found.append(
            Finding(
                check="versions",
                severity="warning",
                finding=f"sites with a newer release than this station's {__version__}: {_named(newer)}",
                meaning="they may tell what this station does not understand; it refuses and counts that",
                fix="upgrade this station first: apt install ./outstation_VERSION.deb",
                about="newer sites",
            )
        )
    if older:
        found.append(
            Finding(
                check="versions",
                severity="info",
                finding=f"sites with an older release than this station's {__version__}: {_named(older)}",
                meaning="they go on; what is new in this release they do not have",
                fix="on the gateways: apt install ./outstation_VERSION.deb",
                about="older sites",
            )
        )
    return found or [Finding(check="versions", severity="ok", finding=f"release {__version__}")]


def at_rest(_: Box) -> list[Finding]:
    """Which release would start."""
    return [Finding(check="versions", severity="ok", finding=f"release {_installed() or __version__}")]


def _installed() -> str:
    """The release on the disk, which may be newer than what was loaded; empty where it is not installed at all."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return ""


def _other_sites(facts: Facts) -> tuple[list[str], list[str]]:
    newer: list[str] = []
    older: list[str] = []
    for site in facts.site_views():
        release = site.get("version") or ""
        if release and release != __version__:
            (newer if _numbers(release) > _numbers(__version__) else older).append(f"{site['site']} {release}")
    return sorted(newer), sorted(older)


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".") if part.isdigit())


def _named(sites: list[str]) -> str:
    more = f" and {len(sites) - NAMED:,} more" if len(sites) > NAMED else ""
    return ", ".join(sites[:NAMED]) + more
