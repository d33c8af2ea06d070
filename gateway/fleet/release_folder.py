"""A folder of files that are code, such as a file root: what of it is signed, and whether that still lies there.

    _modules/door.py  _grains/lens.py …     one file for each module; the folders are those of ``CODE_FOLDERS``
    _release                                the list, beside them; devices fetch it as ``salt://_release``

Nothing of it is run here. A module says the classes of its functions itself, as a literal that can be read without it:
``__reach__ = {"status": "looks"}``. What it does not name is as good as a root shell.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from device_agent.custom.kinds import CODE_FOLDERS, LIST, MODULE_BYTES, NAME_PATTERN
from device_agent.errors import Refused, UsageInvalid
from device_agent.trust.keys import SigningKey, fingerprint
from device_agent.trust.reach import CLASSES, MODULES, Reach
from device_agent.trust.release_list import (
    FUNCTION_PATTERN,
    Released,
    ReleaseList,
    open_release_list,
    read_release_list,
    sign_release_list,
)
from device_agent.trust.root_list import read_root_list
from gateway.fleet.ceremony import checked_chain
from gateway.fleet.private_file import read_private
from gateway.fleet.station_files import FILE_BYTES

LIST_BYTES: Final = 256 * 1024
REACH: Final = "__reach__"
CALLED: Final = ("_modules", "_grains")
"""Folders whose modules this release calls."""

_name = re.compile(NAME_PATTERN)
_function = re.compile(FUNCTION_PATTERN)


@dataclass(frozen=True)
class Difference:
    """A file that is not as the list says. ``what`` is ``unsigned``, ``altered`` or ``missing``."""

    path: str
    what: str


def files_in(folder: Path) -> list[Released]:
    """Every module in a folder, with its hash and classes. Raises ``UsageInvalid`` for what cannot be one."""
    return [_released(path, name) for path, name in _modules(folder)]


def list_in(folder: Path) -> ReleaseList | None:
    """The list of a folder, not verified; None where there is none. Raises ``UsageInvalid``."""
    place = folder / LIST
    body = read_private(place, LIST_BYTES)
    if body is None:
        return None
    try:
        return read_release_list(body)
    except Refused as refusal:
        raise UsageInvalid(
            "this is no release list, or it is damaged",
            error_id="release.bad_list",
            where=str(place),
            found=str(refusal),
            allowed="a file that `outstation fleet release sign` made",
            hint="restore it, or sign anew with a version above that of the last one: --version N",
        ) from None


def needed_list(folder: Path) -> ReleaseList:
    """The list of a folder, not verified. Raises ``UsageInvalid`` where there is none."""
    found = list_in(folder)
    if found is None:
        raise UsageInvalid(
            "there is no release list in this folder",
            error_id="release.no_list",
            where=str(folder / LIST),
            allowed="a folder that was signed",
            hint=f"outstation fleet release sign {folder} --key FILE",
        )
    return found


def verified_list(folder: Path, root_lists: Path) -> ReleaseList:
    """The list of a folder, if a release key in these root lists signed it. Raises ``UsageInvalid``."""
    listed = needed_list(folder)
    body = read_private(root_lists, FILE_BYTES)
    if body is None:
        raise UsageInvalid(
            "there are no root lists to verify by",
            error_id="release.no_root_lists",
            where=str(root_lists),
            allowed="the file root-lists of a ceremony or of a station",
            hint="--root-lists FILE",
        )
    root = read_root_list(checked_chain(body, str(root_lists))[-1])
    try:
        return open_release_list(listed.body, root)
    except Refused as refusal:
        raise UsageInvalid(
            "no release key of this fleet has signed this list",
            error_id="release.not_signed",
            where=str(folder / LIST),
            found=str(refusal),
            allowed=", ".join(map(fingerprint, root.releases)) or "no release key is in the root list",
            hint="outstation fleet release sign DIR --key FILE, with one of these",
        ) from None


def signed(folders: Sequence[Path], key: SigningKey, now: float, version: int | None) -> ReleaseList:
    """A list of all modules in these folders, one version above theirs. Raises ``UsageInvalid``."""
    files = {(each.path, each.sha256): each for folder in folders for each in files_in(folder)}
    known = [found.version for folder in folders if (found := list_in(folder)) is not None]
    least = max(known, default=0) + 1
    if version is not None and version < least:
        raise UsageInvalid(
            "devices would refuse this list as an older one",
            error_id="release.old_version",
            where="--version",
            found=str(version),
            allowed=f"{least} or more",
        )
    try:
        body = sign_release_list(key, version=version or least, issued=int(now), files=files.values())
    except Refused as refusal:
        raise UsageInvalid(
            "nobody would take this list", error_id="release.bad_list", found=str(refusal), allowed="fewer files"
        ) from None
    return read_release_list(body)


def write_list(folder: Path, body: bytes) -> Path:
    """Put a list where devices look for it; everybody may read it. Raises ``UsageInvalid``."""
    place, fresh = folder / LIST, folder / f".{LIST}.new"
    try:
        fresh.write_bytes(body)
        fresh.chmod(0o644)
        fresh.replace(place)
    except OSError as error:
        raise UsageInvalid(
            "the list could not be written",
            error_id="release.not_written",
            where=str(place),
            found=error.strerror or str(error),
            allowed="a folder that you may write",
        ) from None
    return place


def differences(folder: Path, listed: ReleaseList) -> list[Difference]:
    """What in a folder is not as its list says. The list may name files of other folders too."""
    here = {name: path for path, name in _modules(folder)}
    found: list[Difference] = []
    for name, path in here.items():
        released = listed.of(name)
        if not released:
            found.append(Difference(name, "unsigned"))
        elif _digest(_read(path)) not in {each.sha256 for each in released}:
            found.append(Difference(name, "altered"))
    gone = {each.path for each in listed.files} - here.keys()
    return [*found, *(Difference(name, "missing") for name in sorted(gone))]


def _modules(folder: Path) -> list[tuple[Path, str]]:
    """The files of modules and their paths in the list. Names that begin with a dot or ``_`` are none."""
    if not folder.is_dir():
        raise UsageInvalid(
            "there is no such folder",
            error_id="release.no_folder",
            where=str(folder),
            allowed=f"a folder with {', '.join(CODE_FOLDERS)} in it",
        )
    found = []
    for kind in CODE_FOLDERS:
        for path in sorted((folder / kind).glob("*")):
            if path.name.startswith((".", "_")):
                continue
            if not path.is_file() or path.suffix != ".py" or not _name.fullmatch(path.stem):
                raise _unfit(path, "another file or a folder", "one file NAME.py for each module, in small letters")
            if kind == "_modules" and path.stem in MODULES:
                raise _unfit(path, f"{path.stem} is a module of this release", "another name: none is taken over")
            found.append((path, f"{kind}/{path.name}"))
    return found


def _released(path: Path, name: str) -> Released:
    body = _read(path)
    try:
        tree = ast.parse(body, str(path))
    except (SyntaxError, ValueError) as error:
        raise _unfit(path, f"{type(error).__name__}: {error}", "Python that this release can read") from None
    return Released(name, _digest(body), classes_of(path, tree))


def classes_of(path: Path, tree: ast.Module) -> dict[str, Reach]:
    """What the module says of itself, read and not run. Raises ``UsageInvalid`` for what can be no module."""
    functions = {
        node.name.removesuffix("_")
        for node in tree.body
        if isinstance(node, ast.AsyncFunctionDef) and not node.name.startswith("_")
    }
    plain = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    if plain and not functions and path.parent.name in CALLED:
        raise _unfit(
            path,
            f"def {plain[0]}(…), and no async def",
            "functions in this form: async def f(host, …), see docs/modules.md",
        )
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(isinstance(each, ast.Name) and each.id == REACH for each in targets):
            assert isinstance(node, ast.Assign | ast.AnnAssign), "nothing else has targets"
            try:
                value = ast.literal_eval(node.value) if node.value is not None else None
            except ValueError:
                value = None
            if not isinstance(value, dict):
                raise _unfit(path, f"a {REACH} that is computed", f'a literal: {REACH} = {{"status": "looks"}}')
            return _checked(path, value, functions)
    return {}


def _checked(path: Path, value: dict[object, object], functions: set[str]) -> dict[str, Reach]:
    found: dict[str, Reach] = {}
    for function, reach in value.items():
        if not isinstance(function, str) or function not in functions or not _function.fullmatch(function):
            raise _unfit(
                path, f"{REACH} names {function!r}", f"functions of this module: {', '.join(sorted(functions))}"
            )
        match = next((each for each in CLASSES if each == reach), None)
        if match is None:
            raise _unfit(path, f"{REACH} says {reach!r} of {function}", ", ".join(CLASSES))
        found[function] = match
    return found


def _read(path: Path) -> bytes:
    body = read_private(path, MODULE_BYTES)
    assert body is not None, "it was listed just now"
    return body


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()


def _unfit(path: Path, found: str, allowed: str) -> UsageInvalid:
    return UsageInvalid(
        "this file cannot be a module",
        error_id="release.bad_module",
        where=str(path),
        found=found,
        allowed=allowed,
        hint="mend it, or move it out of the folder",
    )
