"""``outstation devices add``, ``set``, ``key`` and ``remove``: devices that are reached over SSH."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK, StationFailed, UsageInvalid
from gateway.cli import ssh_words
from gateway.cli.command import ASKING, HelpText, invocation, verb
from gateway.cli.sites import confirmed
from gateway.cli.ssh_words import Agent, Certificate, Json, Jump, KeyFile, Name, PassphraseFile, PasswordFile, Poll
from gateway.cli.text import safe

if TYPE_CHECKING:
    from gateway.cli.output import Output
    from gateway.cli.ssh_client import SshClient
    from gateway.cli.ssh_views import HostKeyView, SshDone, SshView

SCAN_SECONDS = 10.0

ADD = HelpText(
    purpose="Add a device that is reached over SSH, as a member of this site.",
    details="Its host key is pinned: give the fingerprint as the device itself shows it (ssh-keygen -lf there), or "
    "compare those that the station sees and say yes. --yes takes them without anybody comparing, and the device stays "
    "marked as unproven. Passwords and keys are sealed with the station's own key and never shown again.",
    examples=[
        ("outstation devices add cam-7 --ssh root@192.0.2.7 --key id_ed25519", "see its host keys, and say yes"),
        ("outstation devices add cam-7 --ssh admin@cam-7:2222 --password-file - --fingerprint SHA256:…", "in a script"),
    ],
    exits=ASKING,
)
SET = HelpText(
    purpose="Change where an SSH device is, or how to log in to it.",
    details="What is not said stays. The host key is not changed here: see devices key.",
    examples=[
        ("outstation devices set cam-7 --ssh root@192.0.2.8", "it has another address"),
        ("outstation devices set cam-7 --password-file -", "another password; asked for on a terminal"),
    ],
    exits=ASKING,
)
KEY = HelpText(
    purpose="Compare the host keys of an SSH device with what is pinned, or accept another one.",
    details="A device whose host key has changed is not connected to: it may be another one that pretends. Accept the "
    "new key only by the fingerprint that the device itself shows.",
    examples=[
        ("outstation devices key cam-7", "what is pinned, and what it shows now"),
        ("outstation devices key cam-7 --accept SHA256:…", "this one from now on, and no other"),
    ],
    exits={**ASKING, EXIT_NOT_ALL_OK: "it does not show what is pinned, or the station could not do it"},
)
REMOVE = HelpText(
    purpose="Remove an SSH device: it is out at once, and what opened its door is wiped.",
    details="An agent of the same name stays: see keys revoke.",
    examples=[
        ("outstation devices remove cam-7", "asks first, on a terminal"),
        ("outstation devices remove cam-7 --why scrapped --yes", "in a script"),
    ],
    exits=ASKING,
)

Ssh = Annotated[str, typer.Option("--ssh", metavar="USER@HOST[:PORT]", help="where it is, and as whom to log in")]
NewSsh = Annotated[
    str | None, typer.Option("--ssh", metavar="USER@HOST[:PORT]", help="where it is now, and as whom to log in")
]
Pinned = Annotated[
    list[str] | None,
    typer.Option("--fingerprint", metavar="SHA256:…", help="of its host key; more than once for several"),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands to their noun."""
    verb(app, "add", ADD)(add)
    verb(app, "set", SET)(change)
    verb(app, "key", KEY)(key)
    verb(app, "remove", REMOVE)(remove)


def add(
    context: typer.Context,
    name: Name,
    ssh: Ssh,
    password_file: PasswordFile = None,
    private_key: KeyFile = None,
    passphrase_file: PassphraseFile = None,
    certificate: Certificate = None,
    agent: Agent = False,
    jump: Jump = None,
    fingerprint: Pinned = None,
    poll: Poll = None,
    yes: Annotated[bool, typer.Option("--yes", help="take its host keys as they are seen, uncompared")] = False,
    as_json: Json = False,
) -> int:
    """Add a device."""
    from gateway.cli.ssh_client import SshClient

    output = invocation(context).output
    wish: dict[str, Any] = {"name": name, **ssh_words.address(ssh)}
    if not fingerprint and not yes and not sys.stdin.isatty():
        raise UsageInvalid(
            "nobody can be asked here whether the host key is the right one",
            error_id="ssh.not_pinned",
            allowed="a terminal, or --fingerprint SHA256:…, or --yes to take what is seen, uncompared",
            hint=f"outstation devices add {name} --ssh {ssh} --fingerprint SHA256:…",
        )
    login = ssh_words.secrets(password_file, private_key, passphrase_file, certificate, agent)
    if not login:
        raise UsageInvalid(
            "nothing says how to log in",
            error_id="ssh.logins",
            allowed="--password-file FILE, --key FILE, --key FILE with --certificate FILE, or --agent",
            hint=f"outstation devices add {name} --ssh {ssh} --password-file -",
        )
    wish |= {**login, "jump": jump or "", **ssh_words.poll_of(poll)}
    client = SshClient(invocation(context).client())
    # Everything else is judged first: nobody compares fingerprints for nothing.
    trial = client.put([{**wish, "fingerprints": fingerprint or []}], dry_run=True, only="new")
    if fingerprint or any(fault.field != "fingerprint" for fault in trial.bad):
        _check(trial)
    if trial.left:
        _say(output, client.show(name), "left as it was", as_json)
        return EXIT_OK
    pins = _named(output, client, wish, fingerprint) if fingerprint else _seen(output, client, wish, yes)
    if pins is None:
        output.note("nothing was changed")
        return EXIT_NOT_ALL_OK
    _check(client.put([{**wish, **pins}], only="new"))
    _say(output, client.show(name), "added", as_json)
    return EXIT_OK


