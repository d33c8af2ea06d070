"""Python files that a box brings to Salt: ``_modules``, ``_engines`` and the like, and the folders of ``*_dirs``.

Each file gets one verdict: it is parsed, and never run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from sys import stdlib_module_names
from typing import Any, Final

from device_agent.custom.kinds import MODULE_BYTES
from device_agent.errors import UsageInvalid
from device_agent.trust.policy import DEFAULT_GRANTS
from device_agent.trust.reach import FUNCTIONS, MODULES
from gateway.fleet.release_folder import classes_of
from gateway.salt.import_findings import Finding
from gateway.salt.import_functions import CHANGE, GRANT, ROLES, RUNS, STATES, OwnNames, judged
from gateway.salt.import_reactor import Told, finding_of
from gateway.salt.import_read import Box

FILES: Final = 2000
DIRS: Final[Mapping[str, str]] = {
    "beacons_dirs": "beacons",
    "engines_dirs": "engines",
    "grains_dirs": "grains",
    "module_dirs": "modules",
    "outputter_dirs": "outputters",
    "proxy_dirs": "proxy",
    "render_dirs": "renderers",
    "returner_dirs": "returners",
    "runner_dirs": "runners",
    "states_dirs": "states",
    "utils_dirs": "utils",
    "wheel_dirs": "wheel",
}
"""Key of Salt -> kind of the files in the folders that it names."""

NOWHERE: Final[Mapping[str, str]] = {
    "states": STATES,
    "returners": "a returner of your own is none here; docs/returners.md has those that there are",
    "proxy": "a device is reached over SSH or by its agent, and not by a proxy module (docs/ssh-devices.md)",
    "wheel": "a station has its own wheels (docs/runners.md)",
    "outputters": "results are printed by outstation run, or as --json",
}
UTILS: Final = "modules have no __utils__: put what they share into each of them"
OTHER: Final = "nothing here reads files of this kind"

FORMS: Final[Mapping[str, str]] = {
    "modules": "async def {}(host, …)",
    "grains": "async def {}(host)",
    "beacons": "async def beacon(host, config)",
    "runners": "async def {}(running, …)",
}
"""How a function of a kind is written here."""

SALTS: Final = frozenset({"__context__", "__grains__", "__opts__", "__pillar__", "__proxy__", "__salt__", "__utils__"})
NOT_IN_ENGINES: Final = frozenset({"__context__", "__grains__", "__pillar__", "__proxy__", "__utils__"})
SALT_IMPORTS: Final = frozenset({"salt", "salt.utils", "salt.utils.event", "salt.utils.json"})
FIRING: Final = ("event.send", "event.fire_master")
SIGN: Final = "sign it with outstation fleet release sign, and bring it with saltutil.sync_{} (docs/modules.md)"
ENGINE: Final = "put it into a folder of engines_dirs, which only root and the gateway's user may write to"


@dataclass
class OwnCode:
    """The files by kind, each once: the first of a name counts, as in Salt."""

    files: dict[str, dict[str, Path]] = field(default_factory=dict)
    full: bool = False

    def of(self, kind: str) -> dict[str, Path]:
        """The files of a kind by the name of their module."""
        return self.files.get(kind, {})

    @property
    def names(self) -> OwnNames:
        """Modules that calls may mean. A name of a module of the release keeps its meaning."""
        return OwnNames(self.of("modules").keys() - MODULES, self.of("runners").keys(), self.of("engines").keys())


def own_code(box: Box, roots: Mapping[str, Any]) -> OwnCode:
    """What there is in file roots and in the folders that settings name."""
    found = OwnCode()
    for folders in roots.values():
        for folder in folders if isinstance(folders, list) else []:
            if isinstance(folder, str) and folder.startswith("/"):
                for place in sorted(Path(folder).glob("_[a-z]*")):
                    _take(found, place.name[1:], place)
    for said in (said for keys in box.said.values() for said in keys.values()):
        if said.key in DIRS:
            for folder in said.value if isinstance(said.value, list) else [said.value]:
                _take(found, DIRS[said.key], Path(str(folder)))
        elif said.key == "extension_modules":
            for place in sorted(Path(str(said.value)).glob("*")):
                _take(found, place.name, place)
    return found


def _take(found: OwnCode, kind: str, folder: Path) -> None:
    if not folder.is_absolute() or not folder.is_dir():
        return
    for file in sorted(folder.glob("*.py")):
        if file.name.startswith((".", "_")) or not file.is_file():
            continue
        if sum(map(len, found.files.values())) >= FILES:
            found.full = True
            return
        found.files.setdefault(kind, {}).setdefault(file.stem, file)


def take_code(code: OwnCode) -> list[Finding]:
    """One verdict for each file."""
    found = [
        _verdict(kind, name, file, code.names) for kind, files in code.files.items() for name, file in files.items()
    ]
    if code.full:
        found.append(
            Finding("not carried", "modules", "", f"more than {FILES} files of code: the others were not looked at")
        )
    return found


def _verdict(kind: str, name: str, file: Path, own: OwnNames) -> Finding:
    what = f"_{kind}/{file.name}"
    if kind not in FORMS and kind != "engines":
        words = UTILS if kind == "utils" else NOWHERE.get(kind, OTHER)
        return Finding("not carried", what, str(file), words)
    try:
        body = file.read_bytes()[: MODULE_BYTES + 1]
        tree = ast.parse(body, str(file))
    except OSError as error:
        return Finding("wrong", what, str(file), f"it cannot be read: {error.strerror}", entry_alone=True)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None) or 1
        why = getattr(error, "msg", None) or str(error) or type(error).__name__
        return finding_of(what, file, [Told(line, CHANGE, f"this release cannot read its Python: {why[:120]}")])
    told = [Told(1, CHANGE, f"a module has at most {MODULE_BYTES:,} bytes")] if len(body) > MODULE_BYTES else []
    if kind == "engines":
        told += _engine(tree, own)
        return finding_of(what, file, sorted(told), ENGINE)
    if kind == "modules" and name in MODULES:
        told.append(Told(1, CHANGE, f"{name} is a module of this release, and keeps its name: give the file another"))
    told += [*_form(kind, tree), *_imports(tree)]
    if not any(each.verdict == CHANGE for each in told):
        told += _grants(kind, name, file, tree)
    return finding_of(what, file, sorted(told), SIGN.format(kind))


def _form(kind: str, tree: ast.Module) -> Iterator[Told]:
    """Functions in Salt's form, and the names that Salt puts into a module."""
    plain = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    made = [node for node in tree.body if isinstance(node, ast.AsyncFunctionDef) and not node.name.startswith("_")]
    if not made and plain:
        written = FORMS[kind].format(plain[0].name)
        more = f", and {len(plain) - 1} functions more" if len(plain) > 1 else ""
        yield Told(plain[0].lineno, CHANGE, f"def {plain[0].name} is Salt's form: write {written}{more}")
    elif kind == "beacons" and "beacon" not in {node.name for node in made}:
        yield Told(1, CHANGE, f"it has no {FORMS[kind]}")
    elif not made:
        yield Told(1, CHANGE, "it has no function")
    seen: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in SALTS - seen and isinstance(node.ctx, ast.Load):
            seen.add(node.id)
            yield Told(node.lineno, CHANGE, f"{node.id} is not there: work through host (docs/modules.md)")


