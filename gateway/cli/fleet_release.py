"""``outstation fleet release``: the keys that release code, and the list of files that they have released. Offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from device_agent.clock import iso
from device_agent.errors import EXIT_NOT_ALL_OK, EXIT_OK
from gateway.cli.command import HelpText, invocation, noun, verb
from gateway.cli.fleet_words import EXITS, FOLDER, Folder, Keys, say_progress
from gateway.cli.text import safe

if TYPE_CHECKING:
    from gateway.cli.output import Output
    from gateway.fleet.release_folder import Difference

LISTED = 20

app = noun(
    HelpText(
        purpose="Releases: which files of code run on devices and stations, and whose key says so.",
        details="A custom module runs only when its hash stands in a list that a release key signed, and the root list "
        "names that key. It is kept apart from the root keys and from every station.",
        order=("key", "add", "drop", "sign", "show", "verify"),
        examples=[
            ("outstation fleet release key /media/r/release.key", "a release key, once"),
            ("outstation fleet release sign /srv/salt --key /media/r/release.key", "after each change of a module"),
        ],
        exits=EXITS,
    )
)

PassphraseFile = Annotated[
    Path | None, typer.Option(metavar="FILE", readable=False, help="read the passphrase from a file instead of asking")
]
KeyFile = Annotated[Path, typer.Option("--key", metavar="FILE", help="the release key")]
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="a file root: the folder with _modules, _grains …")]

KEY = HelpText(
    purpose="Make a release key, in a file that a passphrase opens; print the line for the holders of the root keys.",
    details="They take it up with `outstation fleet release add`, and compare its fingerprint.",
    examples=[
        ("outstation fleet release key /media/r/release.key", "asks for a passphrase, twice"),
        ("outstation fleet release key release.key --file release.line", "the line goes to a file, to be carried"),
    ],
    exits=EXITS,
)


@verb(app, "key", KEY)
def key(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="where to write the key")],
    file: Annotated[Path | None, typer.Option("--file", metavar="FILE", help="write the line there as well")] = None,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Make a release key."""
    from device_agent.trust.keys import fingerprint
    from gateway.backup.passphrase import new_passphrase
    from gateway.fleet.private_file import write_private
    from gateway.fleet.release_keys import describe, make_release_key

    output = invocation(context).output
    made = make_release_key(path, new_passphrase(passphrase_file, "release key"))
    line = describe(made)
    if file is not None:
        write_private(file, line.encode() + b"\n")
    output.facts([("release key", safe(str(path))), ("fingerprint", fingerprint(made.public))])
    output.line(line)
    output.note("whoever has this key and its passphrase says which code runs on the fleet: keep it off every station")
    output.note("next, offline:  outstation fleet release add LINE")
    return EXIT_OK


ADD = HelpText(
    purpose="Take a release key up into the root list.",
    details="LINE is what `outstation fleet release key` prints, or a file with it.",
    examples=[
        ("outstation fleet release add release.line", "signed by the root keys in the folder"),
        ("outstation fleet release add release.line --key /media/a/root-1.key", "the first of two signatures"),
    ],
    exits=EXITS,
)


@verb(app, "add", ADD)
def add(
    context: typer.Context,
    line: Annotated[str, typer.Argument(metavar="LINE", help="the line, or a file with it")],
    expected: Annotated[
        str | None, typer.Option("--fingerprint", metavar="FINGERPRINT", help="what was shown there (default: any)")
    ] = None,
    key: Keys = None,
    folder: Folder = FOLDER,
) -> int:
    """Add a release key."""
    from device_agent.errors import UsageInvalid
    from device_agent.trust.keys import fingerprint, same_fingerprint
    from gateway.fleet import armor
    from gateway.fleet.ceremony import Ceremony
    from gateway.fleet.release_keys import read_description

    output = invocation(context).output
    public = read_description(armor.typed(line))
    if expected is not None and not same_fingerprint(expected, fingerprint(public)):
        raise UsageInvalid(
            "this line is of another key than you expect",
            error_id="fleet.other_fingerprint",
            found=fingerprint(public),
            allowed=expected,
            hint="take the line again from where the key was made",
        )
    progress = Ceremony(folder).add_release_key(public, key or [], output.now())
    output.facts([("release key", fingerprint(public))])
    say_progress(output, progress)
    return EXIT_OK


DROP = HelpText(
    purpose="Drop a release key from the root list, for good: what it signed runs nowhere any more.",
    details="Sign the same folders with another release key first, so that their modules go on.",
    examples=[
        ("outstation fleet release drop osfs-x6sp-3l2s-7pzn", "stolen, or its passphrase is lost"),
        ("outstation fleet release drop osfs-x6sp-3l2s-7pzn --key /media/a/root-1.key", "the first of two signatures"),
    ],
    exits=EXITS,
)


