"""``outstation support-bundle``: one archive for whoever helps from afar."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, EXIT_USAGE
from gateway.cli.command import HelpText, invocation, verb
from gateway.cli.text import safe

if TYPE_CHECKING:
    from gateway.support.bundle import Station

CONFIGS = {role: Path(f"/etc/outstation/{role}.yaml") for role in ("gateway", "master")}
ANSWER_SECONDS = 15.0
ANSWER_BYTES = 4 * 1024 * 1024

TEXT = HelpText(
    purpose="Write one archive that tells how this machine's stations do, without secrets.",
    details="Findings, versions, status, ledger, metrics, counts of devices, recent refusals, the end of the journal, "
    "and which file belongs to whom. Settings are shown only where they are numbers, switches, addresses and paths; "
    "passwords, tokens, keys and pillar are left out. Names of devices and sites, and addresses, may be in it: look "
    "at it before you give it away. It works while no station runs, and takes a minute at most.",
    examples=[
        ("outstation support-bundle", "outstation-support-DATE.tar.gz, in this folder"),
        ("outstation support-bundle --out /media/usb/lisbon.tar.gz --lines 10000", "elsewhere, with more of the log"),
    ],
    exits={
        EXIT_OK: "written; what could not be had is named",
        EXIT_NOT_ALL_OK: "it could not be written",
        EXIT_USAGE: "the command line is wrong, or the file is there already",
    },
)


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    verb(app, "support-bundle", TEXT)(support_bundle)


def support_bundle(
    context: typer.Context,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="where to write it (default: in this folder)")
    ] = None,
    lines: Annotated[int, typer.Option(min=0, max=100_000, metavar="N", help="lines of the journal")] = 2000,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="settings of one gateway (default: of all stations here)")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace the file when it is there")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> int:
    """Write the archive."""
    from device_agent.clock import Clock
    from gateway.support.bundle import gather, write_bundle

    output = invocation(context).output
    bundle = gather(_stations(config), _ask, Clock(), lines)
    target = out if out is not None else Path(f"{bundle.name}.tar.gz")
    size = write_bundle(bundle, target, force=force)
    if as_json:
        output.json(
            {
                "type": "support-bundle",
                "file": str(target),
                "bytes": size,
                "pieces": sorted(bundle.pieces),
                "missing": bundle.missing,
                "redacted": bundle.redacted,
            }
        )
        return EXIT_OK
    output.line(("written", "green"), f" {safe(str(target))}, {size / 1e3:,.0f} kB")
    for name, why in bundle.missing.items():
        output.note(f"not in it: {safe(name)}: {safe(why)}")
    output.note(
        f"{bundle.redacted:,} times something was taken out that was secret or looked so; look at it all the same"
    )
    return EXIT_OK


def _stations(config: Path | None) -> list[Station]:
    """The stations of this machine: those with settings, or whose state folder is there."""
    from gateway.support.bundle import station_of

    if config is not None:
        return [station_of("master" if config.stem == "master" else "gateway", config)]
    found = [station_of(role, path) for role, path in CONFIGS.items()]
    return [station for station in found if _is_there(station.config) or _is_there(station.state)] or found[:1]


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return True


def _ask(socket: Path, path: str) -> bytes:
    """What a station answers. Raises ``OSError`` and ``StationFailed``."""
    import http.client

    from device_agent.errors import NotRunning, StationFailed
    from gateway.cli.client import UnixConnection

    connection = UnixConnection(socket, ANSWER_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read(ANSWER_BYTES)
    except (FileNotFoundError, ConnectionRefusedError):
        raise NotRunning("no station answers", where=str(socket)) from None
    except http.client.HTTPException as error:
        raise StationFailed("the station's answer is none", found=str(error)) from None
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise StationFailed(f"the station answers {answer.status}")
    return body
