"""``gateway join``: a machine becomes the gateway of a site, also while it runs, and waits until it is accepted."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from device_agent.errors import (
    EXIT_CONFIG,
    EXIT_NOT_ALL_OK,
    EXIT_OK,
    EXIT_REFUSED,
    EXIT_USAGE,
    NotRunning,
    UsageInvalid,
)
from gateway.cli.arguments import duration
from gateway.cli.command import HelpText, invocation
from gateway.cli.text import safe

if TYPE_CHECKING:
    from gateway.cli.client import StationClient
    from gateway.cli.fleet_views import FleetView
    from gateway.cli.output import Output
    from gateway.config import StationSettings
    from gateway.fleet.join_file import JoinWish

GATEWAY_CONFIG = Path("/etc/outstation/gateway.yaml")
START_SECONDS = 60.0
START_LOOK_SECONDS = 0.1

TEXT = HelpText(
    purpose="Make this machine the gateway of a site, also while it runs, and wait until it is accepted.",
    details="On a terminal it asks for what is missing: the name of the site, and the token that `outstation sites "
    "token` prints on a master (or a master's address and key). What a site is called goes into the settings, in "
    "gateway.d/50-join.yaml. It may be stopped while it waits: the gateway goes on, and the same command without "
    "arguments waits again. With a bundle that was made from this gateway's request no master is needed.",
    examples=[
        ("outstation gateway join 'TOKEN' --site lisbon", "in quotes: it has letters that a shell takes for its own"),
        ("outstation gateway join --from outstation-join.yaml --no-wait", "with all it needs in one file"),
    ],
    exits={
        EXIT_OK: "accepted; with --no-wait, or where the gateway does not run, on its way",
        EXIT_NOT_ALL_OK: "nobody accepted it in time, or a file could not be written",
        EXIT_USAGE: "the command line, or what was given, is wrong",
        EXIT_CONFIG: "the settings, or the file that was given, are wrong",
        EXIT_REFUSED: "you may not, or the master turns this gateway away",
    },
)


@dataclass(frozen=True)
class Given:
    """What there is to join with. A wish goes into the settings first."""

    wish: JoinWish | None = None
    tokens: tuple[str, ...] = ()
    bundle: str | None = None


@dataclass(frozen=True)
class Taken:
    """What the gateway says now, and whether it runs."""

    fleet: FleetView
    running: bool


def gateway_join(
    context: typer.Context,
    token: Annotated[str | None, typer.Argument(metavar="TOKEN", help="the token; - reads it from stdin")] = None,
    token_file: Annotated[Path | None, typer.Option(metavar="FILE", help="read the token from a file")] = None,
    bundle: Annotated[str | None, typer.Option(metavar="FILE", help="a bundle made for this gateway")] = None,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="all that is needed in one file; docs/first-hour.md")
    ] = None,
    usb: Annotated[
        bool, typer.Option("--usb", help="that file, outstation-join.yaml, from a USB stick or SD card")
    ] = False,
    site: Annotated[
        str | None, typer.Option(metavar="NAME", help="name of the site (default: the one in the settings)")
    ] = None,
    master: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="instead of a token: a master, tcp://HOST:PORT; best first"),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="its key, one for each --master, as `outstation keys list` there shows it"),
    ] = None,
    fleet: Annotated[
        str | None, typer.Option(metavar="FINGERPRINT", help="beside --master: the fleet's root keys (default: ask it)")
    ] = None,
    broker_host: Annotated[
        str | None, typer.Option(metavar="HOST", help="address of this machine at which devices reach it")
    ] = None,
    wait: Annotated[str, typer.Option(metavar="TIME", help="how long to wait to be accepted")] = "10m",
    no_wait: Annotated[bool, typer.Option("--no-wait", help="do not wait")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="delete the file of --from once it was used")] = False,
    config: Annotated[Path, typer.Option(metavar="FILE", readable=False, help="settings file")] = GATEWAY_CONFIG,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> int:
    """Join a fleet."""
    from gateway.cli.stations import say_joined, settings_and_folder
    from gateway.fleet.join_settings import write_wish

    seconds = duration("--wait", wait)
    typed = {"site": site, "master": master, "key": key, "fleet": fleet, "broker_host": broker_host}
    given = _given(config, token=token, token_file=token_file, bundle=bundle, source=source, usb=usb, typed=typed)
    output = invocation(context).output
    if given.wish is not None:
        piece = write_wish(config, given.wish)
        output.note(f"site {safe(given.wish.site)}: kept in {safe(str(piece))}")
    settings, folder = settings_and_folder("gateway", config)
    _say_foreign(output, given, settings)
    client = _client(context, settings.socket)
    taken = _taken(client, settings.name, folder, given)
    if not taken.running:
        output.note(f"no station runs here: kept in {safe(str(folder))} for its next start")
    if remove and source is not None:
        source.unlink(missing_ok=True)
    if as_json:
        output.record("fleet", taken.fleet)
    elif given != Given():
        say_joined(context, taken.fleet)
    if not taken.running or no_wait or (taken.fleet.joined and given != Given()):
        return EXIT_OK
    from gateway.cli.join_progress import wait_until_accepted

    return wait_until_accepted(output, client, seconds)


def _given(
    config: Path,
    *,
    token: str | None,
    token_file: Path | None,
    bundle: str | None,
    source: Path | None,
    usb: bool,
    typed: dict[str, Any],
) -> Given:
    """What the command line says, or who sits at the terminal. Raises ``UsageInvalid`` and ``ConfigInvalid``."""
    from gateway.cli.join_asking import asked, wish_of
    from gateway.fleet import armor
    from gateway.fleet.join_file import read_wish
    from gateway.fleet.join_settings import name_of
    from gateway.fleet.usb_stick import wish_on_a_stick

    known = name_of(config)
    ways = [token, token_file, bundle, source, usb or None, typed["master"] or None]
    count = sum(way is not None for way in ways)
    if count == 0 and not any(typed.values()) and known and _on_its_way(config):
        return Given()
    if count == 0 and sys.stdin.isatty():
        wish = asked(known or typed["site"] or "", typed["broker_host"])
        return Given(wish, tuple(wish.tokens()))
    if count != 1:
        raise UsageInvalid(
            "a gateway joins with one thing",
            found=f"{count} of them" if count else "nothing",
            allowed="TOKEN, --token-file FILE, --bundle FILE, --master ADDRESS --key KEY, --from FILE or --usb",
            hint="outstation gateway join 'TOKEN' --site NAME, with what `outstation sites token` prints on a master",
        )
    if source is not None or usb:
        _refuse_beside_a_file(typed)
        if usb and known and _on_its_way(config):
            raise UsageInvalid(
                "this gateway has joined already, and a stick changes nothing about that",
                error_id="join.joined",
                found=known,
                allowed="a gateway that has not joined",
                hint="outstation gateway join --from FILE, with a file on this machine",
            )
        wish = wish_on_a_stick() if usb else read_wish(source or Path())
        return Given(wish, tuple(wish.tokens()))
    if bundle is not None:
        _refuse_beside_a_file(typed)
        return Given(bundle=armor.typed(bundle))
    text = _token(token, token_file)
    if text is not None and known and not any(typed.values()):
        return Given(tokens=(text,))
    wish = wish_of(config, known, text, **typed)
    return Given(wish, tuple(wish.tokens()))


def _say_foreign(output: Output, given: Given, settings: StationSettings) -> None:
    """A broker that is told to listen where this machine has no address: it may get one yet, so this is no refusal."""
    from gateway.broker.own_address import not_own

    host = given.wish.broker.host if given.wish is not None else None
    if host is None or settings.broker is None or settings.broker.mode not in ("managed", "service"):
        return
    if why := not_own(host):
        output.note(f"warning: {safe(host)} is no address of this machine ({why}): the broker cannot listen there")
        output.note(
            "  ip -brief address shows which it has; join again with the right --broker-host, and then"
            " sudo systemctl restart outstation-gateway"
        )


def _refuse_beside_a_file(typed: dict[str, Any]) -> None:
    beside = [f"--{name.replace('_', '-')}" for name, value in typed.items() if value]
    if beside:
        raise UsageInvalid(
            "what is carried in a file says all of this", found=", ".join(beside), allowed="the file alone"
        )


def _token(token: str | None, file: Path | None) -> str | None:
    """The token's text, wherever it comes from. Raises ``UsageInvalid``."""
    from gateway.cli.fleet import read_file

    if file is not None:
        return read_file(file).decode("ascii", "replace")
    # As elsewhere, a dash in its place is for what comes by the pipe.
    return sys.stdin.buffer.read(65_536).decode("ascii", "replace") if token == "-" else token  # noqa: S105 - a dash is no password


