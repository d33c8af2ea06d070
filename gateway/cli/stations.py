"""``master init`` and ``gateway init``: a station's keys, and what it says of itself to come into its fleet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from device_agent.errors import EXIT_CONFIG, EXIT_NOT_ALL_OK, EXIT_OK, EXIT_REFUSED, EXIT_USAGE
from gateway.cli import join
from gateway.cli.command import HelpText, invocation, verb
from gateway.cli.text import safe
from gateway.fleet.join_words import JOIN

if TYPE_CHECKING:
    from gateway.cli.fleet_views import FleetView
    from gateway.config import StationSettings
    from gateway.devices.authority import Authority

Role = Literal["master", "gateway"]

MASTER_CONFIG = Path("/etc/outstation/master.yaml")
GATEWAY_CONFIG = Path("/etc/outstation/gateway.yaml")
EXITS = {
    EXIT_OK: "done",
    EXIT_NOT_ALL_OK: "a file could not be written",
    EXIT_USAGE: "the command line, or what was given, is wrong",
    EXIT_CONFIG: "the settings or a file of the station are wrong",
    EXIT_REFUSED: "you may not, or the station is not asked that",
}

MASTER_INIT = HelpText(
    purpose="Make a master's keys, and describe it to the holders of the root keys.",
    details="The line on stdout goes to `outstation fleet add-master`; its fingerprint goes there by another way. "
    "Made once: a second time it says the same.",
    examples=[
        ("outstation master init --address tcp://203.0.113.7:4510 --file central.master", "the description"),
        ("outstation master init --root-list /media/fleet/root-lists", "and then, before the first start, its fleet"),
    ],
    exits=EXITS,
)
GATEWAY_INIT = HelpText(
    purpose="Make a gateway's keys, and its request for a site certificate.",
    details="The line on stdout is for a master that this gateway cannot reach yet: `outstation keys accept SITE "
    "--request FILE --bundle FILE`. Where it can, the request goes by itself: `outstation gateway join`.",
    examples=[
        ("outstation gateway init", "the fingerprint, to be compared when the site is accepted"),
        ("outstation gateway init --file lisbon.request", "the request, to be carried"),
    ],
    exits=EXITS,
)


def add(name: str, group: typer.Typer) -> None:
    """Add the verbs to the noun of a station."""
    if name == "master":
        verb(group, "init", MASTER_INIT)(master_init)
    elif name == "gateway":
        verb(group, "init", GATEWAY_INIT)(gateway_init)
        verb(group, "join", join.TEXT)(join.gateway_join)


WrittenTo = Annotated[Path | None, typer.Option(metavar="FILE", help="write the line to this file too")]
Config = Annotated[Path, typer.Option(metavar="FILE", readable=False, help="settings file")]


def master_init(
    context: typer.Context,
    address: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="tcp://HOST:PORT as gateways reach it (default: sites.listen)"),
    ] = None,
    root_list: Annotated[
        Path | None, typer.Option(metavar="FILE", help="install these root lists, before the first start")
    ] = None,
    file: WrittenTo = None,
    config: Config = MASTER_CONFIG,
) -> int:
    """Make a master's keys and describe it."""
    from gateway.cli.fleet import read_file
    from gateway.fleet.joining import publish
    from gateway.fleet.state_folder import at_rest

    output = invocation(context).output
    settings, folder = settings_and_folder("master", config)
    if root_list is not None:
        import asyncio

        body = read_file(root_list)
        with at_rest(folder, f"outstation fleet publish {root_list}"):
            authority = authority_of("master", settings.name, folder)
            asyncio.run(publish(authority, body, str(root_list)))
        root = authority.anchor.root
        assert root is not None, "just taken in"
        output.line(("installed", "green"), f" version {root.version} of fleet {root.fingerprint.hex()}")
        output.facts([("may sign", ", ".join(authority.roles()))])
        return EXIT_OK
    authority = authority_of("master", settings.name, folder)
    line, addresses = _description(authority, settings, address or [])
    output.line(line)
    _keep(folder / "description", line)
    if file is not None:
        _keep(file, line)
    _say_fingerprints(context, authority)
    output.note(f"addresses:    {safe(', '.join(addresses))}")
    output.note("next:         outstation fleet add-master DESCRIPTION, where the root keys are")
    return EXIT_OK


