"""``outstation devices import``: an inventory of SSH devices, every line of it looked at before anything is changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, EXIT_USAGE, OutstationError, PolicyRefused
from gateway.cli.command import ASKING, HelpText, invocation, verb
from gateway.cli.text import safe

if TYPE_CHECKING:
    from gateway.cli.output import Output
    from gateway.cli.ssh_client import SshClient
    from gateway.cli.ssh_inventory import Listed
    from gateway.cli.ssh_views import FaultView

AT_ONCE = 500
REQUEST_BYTES = 700 * 1024
"""Devices, and bytes of them, in one request and so in one commit."""

FAULTS_SHOWN = 50

IMPORT = HelpText(
    purpose="Add and change SSH devices from an inventory, CSV or YAML.",
    details="Every line is looked at first; nothing is changed unless all are good, or --skip-bad says to leave the "
    "others out. What is so already is left, so the same file again changes nothing. An empty field leaves what is "
    "known as it is. The host key of a new device must be there; another one for a known device is accepted by "
    "devices key alone.",
    explained={
        "Columns": {
            "name": "the device's name",
            "address, port, user": "where it is, and as whom to log in (port: 22)",
            "login": "password, key, agent or certificate; only needed for agent",
            "password": "what it says, or password_file: a file beside the inventory",
            "key_file": "a private key; with passphrase_file and certificate_file where it has them",
            "fingerprint": "SHA256:… of its host key; several with spaces between",
            "jump": "the SSH device through which it is reached",
            "poll_seconds": "how often it is looked at (60)",
        }
    },
    examples=[
        ("outstation devices import cameras.csv --dry-run", "what would be added, changed and left"),
        ("outstation devices import cameras.yaml --skip-bad --json", "for a script"),
    ],
    exits={**ASKING, EXIT_NOT_ALL_OK: "some were left out, or the station could not do it"},
)


def add_to(app: typer.Typer) -> None:
    """Add the command to its noun."""
    verb(app, "import", IMPORT)(import_devices)


def import_devices(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="the inventory: .csv, .yaml or .yml")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would be done")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="leave out what cannot be")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object per device and per fault")] = False,
) -> int:
    """Import an inventory."""
    from gateway.cli.ssh_client import SshClient
    from gateway.cli.ssh_inventory import read

    output = invocation(context).output
    listed = read(file)
    work = Import(output, SshClient(invocation(context).client()), in_order(listed))
    bad = [(entry, entry.fault) for entry in listed if entry.fault is not None]
    bad += work.run("checked", dry_run=True)
    work.check_room()
    refused = bool(bad) and not skip_bad
    if not dry_run and not refused:
        left_out = {entry.line for entry, _ in bad}
        work = Import(output, work.client, [entry for entry in work.listed if entry.line not in left_out])
        try:
            bad += work.run("imported", skip_bad=skip_bad)
        except OutstationError:
            # What went before is done, and is told.
            work.tell(as_json, would=False)
            _summarize(output, work, len(bad), as_json, done=True)
            raise
    _tell_faults(output, file, bad, as_json)
    if not refused or dry_run:
        work.tell(as_json, would=dry_run)
    _summarize(output, work, len(bad), as_json, done=not dry_run and not refused)
    if refused:
        return EXIT_USAGE
    return EXIT_NOT_ALL_OK if bad else EXIT_OK


class Import:
    """One pass over the devices of an inventory, page by page."""

    def __init__(self, output: Output, client: SshClient, listed: Sequence[Listed]) -> None:
        self._output = output
        self.client = client
        self.listed = listed
        self.added: list[str] = []
        self.changed: list[str] = []
        self.left: list[str] = []
        self._room: int | None = None

    def run(self, what: str, *, dry_run: bool = False, skip_bad: bool = False) -> list[tuple[Listed, FaultView]]:
        """Hand in every page; what cannot be."""
        bad: list[tuple[Listed, FaultView]] = []
        jumps = {entry.name: entry.wish.get("jump", "") for entry in self.listed}
        seen = 0
        for page in pages(self.listed):
            coming = _ways(page, jumps) if dry_run else {}
            wishes = [entry.wish for entry in page]
            done = self.client.put(wishes, dry_run=dry_run, skip_bad=skip_bad, coming=coming)
            bad += [(page[fault.index], fault) for fault in done.bad]
            self._room = done.room if done.room is not None else self._room
            if dry_run or done.done:
                self.added += done.added
                self.changed += done.changed
                self.left += done.left
            seen += len(page)
            if self._output.error_on_terminal:
                self._output.status_line([(f"{what} {seen:,}/{len(self.listed):,}", "bold")])
        if self._output.error_on_terminal and self.listed:
            self._output.clear_status_line()
        return bad

    def check_room(self) -> None:
        """Raises ``PolicyRefused`` when more would come than this site may have."""
        if self._room is not None and len(self.added) > self._room:
            raise PolicyRefused(
                "this site may not have so many devices; nothing was changed",
                error_id="keys.full",
                found=f"{len(self.added):,} to add",
                allowed=f"{self._room:,} more",
                hint="take lines out of the file, or let devices go: outstation devices remove NAME",
            )

    def tell(self, as_json: bool, *, would: bool) -> None:
        """A line for each device that changes."""
        before = "would be " if would else ""
        for act, style, names in (("added", "green", self.added), ("changed", "yellow", self.changed)):
            for name in names:
                if as_json:
                    self._output.json({"type": "device", "name": name, "act": act, "done": not would})
                else:
                    self._output.line((f"{before}{act}", style), f"  {safe(name)}")


def pages(listed: Sequence[Listed]) -> Iterator[list[Listed]]:
    """The devices in pages that fit a request."""
    page: list[Listed] = []
    size = 0
    for entry in listed:
        bytes_ = len(json.dumps(entry.wish))
        if page and (len(page) >= AT_ONCE or size + bytes_ > REQUEST_BYTES):
            yield page
            page, size = [], 0
        page.append(entry)
        size += bytes_
    if page:
        yield page


def in_order(listed: Sequence[Listed]) -> list[Listed]:
    """The good ones, each after the one through which it is reached."""
    by_name = {entry.name: entry for entry in listed if entry.fault is None}
    found: dict[str, Listed] = {}
    for entry in by_name.values():
        way: dict[str, Listed] = {}
        step: Listed | None = entry
        # A circle ends here too; the station says what is wrong with it.
        while step is not None and step.name not in found and step.name not in way:
            way[step.name] = step
            step = by_name.get(step.wish.get("jump", ""))
        found.update(reversed(way.items()))
    return list(found.values())


def _ways(page: Sequence[Listed], jumps: dict[str, str]) -> dict[str, str]:
    """The devices of the inventory through which those of a page are reached, and through what they are."""
    ways: dict[str, str] = {}
    for entry in page:
        step = entry.wish.get("jump", "")
        while step in jumps and step not in ways:
            ways[step] = jumps[step]
            step = jumps[step]
    return ways


def _tell_faults(output: Output, file: Path, bad: Sequence[tuple[Listed, FaultView]], as_json: bool) -> None:
    ordered = sorted(bad, key=lambda each: each[0].line)
    for entry, fault in ordered if as_json else ordered[:FAULTS_SHOWN]:
        where = f"{file}:{entry.line}"
        if as_json:
            facts = {name: getattr(fault, name) for name in ("name", "field", "what", "found", "allowed")}
            output.json({"type": "bad", "where": where, "line": entry.line, **facts})
            continue
        output.note(("bad", "red"), f"  {safe(where)}: {safe(fault.field)}: {safe(fault.what)} ({safe(fault.name)})")
        if fault.found:
            output.note(f"       found:   {safe(fault.found)}")
        if fault.allowed:
            output.note(f"       allowed: {safe(fault.allowed)}")
    if not as_json and len(bad) > FAULTS_SHOWN:
        output.note(f"… and {len(bad) - FAULTS_SHOWN:,} more; --json lists them all")


def _summarize(output: Output, work: Import, bad: int, as_json: bool, *, done: bool) -> None:
    counts = {"added": len(work.added), "changed": len(work.changed), "left": len(work.left), "bad": bad}
    if as_json:
        output.json({"type": "summary", "done": done, **counts})
        return
    words = ", ".join(f"{count:,} {what}" for what, count in counts.items())
    output.note(words if done else f"nothing was changed: {words.replace(' added', ' to add')}")