def _on_its_way(config: Path) -> bool:
    """Whether this gateway knows a fleet or a master already. Raises ``ConfigInvalid``."""
    from gateway.cli.stations import settings_and_folder

    settings, folder = settings_and_folder("gateway", config)
    return bool(settings.masters) or any((folder / name).exists() for name in ("masters", "site-certificate"))


def _client(context: typer.Context, socket: str | None) -> StationClient:
    from gateway.cli.client import ANSWER_SECONDS, StationClient

    called = invocation(context)
    # What was typed goes before the environment, and settings that were named are that too.
    source = context.get_parameter_source("config")
    named = source is not None and source.name == "COMMANDLINE"
    if called.meant.typed or (not named and (called.meant.socket is not None or called.meant.api is not None)):
        return called.client()
    return StationClient(Path(socket or "/run/outstation/gateway.sock"), ANSWER_SECONDS)


def _started(client: StationClient, site: str) -> None:
    """Have a running gateway take the settings, and wait until it is the station of its site.

    Raises ``NotRunning`` where none runs, and ``StationFailed`` when it does not become that.
    """
    from device_agent.errors import StationFailed
    from gateway.cli.fleet_views import Reloaded

    client.ask("POST", "/reload", Reloaded)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            if client.station().name == site:
                return
        except NotRunning:
            # Between the waiting room and the station nobody answers for a moment.
            pass
        time.sleep(START_LOOK_SECONDS)
    raise StationFailed(
        f"the gateway did not become the station of {site}",
        error_id="join.not_started",
        allowed=f"within {START_SECONDS:.0f} s",
        hint="systemctl status outstation-gateway   or   journalctl -u outstation-gateway",
    )