def _imports(tree: ast.Module, there: frozenset[str] = frozenset()) -> Iterator[Told]:
    """Modules that cannot be imported here."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif node.module in {"salt", "salt.utils"} and there:
            names = [f"{node.module}.{each.name}" for each in node.names]
        else:
            names = [node.module] if node.module and not node.level else []
        for name in names:
            top = name.partition(".")[0]
            if top == "salt" and name not in there:
                yield Told(node.lineno, CHANGE, f"{name} of Salt is not here")
            elif top != "salt" and top not in stdlib_module_names and not _installed(top):
                yield Told(node.lineno, CHANGE, f"the Python module {top} is not installed beside the gateway")


def _installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _grants(kind: str, name: str, file: Path, tree: ast.Module) -> Iterator[Told]:
    """What a module of this release's form needs before it is called."""
    try:
        classes = classes_of(file, tree)
    except UsageInvalid as error:
        yield Told(1, CHANGE, f"{error.found}; allowed: {error.allowed}")
        return
    if kind not in ("modules", "runners"):
        return
    for node in tree.body:
        if isinstance(node, ast.AsyncFunctionDef) and not node.name.startswith("_"):
            found = classes.get(node.name.removesuffix("_"), "shell")
            if found in DEFAULT_GRANTS or (kind == "runners" and found != "shell"):
                continue
            words = (
                "the role admin"
                if kind == "runners"
                else f"--grant '{name}.*'"
                if found == "shell"
                else f"--grant {found}"
            )
            yield Told(node.lineno, GRANT, f"{name}.{node.name} is of the class {found}: calls of it need {words}")


def _engine(tree: ast.Module, own: OwnNames) -> Iterator[Told]:
    """An engine is written as for Salt; what it imports and calls has to be here."""
    if not any(isinstance(node, ast.FunctionDef) and node.name == "start" for node in tree.body):
        yield Told(1, CHANGE, "it has no def start(…)")
    yield from _imports(tree, SALT_IMPORTS)
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) if name in NOT_IN_ENGINES:
                yield Told(node.lineno, CHANGE, f"{name} is not there in an engine (docs/engines.md)")
            case ast.Subscript(
                value=ast.Name(id=("__salt__" | "__runners__") as source), slice=ast.Constant(value=str() as fun)
            ):
                if source == "__salt__" and fun in FIRING:
                    continue
                is_runner = fun in ROLES["runner"] or fun.partition(".")[0] in own.runners
                called = source == "__runners__" or (fun not in FUNCTIONS and is_runner)
                found = judged("runner" if called else "station", fun, "the user of the gateway", own)
                if found.verdict != RUNS:
                    yield Told(node.lineno, found.verdict, found.words)
            case _:
                continue
