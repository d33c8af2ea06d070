"""``gateway import-salt``: from the settings and the proxies of a box with Salt to those of a gateway."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from device_agent.errors import EXIT_CONFIG, EXIT_NOT_ALL_OK, EXIT_OK, EXIT_USAGE, ConfigInvalid, UsageInvalid
from gateway.cli.command import HelpText, invocation, verb
from gateway.cli.text import safe

if TYPE_CHECKING:
    from collections.abc import Callable

    from device_agent.settings_file import Section
    from gateway.cli.output import Output
    from gateway.salt.import_box import Looked
    from gateway.salt.import_files import Writing

GATEWAY_CONFIG = Path("/etc/outstation/gateway.yaml")
NAMES_BYTES = 4 * 1024 * 1024
STYLES = {
    "carried": "green",
    "translated": "green",
    "no meaning": "dim",
    "runs as is": "green",
    "needs a grant": "yellow",
    "needs a change": "yellow",
    "not carried": "yellow",
    "wrong": "red",
}
BESIDE = "salt-import"

TEXT = HelpText(
    purpose="Take over what a box with Salt has: its settings, and its proxies as devices.",
    details="It reads the settings of the master or syndic, the proxies and the minion of this box, its pillar and "
    "its accepted keys, changes none of them, and asks nobody. Every key and every proxy gets one verdict, with its "
    "file and line. What it writes is what the gateway's own reader takes, and never in the place of a file that is "
    "there. Passwords are in the inventory alone, which only you may read. See docs/moving-from-salt.md.",
    explained={
        "Verdicts": {
            "carried": "it is in the settings under its own name",
            "translated": "it is there in another form, as the line below says",
            "no meaning": "nothing here needs it, for the reason below",
            "runs as is": "a reactor file, a schedule entry or code of your own that works here",
            "needs a grant": "it works once the policy, the site or station.grants allow what the line below names",
            "needs a change": "what it calls is not here, or it is written otherwise: the lines are named below",
            "not carried": "do what the line below says, if you need it",
            "wrong": "a file that cannot be read or rendered, or one entry of it: nothing in it was taken",
        }
    },
    examples=[
        ("outstation gateway import-salt --dry-run", "only say what would become of everything"),
        ("outstation gateway import-salt --out lisbon --known-hosts known_hosts", "into a new folder, with host keys"),
    ],
    exits={
        EXIT_OK: "written, or with --dry-run looked at",
        EXIT_NOT_ALL_OK: "an entry was wrong and left out, or with --skip-bad a file; or a file could not be written",
        EXIT_USAGE: "the command line is wrong, nothing of Salt is there, or a file that would be written is",
        EXIT_CONFIG: "a file is wrong, and nothing was written",
    },
)


def add(name: str, group: typer.Typer) -> None:
    """Add the verb to the noun of a gateway."""
    if name == "gateway":
        verb(group, "import-salt", TEXT)(import_salt)


def import_salt(
    context: typer.Context,
    salt: Annotated[Path, typer.Option(metavar="FOLDER", help="the settings of Salt")] = Path("/etc/salt"),
    pillar: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FOLDER", help="pillar of the proxies, best first (default: pillar_roots, or /srv/pillar)"
        ),
    ] = None,
    names: Annotated[
        Path | None, typer.Option(metavar="FILE", help="names of proxies that no top file says outright, one a line")
    ] = None,
    known_hosts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="host keys of the devices, as OpenSSH keeps them")
    ] = None,
    site: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="name of the site (default: the id of the box)")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="write everything there (default: beside --config)")
    ] = None,
    config: Annotated[Path, typer.Option(metavar="FILE", help="settings file of the gateway")] = GATEWAY_CONFIG,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="write nothing")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="leave out files that cannot be read")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object per finding, and a summary")] = False,
) -> int:
    """Take over what a box with Salt has."""
    from gateway.salt.import_box import Asked, look

    output = invocation(context).output
    there = _there(config) if out is None else None
    asked = Asked(salt, pillar or [], _names(names), _host_keys(known_hosts), site, there)
    looked = look(asked)
    writing = _writing(looked, out, config, named=there is not None and "name" in there.entries)
    refused = looked.wrong and not skip_bad
    _tell(output, looked, as_json)
    if not dry_run and not refused:
        _write(writing, config if out is None else out / "gateway.yaml")
    _summarize(output, looked, writing, as_json, done=not dry_run and not refused)
    if refused and not dry_run:
        raise ConfigInvalid(
            "a file is wrong, so nothing was written",
            error_id="import.wrong",
            where=looked.wrong_place,
            allowed="files that can be read and rendered",
            hint="mend it, or leave out all such files with --skip-bad",
        )
    return EXIT_NOT_ALL_OK if looked.incomplete else EXIT_OK


def _there(config: Path) -> Section | None:
    from device_agent.settings import written

    return written(config) if config.exists() else None


def _names(path: Path | None) -> list[str]:
    if path is None:
        return []
    from gateway.cli.fleet import read_file

    lines = read_file(path).decode("utf-8", "replace").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _host_keys(path: Path | None) -> Callable[[str, int], list[str]]:
    if path is None:
        return lambda _host, _port: []
    import asyncssh

    try:
        known = asyncssh.read_known_hosts(str(path))
    except (OSError, ValueError) as error:
        raise UsageInvalid("these host keys cannot be read", where=str(path), found=str(error)[:200]) from None

    def of(host: str, port: int) -> list[str]:
        keys = known.match(host, "", port if port != 22 else None)[0]
        return [key.get_fingerprint() for key in keys]

    return of


def _writing(looked: Looked, out: Path | None, config: Path, *, named: bool) -> Writing:
    from gateway.salt.import_accepted import text_of
    from gateway.salt.import_box import lines_of
    from gateway.salt.import_files import AGENTS, HEAD, INVENTORY, PIECE, REPORT, Writing, inventory_text

    writing = Writing()
    folder = out if out is not None else config.parent / BESIDE
    settings = looked.settings if named else {"name": looked.site, **looked.settings}
    text = HEAD + text_of(settings)
    if out is not None:
        writing.add(out / "gateway.yaml", text)
    else:
        if not config.exists():
            writing.add(config, f"# The gateway of this site; what came of Salt is in {config.stem}.d/{PIECE}.\n")
        writing.add(config.with_name(f"{config.stem}.d") / PIECE, text)
    if looked.devices.ssh:
        writing.add(folder / INVENTORY, inventory_text(looked.devices.ssh), secret=True)
    if looked.devices.agents:
        writing.add(folder / AGENTS, "".join(f"{name}\n" for name in looked.devices.agents))
    writing.add(folder / REPORT, "".join(f"{line}\n" for line in lines_of(looked.findings)))
    return writing


def _write(writing: Writing, config: Path) -> None:
    """Write it, and hold it against the reader of the gateway once more. Raises ``ConfigInvalid`` with nothing left."""
    from gateway.station_settings import settings_for

    writing.write()
    try:
        settings_for("gateway", config)
    except ConfigInvalid:
        for path in writing.files:
            path.unlink(missing_ok=True)
        raise


def _tell(output: Output, looked: Looked, as_json: bool) -> None:
    from gateway.salt.import_box import fields_of, lines_of

    for finding in looked.findings:
        if as_json:
            output.json({"type": "finding", **fields_of(finding)})
            continue
        first, *rest = lines_of([finding])
        verdict = finding.verdict
        output.line((verdict, STYLES[verdict]), safe(first.removeprefix(verdict)))
        for line in rest:
            output.line(safe(line))


def _summarize(output: Output, looked: Looked, writing: Writing, as_json: bool, *, done: bool) -> None:
    from gateway.salt.import_findings import counted

    counts = counted(looked.findings)
    devices = {"ssh": len(looked.devices.ssh), "agents": len(looked.devices.agents)}
    files = [str(path) for path in writing.files]
    if as_json:
        output.json({"type": "summary", "site": looked.site, "done": done, "files": files, **devices, "counts": counts})
        return
    output.note(", ".join(f"{count:,} {what}" for what, count in counts.items() if count))
    if not done:
        output.note("nothing was written")
        return
    for path in files:
        output.note(f"written {safe(path)}")
    inventory = next((path for path in files if path.endswith("ssh-devices.yaml")), None)
    if inventory is not None:
        output.note(f"next:   outstation devices import {safe(inventory)} --dry-run")