def _named(output: Output, client: SshClient, wish: dict[str, Any], named: list[str]) -> dict[str, Any]:
    """Pin what was named; whoever answers with other keys only is not that device. Raises ``UsageInvalid``."""
    try:
        shown = client.scan(wish["host"], wish.get("port", 22), wish["jump"], SCAN_SECONDS / 2)
    except StationFailed as error:
        output.note(f"it does not answer now ({safe(error.found or error.what)}): pinned by its fingerprint alone")
        shown = []
    fitting = [each for each in shown if each.fingerprint in named]
    if shown and not fitting:
        raise UsageInvalid(
            "this is not the fingerprint of what answers there: it may be another one that pretends",
            error_id="ssh.fingerprint_differs",
            where="--fingerprint",
            found=f"typed {', '.join(named)}; it shows {', '.join(each.fingerprint for each in shown)}",
            allowed="the fingerprint that the device itself shows",
        )
    return {"fingerprints": named, "host_keys": [each.line for each in fitting]}


def _seen(output: Output, client: SshClient, wish: dict[str, Any], yes: bool) -> dict[str, Any] | None:
    """Show every host key that is seen, and pin them if somebody says so; None when nobody does."""
    shown = client.scan(wish["host"], wish.get("port", 22), wish["jump"], SCAN_SECONDS)
    output.note(f"host keys that {safe(wish['host'])} shows to the station:")
    _list(output, shown)
    if not yes and not confirmed("Are these what the device itself shows?"):
        return None
    pins: dict[str, Any] = {"host_keys": [each.line for each in shown]}
    if yes:
        pins["proof"] = "first_use"
        output.note("taken as they are seen: the device is marked as unproven")
    return pins


def change(
    context: typer.Context,
    name: Name,
    ssh: NewSsh = None,
    password_file: PasswordFile = None,
    private_key: KeyFile = None,
    passphrase_file: PassphraseFile = None,
    certificate: Certificate = None,
    agent: Agent = False,
    jump: Jump = None,
    poll: Poll = None,
    enable: Annotated[
        bool | None, typer.Option("--enable/--disable", help="connect to it, or leave it alone (default: as it is)")
    ] = None,
    as_json: Json = False,
) -> int:
    """Change a device."""
    from gateway.cli.ssh_client import SshClient

    output = invocation(context).output
    wish: dict[str, Any] = {
        **(ssh_words.address(ssh) if ssh is not None else {}),
        **ssh_words.secrets(password_file, private_key, passphrase_file, certificate, agent),
        **({"jump": jump} if jump is not None else {}),
        **ssh_words.poll_of(poll),
        **({"enabled": enable} if enable is not None else {}),
    }
    if not wish:
        raise UsageInvalid("nothing was said that should change", hint=f"outstation devices set {name} --help")
    client = SshClient(invocation(context).client())
    done = _check(client.put([{"name": name, **wish}], only="known"))
    _say(output, client.show(name), "changed" if done.changed else "left as it was", as_json)
    return EXIT_OK


def key(
    context: typer.Context,
    name: Name,
    accept: Annotated[
        str | None, typer.Option(metavar="SHA256:…", help="this host key is the device's from now on, and no other")
    ] = None,
    as_json: Json = False,
) -> int:
    """Compare host keys, or accept one."""
    from gateway.cli.ssh_client import SshClient

    output = invocation(context).output
    found = SshClient(invocation(context).client()).key(name, accept)
    fits = any(each.fingerprint in found.device.fingerprints for each in found.shown)
    if as_json:
        output.record("host_keys", found)
        return EXIT_OK if fits or accept is not None else EXIT_NOT_ALL_OK
    for fingerprint in found.device.fingerprints:
        output.line(("pinned", "green"), f"  {safe(fingerprint)}")
    for each in found.shown:
        known = each.fingerprint in found.device.fingerprints
        output.line(("shown", "green" if known else "red"), f"   {safe(each.fingerprint)} {safe(each.kind)}")
    if found.silent:
        output.note(f"it does not answer now: {safe(found.silent)}")
    elif not fits:
        output.note("none of what it shows is pinned: it may be another device that pretends")
        output.note(
            f"if it is the same one:  outstation devices key {safe(name)} --accept {found.shown[0].fingerprint}"
        )
    return EXIT_OK if fits or accept is not None else EXIT_NOT_ALL_OK


def remove(
    context: typer.Context,
    name: Name,
    why: Annotated[str, typer.Option(metavar="TEXT", help="the reason, for the audit")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    as_json: Json = False,
) -> int:
    """Remove a device."""
    from gateway.cli.ssh_client import SshClient

    output = invocation(context).output
    client = SshClient(invocation(context).client())
    if not yes and not confirmed(f"Remove {safe(name)}, and wipe what opens its door?"):
        output.note("nothing was changed")
        return EXIT_NOT_ALL_OK
    _say(output, client.remove(name, why), "removed", as_json)
    return EXIT_OK


def _check(done: SshDone) -> SshDone:
    """Raises ``UsageInvalid`` for what cannot be."""
    for fault in done.bad:
        raise UsageInvalid(
            fault.what, error_id=f"ssh.{fault.field}", where=fault.field, found=fault.found, allowed=fault.allowed
        )
    return done


def _say(output: Output, device: SshView, act: str, as_json: bool) -> None:
    if as_json:
        output.record("ssh_device", device)
        return
    through = f" through {safe(device.jump)}" if device.jump else ""
    output.line((act, "green"), f" {safe(device.name)} {safe(device.address)} by {safe(device.login)}{through}")


def _list(output: Output, keys: list[HostKeyView]) -> None:
    for each in keys:
        output.note(f"  {safe(each.fingerprint)}  {safe(each.kind)}")
