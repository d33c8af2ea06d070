"""``outstation fleet``: the root keys of a fleet, and which masters count. Everything but ``publish`` works offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from device_agent.errors import EXIT_OK
from gateway.cli import fleet_release
from gateway.cli.command import ASKING, HelpText, invocation, noun, verb
from gateway.cli.fleet_words import EXITS, FOLDER, Folder, Keys, say_progress
from gateway.cli.text import safe

if TYPE_CHECKING:
    from gateway.cli.output import Output
    from gateway.fleet.root_keys import RootKey

ROOT_KEY_WORDS = (
    "Take each key file to an offline medium of its own, each in other hands, and delete it here.",
    "Two of the three sign every change: a master more or less, another root key, and a renewal once a year.",
    "Whoever has two of them owns the fleet. Once two are lost, nothing can be changed any more: every gateway and",
    "every device must then join anew, each by hand. A master that is stolen stays a master until two keys say so.",
)

app = noun(
    HelpText(
        purpose="Fleet: the root keys, and which masters every gateway and device believes.",
        details="Done on a machine that is offline, with a folder that holds the root lists. The keys come to it on "
        "their media when something is signed, all at once or one after the other.",
        examples=[
            ("outstation fleet init", "three root keys and the first root list, in ./fleet"),
            (
                "outstation fleet add-master central.master --key /media/a/root-1.key --key /media/b/root-2.key",
                "a master",
            ),
        ],
        exits=EXITS,
    )
)

app.add_typer(fleet_release.app, name="release")

INIT = HelpText(
    purpose="Make a fleet: three root keys, each in a file of its own, and the first root list.",
    details="Two of the three keys are needed for every change from then on.",
    examples=[
        ("outstation fleet init", "in ./fleet"),
        ("outstation fleet init --folder /media/fleet --standalone", "for sites without a master of Outstation's"),
    ],
    exits=EXITS,
)


@verb(app, "init", INIT)
def init(
    context: typer.Context,
    folder: Folder = FOLDER,
    standalone: Annotated[
        bool, typer.Option("--standalone", help="with an offline authority that certifies sites, for 400 days each")
    ] = False,
) -> int:
    """Begin a fleet."""
    from gateway.fleet.ceremony import SITE_AUTHORITY, Ceremony

    output = invocation(context).output
    progress, keys = Ceremony(folder).begin(output.now(), standalone=standalone)
    output.facts([("fleet", progress.root.fingerprint.hex()), ("root list", safe(f"{progress.file}, version 1"))])
    _say_keys(output, keys)
    if standalone:
        output.facts([(SITE_AUTHORITY, safe(str(folder / f"{SITE_AUTHORITY}.keys")))])
    for words in ROOT_KEY_WORDS:
        output.note(words)
    if standalone:
        output.note(f"{SITE_AUTHORITY}.keys certifies sites: keep it offline too, with a copy. It can order nothing.")
        output.note("next:  outstation fleet sign-site REQUEST, with what `outstation gateway init` prints")
    else:
        output.note("next:  outstation fleet add-master DESCRIPTION, with what `outstation master init` prints")
    return EXIT_OK


ADD = HelpText(
    purpose="Add a master to the root list, or give one that stands there another address or role.",
    details="DESCRIPTION is the line that `outstation master init` prints, or a file with it. Compare the fingerprint "
    "with the one it shows there, or give that one: then nothing is signed for another.",
    examples=[
        ("outstation fleet add-master central.master", "signed by the keys in the folder"),
        ("outstation fleet add-master central.master --root-shell", "one that may run and change anything everywhere"),
    ],
    exits=EXITS,
)


@verb(app, "add-master", ADD)
def add_master(
    context: typer.Context,
    description: Annotated[str, typer.Argument(metavar="DESCRIPTION", help="the line, or a file with it")],
    root_shell: Annotated[
        bool, typer.Option("--root-shell", help="it may also order what is as good as a root shell")
    ] = False,
    expected: Annotated[
        str | None, typer.Option("--fingerprint", metavar="FINGERPRINT", help="what the master shows (default: any)")
    ] = None,
    key: Keys = None,
    folder: Folder = FOLDER,
) -> int:
    """Add a master."""
    from device_agent.errors import UsageInvalid
    from device_agent.trust.keys import fingerprint, same_fingerprint
    from gateway.fleet import armor
    from gateway.fleet.ceremony import Ceremony
    from gateway.fleet.description import read_description

    output = invocation(context).output
    master = read_description(armor.typed(description))
    if expected is not None and not same_fingerprint(expected, fingerprint(master.sig)):
        raise UsageInvalid(
            "this description is of another key than you expect",
            error_id="fleet.other_fingerprint",
            found=f"{fingerprint(master.sig)} ({master.name})",
            allowed=expected,
            hint="take the description from the master again: outstation master init",
        )
    progress = Ceremony(folder).add_master(master, key or [], output.now(), root_shell=root_shell)
    output.facts([("master", safe(master.name)), ("fingerprint", fingerprint(master.sig))])
    say_progress(output, progress)
    return EXIT_OK


DROP = HelpText(
    purpose="Drop a master from the root list: whatever it signed or signs counts no more.",
    details="Sites that it certified are certified anew by another master, which must have accepted them too.",
    examples=[
        ("outstation fleet drop-master central", "stolen, taken over, or scrapped"),
        ("outstation fleet drop-master central --key /media/a/root-1.key", "the first of two signatures"),
    ],
    exits=EXITS,
)


@verb(app, "drop-master", DROP)
def drop_master(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="the master's name in the root list")],
    key: Keys = None,
    folder: Folder = FOLDER,
) -> int:
    """Drop a master."""
    from gateway.fleet.ceremony import Ceremony

    output = invocation(context).output
    say_progress(output, Ceremony(folder).drop_master(name, key or [], output.now()))
    return EXIT_OK


ROTATE = HelpText(
    purpose="Issue the root list anew, at least once a year; with another key in place of a lost or stolen one.",
    details="Signed by two of the keys before and two of the keys after. Who pinned the keys before is led to the new.",
    examples=[
        ("outstation fleet rotate", "the yearly renewal"),
        ("outstation fleet rotate --replace root-2 --key root-1.key --key root-3.key", "root-2 is lost"),
    ],
    exits=EXITS,
)


@verb(app, "rotate", ROTATE)
def rotate(
    context: typer.Context,
    replace: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="a root key to replace, such as root-2; may be repeated")
    ] = None,
    key: Keys = None,
    folder: Folder = FOLDER,
) -> int:
    """Issue the root list anew."""
    from gateway.fleet.ceremony import Ceremony

    output = invocation(context).output
    progress, fresh = Ceremony(folder).rotate(replace or [], key or [], output.now())
    _say_keys(output, fresh)
    say_progress(output, progress)
    if fresh:
        output.note("take the new key file to an offline medium of its own, and delete it here")
    return EXIT_OK


SIGN = HelpText(
    purpose="Add a signature to the root list that is not finished yet.",
    details="For holders who do not meet: the folder goes from one to the other.",
    examples=[
        ("outstation fleet add-signature --key /media/b/root-2.key", "the second of two"),
        (
            "outstation fleet add-signature --folder /media/fleet --key root-2.key",
            "on the folder as it was carried here",
        ),
    ],
    exits=EXITS,
)


@verb(app, "add-signature", SIGN)
def add_signature(context: typer.Context, key: Keys = None, folder: Folder = FOLDER) -> int:
    """Sign the unfinished root list."""
    from gateway.fleet.ceremony import Ceremony

    say_progress(invocation(context).output, Ceremony(folder).add_signatures(key or []))
    return EXIT_OK


SHOW = HelpText(
    purpose="Show what a file or a line of a fleet says; private keys are not shown.",
    examples=[
        ("outstation fleet show fleet/root-lists", "the masters, and what each may"),
        ("outstation fleet show lisbon.bundle", "what a site will be granted"),
    ],
    exits=EXITS,
)


@verb(app, "show", SHOW)
def show(
    context: typer.Context,
    given: Annotated[str, typer.Argument(metavar="FILE", help="root lists, a description, a request or a bundle")],
) -> int:
    """Print the facts."""
    from gateway.cli.fleet_show import facts_of

    invocation(context).output.facts([(safe(name), safe(words)) for name, words in facts_of(given)])
    return EXIT_OK


PUBLISH = HelpText(
    purpose="Give a running station the newest root lists; from a master they reach every site and device.",
    examples=[
        ("outstation fleet publish fleet/root-lists", "on the master"),
        ("outstation --socket /run/outstation/gateway.sock fleet publish root-lists", "a gateway that sees no master"),
    ],
    exits=ASKING,
)


@verb(app, "publish", PUBLISH)
def publish(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="the file root-lists from the folder of the ceremony")],
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> int:
    """Publish root lists."""
    from gateway.cli import fleet_views

    output = invocation(context).output
    view = fleet_views.publish(invocation(context).client(), read_file(file))
    if as_json:
        output.record("fleet", view)
        return EXIT_OK
    words = "taken" if view.changed else "known already"
    output.line((words, "green"), f" version {view.root_version} of fleet {safe(view.root or '-')}")
    output.facts(
        [("masters", safe(", ".join(view.masters) or "none")), ("may sign", safe(", ".join(view.roles) or "-"))]
    )
    if view.role == "master" and not view.joined:
        output.note("this master is not in the root list: nobody believes what it signs")
    return EXIT_OK


SIGN_SITE = HelpText(
    purpose="Certify a site with the offline authority of a standalone fleet, and write the bundle for it.",
    details="REQUEST is the line that `outstation gateway init` prints, or a file with it. A site may look and not "
    "touch (the class looks) unless more is granted, to itself or to an origin such as a Salt master.",
    examples=[
        ("outstation fleet sign-site lisbon.request", "writes lisbon.bundle"),
        ("outstation fleet sign-site lisbon.request --grant 'cmd.*' --origin salt", "what its Salt master may order"),
    ],
    exits=EXITS,
)


@verb(app, "sign-site", SIGN_SITE)
def sign_site(
    context: typer.Context,
    request: Annotated[str, typer.Argument(metavar="REQUEST", help="the line, or a file with it")],
    grant: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="functions that are granted; may be repeated")
    ] = None,
    origin: Annotated[str, typer.Option(metavar="ORIGIN", help="whom they are granted to, such as salt")] = "",
    days: Annotated[int, typer.Option(metavar="N", help="how long the certificate counts")] = 400,
    bundle: Annotated[Path | None, typer.Option(metavar="FILE", help="where to (default: SITE.bundle)")] = None,
    folder: Folder = FOLDER,
) -> int:
    """Certify a site offline."""
    from gateway.cli.fleet_show import facts_of
    from gateway.fleet import armor
    from gateway.fleet.ceremony import Ceremony
    from gateway.fleet.grants import Grant
    from gateway.fleet.private_file import write_private
    from gateway.fleet.site_authority import read_request
    from gateway.fleet.site_authority import sign_site as sign

    output = invocation(context).output
    asked = read_request(armor.typed(request))
    made = sign(Ceremony(folder), asked, Grant(tuple(grant or ()), origin, days=days), output.now()).text()
    target = bundle or Path(f"{asked.site}.bundle")
    write_private(target, made.encode() + b"\n")
    output.facts([(safe(name), safe(words)) for name, words in facts_of(made)[:6]])
    output.facts([("bundle", safe(str(target)))])
    output.note(f"on the gateway:  outstation gateway join --bundle {safe(target.name)}")
    return EXIT_OK


def read_file(path: Path) -> bytes:
    """The bytes of a file that somebody named. Raises ``UsageInvalid``."""
    from device_agent.errors import UsageInvalid
    from gateway.fleet.private_file import read_private
    from gateway.fleet.station_files import FILE_BYTES

    body = read_private(path, FILE_BYTES) if path.is_file() else None
    if body is None:
        raise UsageInvalid("there is no such file", where=str(path), hint=f"ls -l {path.parent}")
    return body


def _say_keys(output: Output, keys: list[RootKey]) -> None:
    from gateway.fleet.root_keys import described

    output.facts([(key.name, safe(f"{key.path}  {described(key).partition(' ')[2].strip('()')}")) for key in keys])
