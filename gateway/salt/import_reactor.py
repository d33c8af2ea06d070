"""The files of a reactor map: whether each runs here as it is, needs a grant, or needs a change, and in which line.

Nothing is rendered: there is no event. A template is parsed, and its lines are searched for what they call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from jinja2 import TemplateSyntaxError, nodes

from device_agent.errors import Refused
from device_agent.protocol.file_questions import SCHEME, url_parts
from gateway.owned_files import check_owned
from gateway.reactor.rules import RuleMap, parsed, parsed_text
from gateway.reactor.sls import KINDS
from gateway.reactor.written_calls import WrittenCall, written_calls
from gateway.render_sls import is_python
from gateway.render_templates import Codes, sandbox
from gateway.salt.import_findings import Finding, Said, Verdict
from gateway.salt.import_functions import CHANGE, ROLES, RUNS, Kind, OwnNames, judged, worst
from gateway.salt.import_read import pieces

FILE_BYTES: Final = 1024 * 1024
FILES: Final = 5000
SHOWN: Final = 10
"""Most lines that are named of a file."""

USER: Final = "reactor"
NOT_THERE: Final = frozenset({"grains", "opts", "pillar", "__salt__", "__grains__", "__pillar__"})
WHERE: Final[Mapping[str, Kind]] = {"local": "device", "caller": "station", "runner": "runner", "wheel": "wheel"}
IN_TEMPLATES: Final = frozenset({"config.get", "config.option", "slsutil.merge", "slsutil.update"})
"""Functions that a file may call while it is rendered, beside the runners that only look."""


class Told(NamedTuple):
    """One line of a file, and what is to be said of it."""

    line: int
    verdict: Verdict
    words: str


def take_reactor(said: Said, roots: Mapping[str, Any], own: OwnNames) -> list[Finding]:
    """One verdict for each file that the rules name, for each path without one, and for each rule that is none."""
    rules = _rules(said.value)
    found = [Finding(CHANGE, "reactor rule", said.where, words) for words in rules.skipped]
    places = {path: said.lines.get(rule.glob, said.where) for rule in rules.rules for path in rule.paths}
    done: set[Path] = set()
    left = 0
    for path in rules.paths():
        files = _files(path, roots)
        if not files:
            words = "no file is there, on this machine or in its file_roots"
            if not path.startswith(("/", SCHEME)):
                words = "write it as /PATH or salt://PATH"
            found.append(Finding(CHANGE, f"reactor {path[:200]}", places[path], words))
        for file in files:
            if file not in done and len(done) < FILES:
                done.add(file)
                found.append(_verdict(file, own))
            elif file not in done:
                left += 1
    if left:
        found.append(
            Finding("not carried", "reactor files", said.where, f"{left:,} beyond {FILES:,} were not looked at")
        )
    return found


def _rules(said: Any) -> RuleMap:
    if isinstance(said, list):
        return parsed(said)
    if not isinstance(said, str):
        return RuleMap(skipped=("it is no list of rules",))
    try:
        return parsed_text(Path(said).read_text(encoding="utf-8"), said)
    except (OSError, UnicodeDecodeError) as error:
        return RuleMap(skipped=(f"{said[:200]} cannot be read: {type(error).__name__}",))


def _files(path: str, roots: Mapping[str, Any]) -> list[Path]:
    if not path.startswith(SCHEME):
        return pieces(Path("/"), path) if path.startswith("/") else []
    try:
        name, environment = url_parts(path)
    except Refused:
        return []
    if ".." in Path(name).parts:
        return []
    folders = [each for each in roots.get(environment, []) if isinstance(each, str)]
    return [file for file in (Path(folder) / name for folder in folders) if file.is_file()][:1]


def _verdict(file: Path, own: OwnNames) -> Finding:
    try:
        with file.open("rb") as opened:
            content = opened.read(FILE_BYTES + 1)
        text = content.decode("utf-8")
    except OSError as error:
        return Finding(
            "wrong", f"reactor {file.name}", str(file), f"it cannot be read: {error.strerror}", entry_alone=True
        )
    except UnicodeDecodeError as error:
        told = [Told(error.object.count(b"\n", 0, error.start) + 1, CHANGE, "this is no text in UTF-8")]
        return finding_of(f"reactor {file.name}", file, told)
    if len(content) > FILE_BYTES:
        return finding_of(f"reactor {file.name}", file, [Told(1, CHANGE, f"a file has at most {FILE_BYTES:,} bytes")])
    read = _python(file, text) if is_python(content) else _template(text)
    told = sorted([*read, *(_judged(call, own) for call in written_calls(text))])
    return finding_of(f"reactor {file.name}", file, told)


def finding_of(what: str, file: Path, told: list[Told], words: str = "") -> Finding:
    """The one verdict of a file, which names each line that asks for it."""
    verdict = worst([each.verdict for each in told])
    lines = list(dict.fromkeys(f"line {each.line}: {each.words}" for each in told if each.words))
    if len(lines) > SHOWN:
        lines = [*lines[:SHOWN], f"and {len(lines) - SHOWN} lines more"]
    first = next((each.line for each in told if each.verdict == verdict and each.verdict != RUNS), 0)
    where = f"{file}:{first}" if first else str(file)
    return Finding(verdict, what, where, "; ".join([*lines, *([words] if words else [])]))


def _judged(call: WrittenCall, own: OwnNames) -> Told:
    if not call.fun:
        words = "which function it calls is known at the event alone; try outstation reactor test"
        return Told(call.line, RUNS, words)
    if call.type == "cmd" and "." not in call.fun:
        return Told(call.line, CHANGE, f"cmd.{call.fun} means no command here: write local.cmd.{call.fun}")
    found = judged(WHERE[KINDS[call.type]], call.fun, USER, own)
    return Told(call.line, found.verdict, found.words)


def _template(text: str) -> Iterator[Told]:
    """What a template reads that a reactor file has not."""
    try:
        environment = sandbox({}, USER, Codes(), {})
        environment.compile(text)
        tree = environment.parse(text)
    except TemplateSyntaxError as error:
        yield Told(error.lineno, CHANGE, f"its Jinja cannot be read: {str(error.message)[:200]}")
        return
    except RecursionError:
        yield Told(1, CHANGE, "its Jinja is nested too deep")
        return
    set_here = {node.name for node in tree.find_all(nodes.Name) if node.ctx != "load"}
    for name in tree.find_all(nodes.Name):
        if name.name in NOT_THERE - set_here:
            yield Told(name.lineno, CHANGE, f"{name.name} is not there in a reactor file (docs/reactor.md)")
    for call in tree.find_all(nodes.Call):
        fun = _salt_function(call.node)
        if fun and fun not in IN_TEMPLATES and ROLES["runner"].get(fun) != "operator":
            yield Told(call.lineno, CHANGE, f"salt['{fun}'] cannot be called in a reactor file (docs/reactor.md)")


def _salt_function(node: nodes.Expr) -> str:
    """``a.b`` of ``salt['a.b']`` and ``salt.a.b``; empty for any other call."""
    match node:
        case nodes.Getitem(node=nodes.Name(name="salt"), arg=nodes.Const(value=str() as fun)):
            return fun
        case nodes.Getattr(node=nodes.Getattr(node=nodes.Name(name="salt"), attr=module), attr=name):
            return f"{module}.{name}"
        case _:
            return ""


def _python(file: Path, text: str) -> Iterator[Told]:
    """Whether a file in Python may run, and what it reads that a reactor file has not."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        yield Told(getattr(error, "lineno", None) or 1, CHANGE, "this release cannot read its Python")
        return
    try:
        check_owned(file)
    except Refused as refused:
        yield Told(1, CHANGE, f"a file in Python does not run so: {refused.detail}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in NOT_THERE:
            yield Told(node.lineno, CHANGE, f"{node.id} is not there in a reactor file (docs/reactor.md)")
