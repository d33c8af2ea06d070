"""``gateway backup`` and ``gateway restore``: a gateway in one encrypted file, and on the machine that follows it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from device_agent.errors import EXIT_CONFIG, EXIT_NOT_ALL_OK, EXIT_OK, EXIT_USAGE
from gateway.cli.command import HelpText, invocation, verb
from gateway.cli.text import safe

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gateway.backup.contents import Contents
    from gateway.backup.put_back import Restored
    from gateway.cli.output import Output

GATEWAY_CONFIG = Path("/etc/outstation/gateway.yaml")
NAMES_SHOWN = 10

BACKUP = HelpText(
    purpose="Write everything that makes this gateway what it is into one encrypted file.",
    details="Whether the gateway runs or not; it is not disturbed. With its keys, the gateway that takes its place is "
    "known to its master and its devices at once; so the file is worth as much as the gateway. Without them, a "
    "master must accept the new keys. Devices need no visit either way.",
    examples=[
        ("outstation gateway backup /media/usb/lisbon.backup", "asks for a passphrase, twice"),
        (
            "outstation gateway backup --force --passphrase-file /etc/outstation/backup.key /mnt/lisbon.backup",
            "every night, over that of the night before",
        ),
    ],
    exits={
        EXIT_OK: "written, and read again to its end",
        EXIT_NOT_ALL_OK: "it could not be written, or the store not be read",
        EXIT_USAGE: "the command line or the passphrase is wrong, or the file is there already",
        EXIT_CONFIG: "the settings are wrong, or there is no gateway's state",
    },
)
RESTORE = HelpText(
    purpose="Put a backup in the place of this gateway's state, which is moved aside and kept.",
    details="The gateway must not run. Nothing is changed before the whole file was read and verified. Where there is "
    "no settings file, that of the backup is written. The gateway that it was taken of must never run again.",
    examples=[
        ("outstation gateway restore /media/usb/lisbon.backup", "after a fire, or when its disk failed"),
        ("outstation gateway restore --new-keys /media/usb/lisbon.backup", "after a theft: the old keys count no more"),
    ],
    exits={
        EXIT_OK: "restored",
        EXIT_NOT_ALL_OK: "it could not be unpacked or put in its place",
        EXIT_USAGE: "it is no backup, or damaged, or of another site; the passphrase is wrong; or a gateway runs here",
        EXIT_CONFIG: "the settings are wrong, or there is something in the state folder",
    },
)


def add(name: str, group: typer.Typer) -> None:
    """Add the verbs to the noun of a station."""
    if name == "gateway":
        verb(group, "backup", BACKUP)(gateway_backup)
        verb(group, "restore", RESTORE)(gateway_restore)


Config = Annotated[Path, typer.Option(metavar="FILE", readable=False, help="settings file")]
PassphraseFile = Annotated[
    Path | None, typer.Option(metavar="FILE", readable=False, help="read the passphrase from a file instead of asking")
]


def gateway_backup(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="where to write it")],
    keys: Annotated[
        bool,
        typer.Option("--with-keys/--without-keys", help="whether the private keys are in it (default: --with-keys)"),
    ] = True,
    passphrase_file: PassphraseFile = None,
    force: Annotated[bool, typer.Option("--force", help="replace the file when it is there")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
    config: Config = GATEWAY_CONFIG,
) -> int:
    """Take a backup."""
    from device_agent.clock import Clock
    from gateway.backup.passphrase import new_passphrase
    from gateway.backup.take import Wish, check_target, take_backup
    from gateway.station_settings import settings_for

    output = invocation(context).output
    settings = settings_for("gateway", config)
    # Said before anybody types a passphrase twice.
    check_target(file, overwrite=force)
    passphrase = new_passphrase(passphrase_file)
    line = _ProgressLine(output)
    try:
        taken = take_backup(Wish(settings, config, file, passphrase, keys, force), Clock(), line.show)
    finally:
        line.clear()
    if as_json:
        output.json({"type": "backup", "file": str(taken.path), "bytes": taken.size, **_fields(taken.contents)})
        return EXIT_OK
    output.line(("backed up", "green"), f" {safe(settings.name)} to {safe(str(taken.path))}, {_size(taken.size)}")
    output.facts(
        [
            ("devices", _counts(taken.contents.devices)),
            ("keys", "in it" if keys else "not in it: a master must accept the gateway that is restored from it"),
        ]
    )
    output.note("keep it on another machine, and the passphrase apart from it: nobody can open it without")
    return EXIT_OK


def gateway_restore(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="the backup")],
    new_keys: Annotated[
        bool, typer.Option("--new-keys", help="make new keys: somebody else has those of the backup, or may have")
    ] = False,
    passphrase_file: PassphraseFile = None,
    force: Annotated[bool, typer.Option("--force", help="move aside what is in the state folder")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
    config: Config = GATEWAY_CONFIG,
) -> int:
    """Restore a backup."""
    import logging

    from device_agent.clock import Clock
    from gateway.backup.passphrase import known_passphrase
    from gateway.backup.put_back import Wish, put_back
    from gateway.cli.run import user_name

    output = invocation(context).output
    # What a station would write to its journal is said below in other words.
    logging.getLogger().addHandler(logging.NullHandler())
    wish = Wish(file, config, lambda: known_passphrase(passphrase_file), user_name(), new_keys, force)
    line = _ProgressLine(output)
    try:
        restored = put_back(wish, Clock(), line.show)
    finally:
        line.clear()
    if as_json:
        output.json(
            {
                "type": "restored",
                **_fields(restored.contents),
                "state_dir": str(restored.folder),
                "moved_aside": str(restored.aside) if restored.aside is not None else None,
                "settings_written": restored.settings_written,
                "new_keys": restored.new_keys,
                "fingerprint": restored.fingerprint,
                "names": list(restored.names),
            }
        )
        return EXIT_OK
    _say_restored(output, restored, config)
    return EXIT_OK


def _say_restored(output: Output, restored: Restored, config: Path) -> None:
    site, taken = safe(restored.contents.site), output.time(restored.contents.taken)
    output.line(("restored", "green"), f" {site} as it was at {taken}")
    names = [safe(name) for name in restored.names[:NAMES_SHOWN]]
    more = len(restored.names) - len(names)
    facts = [
        ("devices", _counts(restored.devices)),
        ("names", ", ".join(names) + (f" and {more:,} more" if more else "") if names else "-"),
        ("keys", "new ones, the site certificate is gone" if restored.new_keys else "those of the backup"),
        ("fingerprint", restored.fingerprint),
        ("state folder", safe(str(restored.folder))),
    ]
    if restored.aside is not None:
        facts.append(("moved aside", safe(str(restored.aside))))
    words = "as in the backup" if restored.settings_written else "as they were; the backup's are in the state folder"
    output.facts([*facts, ("settings", f"{safe(str(config))}, {words}")])
    for note in _next(restored):
        output.note(note)


def _next(restored: Restored) -> Iterator[str]:
    """What is still to be done, and by whom."""
    site = safe(restored.contents.site)
    if restored.new_keys:
        yield f"next, on a master:  outstation sites revoke {site} --why 'its gateway was replaced'"
        yield "then here:          systemctl restart outstation-gateway"
        yield f"then on a master:   outstation keys accept {site} --fingerprint {restored.fingerprint}"
        yield "devices then get their new certificates over their next session; nobody has to go there"
    else:
        yield "next:  systemctl restart outstation-gateway"
        yield "the gateway this was taken of must never run again; was it stolen, restore with --new-keys instead"
    yield (
        "what happened after the backup is not in it: devices let in since then ask anew, join tokens are void; what"
        " was revoked since then (devices that no master heard of, tokens of operators) must be revoked again"
    )


def _fields(contents: Contents) -> dict[str, Any]:
    return {
        "site": contents.site,
        "taken": contents.taken,
        "release": contents.release,
        "keys": contents.has_keys,
        "devices": dict(contents.devices),
    }


def _counts(devices: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {safe(state)}" for state, count in devices.items()) or "none"


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count / 1e3:,.0f} kB"


class _ProgressLine:
    """What is being done, on a line that is replaced; nothing where stderr is no terminal."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._shown = ""

    def show(self, what: str, part: float) -> None:
        """This is being done, and so much of it is done."""
        text = f"{what} {part:.0%}" if part else what
        if self._output.error_on_terminal and text != self._shown:
            self._output.status_line([(text, "dim")])
            self._shown = text

    def clear(self) -> None:
        """Make room for what is said next."""
        if self._shown:
            self._output.clear_status_line()
            self._shown = ""