def _taken(client: StationClient, site: str, folder: Path, given: Given) -> Taken:
    """Have the gateway that runs join, or leave it to the one that starts next.

    One that starts in this moment has its folder already and no socket yet; it is waited for. Raises ``UsageInvalid``.
    """
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            if given.wish is not None:
                _started(client, site)
            return Taken(_joined_running(client, given), running=True)
        except NotRunning:
            pass
        try:
            return Taken(_joined_files(site, folder, given), running=False)
        except UsageInvalid as refused:
            if refused.error_id != "station.running" or time.monotonic() >= deadline:
                raise
        time.sleep(START_LOOK_SECONDS)


def _joined_running(client: StationClient, given: Given) -> FleetView:
    """Have the running gateway join. Raises ``NotRunning``."""
    from gateway.cli import fleet_views

    for token in given.tokens:
        fleet_views.join(client, token, None)
    if given.bundle is not None:
        fleet_views.join(client, None, given.bundle)
    return fleet_views.shown(client)


def _joined_files(site: str, folder: Path, given: Given) -> FleetView:
    """Keep it for the next start of a gateway that does not run."""
    import asyncio

    import msgspec

    from gateway.cli.fleet_views import FleetView
    from gateway.cli.stations import authority_of
    from gateway.fleet.joining import join_with_bundle, join_with_token
    from gateway.fleet.state_folder import at_rest

    async def take() -> None:
        for token in given.tokens:
            await join_with_token(authority, token)
        if given.bundle is not None:
            await join_with_bundle(authority, given.bundle)

    with at_rest(folder, "outstation --socket PATH gateway join …, with the socket of the station that runs"):
        authority = authority_of("gateway", site, folder)
        asyncio.run(take())
    return msgspec.convert(authority.view(), FleetView)
