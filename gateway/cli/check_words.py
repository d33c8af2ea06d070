"""What ``outstation check`` prints: the worst first, what is healthy in one line, and a sum at the end."""

from __future__ import annotations

import shutil
from textwrap import wrap
from typing import TYPE_CHECKING

from gateway.cli.text import safe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.cli.check_asked import Report
    from gateway.cli.output import Output
    from gateway.cli.views import Finding, StationView

STYLES = {"ok": "green", "info": "", "warning": "yellow", "error": "red"}
ORDER = ("error", "warning", "info", "ok")
INFOS = 5
"""So many notes are shown without --all: they ask for nothing."""

INDENT = 24
LABEL = 7
LEAST_WIDTH = 40


def show(output: Output, report: Report, *, every: bool) -> None:
    """Everything in words, for people."""
    output.note(heading(report))
    findings = sorted(report.findings, key=_place)
    infos = [finding for finding in findings if finding.severity == "info"]
    left_out = [] if every else infos[INFOS:]
    for finding in findings:
        if finding in left_out or (finding.severity == "ok" and not every):
            continue
        _finding(output, finding, whole=every or finding.severity in ("error", "warning"))
    if left_out:
        output.line(f"{'':<{INDENT}}and {len(left_out)} more notes: outstation check --all")
    fine = list(dict.fromkeys(safe(finding.check) for finding in findings if finding.severity == "ok"))
    if fine and not every:
        _lines(output, "ok", "", ", ".join(fine))
    output.line(*_sum(findings))


def as_json(output: Output, report: Report) -> None:
    """One object for each finding."""
    for finding in sorted(report.findings, key=_place):
        output.record("finding", finding)


def news(output: Output, report: Report) -> None:
    """What has changed since it was told last; of a station that does not run, what is wrong: nobody else tells it."""
    if not report.running:
        for finding in sorted(report.findings, key=_place):
            if finding.severity in ("error", "warning"):
                _finding(output, finding, whole=True)
    for each in report.news:
        output.line(
            (f"{safe(each.severity):<8}", STYLES.get(each.severity, "")), f"  {safe(each.check)}: was {safe(each.was)}"
        )
        for finding in each.findings:
            _finding(output, finding, whole=True)


def heading(report: Report) -> str:
    """Which station it is about."""
    if report.station is not None:
        return station_words(report.station)
    name = f" {safe(report.name)}" if report.name else ""
    return f"{report.role}{name}, not running: settings, files and this machine were looked at"


def station_words(station: StationView) -> str:
    """Which station was asked."""
    words = f"{safe(station.role)} {safe(station.name)}, outstation {safe(station.version)}"
    if station.uplink is not None:
        words += f", uplink {safe(station.uplink.state)}"
        if station.uplink.master:
            words += f" to {safe(station.uplink.master)}"
        standing_by = sum(link.role == "standby" for link in station.uplink.links)
        if standing_by:
            words += f", {standing_by} standing by"
    return words


def _place(finding: Finding) -> int:
    # What another release calls something else stands where it is seen.
    return ORDER.index(finding.severity) if finding.severity in ORDER else 0


def _finding(output: Output, finding: Finding, *, whole: bool) -> None:
    _lines(output, finding.severity, finding.check, safe(finding.finding))
    if finding.severity == "ok":
        return
    for name, words in (("means:", finding.meaning if whole else ""), ("try:", finding.fix)):
        if words:
            _hanging(output, f"{'':<{INDENT}}{name:<{LABEL}}", safe(words), INDENT + LABEL)


def _lines(output: Output, severity: str, check: str, words: str) -> None:
    marked = (f"{safe(severity):<8}", STYLES.get(severity, ""))
    name = f"  {safe(check):<{INDENT - 10}}" if check else "  "
    first, *others = _wrapped(output, words, 8 + len(name))
    output.line(marked, name + first)
    for line in others:
        output.line(f"{'':<{8 + len(name)}}{line}")


def _hanging(output: Output, start: str, words: str, indent: int) -> None:
    first, *others = _wrapped(output, words, indent)
    output.line(start + first)
    for line in others:
        output.line(f"{'':<{indent}}{line}")


def _wrapped(output: Output, words: str, indent: int) -> list[str]:
    """The lines of a text; whole where it is no terminal that shows them."""
    if not output.on_terminal:
        return [words]
    width = max(shutil.get_terminal_size().columns - indent, LEAST_WIDTH)
    return wrap(words, width, break_long_words=False, break_on_hyphens=False) or [""]


def _sum(findings: Iterable[Finding]) -> list[str | tuple[str, str]]:
    counts: dict[str, int] = {}
    for finding in findings:
        counts[finding.severity] = counts.get(finding.severity, 0) + 1
    bad = [
        (f"{counts[severity]} {severity}{'s' if counts[severity] > 1 else ''}", STYLES[severity])
        for severity in ("error", "warning")
        if counts.get(severity)
    ]
    if not bad:
        return [("nothing is wrong", "green")]
    parts: list[str | tuple[str, str]] = []
    for each in bad:
        parts += [", ", each] if parts else [each]
    return parts