@verb(app, "drop", DROP)
def drop(
    context: typer.Context,
    fingerprint: Annotated[str, typer.Argument(metavar="FINGERPRINT", help="as `outstation fleet show` shows it")],
    key: Keys = None,
    folder: Folder = FOLDER,
) -> int:
    """Drop a release key."""
    from gateway.fleet.ceremony import Ceremony

    output = invocation(context).output
    say_progress(output, Ceremony(folder).drop_release_key(fingerprint, key or [], output.now()))
    return EXIT_OK


SIGN = HelpText(
    purpose="Sign the list of all modules in a file root, and put it there as _release.",
    details="Nothing of them is run. Several folders, such as one for each environment, get one list over all of them. "
    "Its version is one above that of the list that lies there. Look at the classes: what is not named is shell.",
    examples=[
        ("outstation fleet release sign /srv/salt --key /media/r/release.key", "asks for the passphrase"),
        ("outstation fleet release sign /srv/salt /srv/dev --key release.key", "one list for two environments"),
    ],
    exits=EXITS,
)


@verb(app, "sign", SIGN)
def sign(
    context: typer.Context,
    folders: Annotated[list[Path], typer.Argument(metavar="DIR…", help="file roots, with _modules, _grains … in them")],
    key: KeyFile = Path("release.key"),
    version: Annotated[
        int | None, typer.Option(metavar="N", help="the version (default: one above the last that lies there)")
    ] = None,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Sign a release list."""
    from gateway.backup.passphrase import known_passphrase
    from gateway.fleet.release_folder import list_in, signed, write_list
    from gateway.fleet.release_keys import read_release_key

    output = invocation(context).output
    sealed = read_release_key(key)
    before = {
        (each.path, each.sha256) for folder in folders if (found := list_in(folder)) is not None for each in found.files
    }
    listed = signed(folders, sealed.opened(known_passphrase(passphrase_file, "release key")), output.now(), version)
    for each in listed.files:
        classes = ", ".join(f"{name}: {reach}" for name, reach in each.reaches.items())
        news = "" if (each.path, each.sha256) in before else "  new"
        output.line(f"{each.sha256.hex()[:16]}  {safe(each.path)}  {classes or 'shell'}{news}")
    for folder in folders:
        output.facts([("signed", safe(f"{write_list(folder, listed.body)}, version {listed.version}"))])
    output.facts([("dated", f"{iso(listed.issued)} by the clock of this machine")])
    output.note("devices take it with the next saltutil.sync_all; they take no older one from then on")
    return EXIT_OK


SHOW = HelpText(
    purpose="Show the release list of a file root: version, signer, files and the classes of their functions.",
    details="It does not say whether the list holds: `outstation fleet release verify` does.",
    examples=[
        ("outstation fleet release show /srv/salt", "the list that lies there"),
        ("outstation fleet release show .", "here"),
    ],
    exits=EXITS,
)


@verb(app, "show", SHOW)
def show(context: typer.Context, folder: Directory) -> int:
    """Show a release list."""
    from gateway.fleet.release_folder import needed_list

    output = invocation(context).output
    listed = needed_list(folder)
    output.facts(
        [
            ("version", f"{listed.version}, dated {iso(listed.issued)}"),
            ("signed by", f"the key with the id {listed.kid.hex()}"),
        ]
    )
    for each in listed.files:
        classes = ", ".join(f"{name}: {reach}" for name, reach in each.reaches.items())
        output.line(f"{each.sha256.hex()[:16]}  {safe(each.path)}  {classes or 'shell'}")
    return EXIT_OK


VERIFY = HelpText(
    purpose="Verify that a file root is as a release key of the fleet signed it.",
    details="By the root lists of the folder of the ceremony, or of any station's state folder.",
    examples=[
        ("outstation fleet release verify /srv/salt --root-lists /var/lib/outstation/master/root-lists", "on a master"),
        ("outstation fleet release verify . --root-lists fleet/root-lists", "where it was signed"),
    ],
    exits={**EXITS, EXIT_NOT_ALL_OK: "something is unsigned or altered"},
)


@verb(app, "verify", VERIFY)
def verify(
    context: typer.Context,
    folder: Directory,
    root_lists: Annotated[
        Path, typer.Option("--root-lists", metavar="FILE", help="the root lists of the fleet")
    ] = FOLDER / "root-lists",
) -> int:
    """Verify a file root."""
    from gateway.fleet.release_folder import differences, verified_list

    output = invocation(context).output
    listed = verified_list(folder, root_lists)
    found = differences(folder, listed)
    _say_differences(output, found)
    if any(each.what != "missing" for each in found):
        return EXIT_NOT_ALL_OK
    output.line(("verified", "green"), f" version {listed.version}, {len(listed.files)} files")
    return EXIT_OK


def _say_differences(output: Output, found: list[Difference]) -> None:
    for each in found[:LISTED]:
        words = "not here; it may be of another environment" if each.what == "missing" else each.what
        output.line((words, "yellow" if each.what == "missing" else "red"), f"  {safe(each.path)}")
    if len(found) > LISTED:
        output.line(f"… and {len(found) - LISTED} more")