def gateway_init(context: typer.Context, file: WrittenTo = None, config: Config = GATEWAY_CONFIG) -> int:
    """Make a gateway's keys and its request."""
    from gateway.fleet import armor

    output = invocation(context).output
    settings, folder = settings_and_folder("gateway", config)
    authority = authority_of("gateway", settings.name, folder)
    line = armor.wrap("os-request", authority.request())
    output.line(line)
    _keep(folder / "request", line)
    if file is not None:
        _keep(file, line)
    _say_fingerprints(context, authority)
    output.note(f"site:         {safe(settings.name)}")
    output.note(f"next:         {JOIN}, or carry the line above to a master")
    return EXIT_OK


def settings_and_folder(role: Role, config: Path) -> tuple[StationSettings, Path]:
    """The settings of a station and its state folder, which is made. Raises ``ConfigInvalid``."""
    from gateway.fleet.state_folder import made
    from gateway.station_settings import settings_for

    settings = settings_for(role, config)
    return settings, made(Path(settings.state_dir or f"/var/lib/outstation/{role}"))


def authority_of(role: Role, site: str, folder: Path) -> Authority:
    """The station's keys and standing, its keys made when there are none."""
    from device_agent.clock import Clock
    from gateway.devices.authority import Authority
    from upstream.curve import load_or_make

    curve = load_or_make(folder / "curve.key")
    return Authority(folder, role=role, site=site, curve=curve, clock=Clock())


def _description(authority: Authority, settings: StationSettings, given: list[str]) -> tuple[str, list[str]]:
    from device_agent.trust.root_list import MasterKey
    from gateway.fleet.description import check_address, describe
    from upstream.curve import key_bytes

    known = authority.master
    addresses = given or (list(known.addresses) if known is not None else [])
    if not addresses:
        assert settings.sites is not None, "a master's settings always have the section"
        addresses = [check_address(settings.sites.listen)]
    master = MasterKey(
        name=settings.name,
        sig=authority.signing.public,
        kem=authority.kem.public,
        curve=key_bytes(authority.curve.public),
        addresses=tuple(addresses),
        roles=(),
    )
    return describe(authority.signing, master), addresses


def _keep(path: Path, line: str) -> None:
    from gateway.fleet.private_file import write_private

    write_private(path, line.encode() + b"\n")


def _say_fingerprints(context: typer.Context, authority: Authority) -> None:
    from device_agent.trust.keys import fingerprint
    from upstream.curve import fingerprint as curve_fingerprint

    output = invocation(context).output
    if authority.role == "master":
        output.note(f"fingerprint:  {fingerprint(authority.signing.public)}")
        output.note(f"link key:     {curve_fingerprint(authority.curve.public)}")
    else:
        # The one that a master shows when the gateway has knocked is that of the key it connects with.
        output.note(f"fingerprint:  {curve_fingerprint(authority.curve.public)}")
        output.note(f"identity:     {fingerprint(authority.signing.public)}")


def say_joined(context: typer.Context, view: FleetView) -> None:
    output = invocation(context).output
    output.line(("joined", "green"), f" {safe(view.site)} to fleet {safe(view.root or '-')}")
    if view.joined:
        facts = [("may sign", ", ".join(view.roles)), ("may order", ", ".join(view.grants))]
        facts += [(f"from {origin}", ", ".join(functions)) for origin, functions in view.origins.items()]
        output.facts([(name, safe(words or "-")) for name, words in facts])
        output.facts([("until", output.time(view.expires, "-"))])
        return
    output.note(f"next, on the master:  outstation keys accept {safe(view.site)}")
    output.note("the fingerprint to compare is on this machine:  outstation keys list, or outstation gateway init")
