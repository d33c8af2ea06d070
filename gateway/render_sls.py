"""One SLS file of a tree: Jinja, then YAML, and where it goes wrong the file, the line and the text there."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

import yaml
from jinja2 import Template
from jinja2.exceptions import TemplateError, TemplateSyntaxError
from msgspec import Struct
from yaml.nodes import Node

from device_agent.protocol.file_questions import SCHEME
from device_agent.utf8_text import NotUtf8, utf8_text
from gateway import render_names, render_yaml
from gateway.render_calls import Calls, NotCallable
from gateway.render_names import Keep
from gateway.render_reads import Reads
from gateway.render_templates import Codes, Files, rendered, sandbox
from gateway.render_time import Late

TEXT_CHARACTERS: Final = 200
WHAT_CHARACTERS: Final = 500
REWRITTEN: Final = 10
MEMORY: Final = "it used up the memory that a rendering may have"
PIPES: Final = {"jinja|yaml": True, "yaml_jinja": True, "yaml": False, "jinja|json": True, "json": False}
"""What a first line ``#!…`` may ask for, and whether there is Jinja in it."""

JSON: Final = ("jinja|json", "json")

NESTED: Final = "nested"
"""Whether the data of an event is read one level deeper too, in the context of a reactor's file."""

COLLECTED: Final = "collected"
"""The events that a reaction is to, of which the last is the one that ``tag`` and ``data`` are of."""

PYTHON: Final = "#!py"
"""What a reactor's file may ask for besides."""


def is_python(content: bytes) -> bool:
    """Whether a file of the reactor is run as Python."""
    return content.split(b"\n", 1)[0].decode(errors="replace").strip() == PYTHON


class Problem(Struct, frozen=True):
    """What is wrong with a file. ``what`` and ``text`` may hold values: they are for whoever may see the pillar.

    ``kind`` holds none. ``line`` is 0 where none is known; ``rendered`` says that it is a line of what Jinja made.
    """

    file: str
    line: int
    kind: str
    what: str
    text: str
    rendered: bool = False

    def __repr__(self) -> str:
        """Where it is, without any value."""
        return f"Problem({self.file}:{self.line} {self.kind})"


class Unrenderable(Exception):
    """A file that does not render."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.file)
        self.problem = problem


class Exhausted(BaseException):
    """A file that has used up its time or its memory; nothing else is tried after it."""

    def __init__(self, reason: str, why: str, problem: Problem) -> None:
        where = f"{problem.file}, line {problem.line}" if problem.line else problem.file
        super().__init__(f"{why}; {where}")
        self.reason = reason
        self.problem = problem


class Sources:
    """The files of one environment, its roots laid over each other, and how they are rendered."""

    def __init__(self, env: str, files: Files, codes: Codes) -> None:
        self.env = env
        self.files = files
        self._codes = codes
        paths = [path for path in files if path.endswith(".sls")]
        self.available = sorted({path.removesuffix(".sls").removesuffix("/init").replace("/", ".") for path in paths})

    def place(self, sls: str) -> str | None:
        """The path of an SLS by its name with dots."""
        name = sls.replace(".", "/")
        return next((path for path in (f"{name}.sls", f"{name}/init.sls") if path in self.files), None)

    def label(self, path: str) -> str:
        """How a file is named to people."""
        return f"{self.env}:{path}"

    def render(
        self,
        path: str,
        sls: str,
        reads: Reads,
        pillar: Mapping[str, Any],
        more: Mapping[str, Any],
        keep: Keep | None = None,
    ) -> Any:
        """What a file says; ``keep`` says which of its scalars are names. Raises ``Unrenderable``."""
        source = self._source(path)
        context = {
            "grains": reads.grains,
            "opts": Options(self.env, reads),
            "pillar": pillar,
            "salt": Calls(reads, pillar),
            "saltenv": self.env,
            **_places(path, sls),
            **more,
        }
        return self._said(path, source, context, keep)

    def react(self, path: str, reads: Reads, event: Mapping[str, Any] | None) -> Any:
        """What a reactor file says to an event, of which it knows ``tag`` and ``data``. Raises ``Unrenderable``.

        With ``nested`` in the event its data is read one level deeper too, and whoever reads that is told of.

        Without an event the file is only looked at: whether its template compiles, or its YAML where it has none.
        """
        source = self._source(path)
        if event is not None:
            data = nested(event["data"], reads) if event.get(NESTED) else event["data"]
            names = {"tag": event["tag"], "data": data, COLLECTED: event.get(COLLECTED, [])}
            event = {"salt": Calls(reads, {}), **names}
        if is_python(self.files[path]):
            return self._ran(path, source, event)
        written = "{{" not in source and "{%" not in source
        if event is not None or written or not self._has_jinja(path, source):
            return self._said(path, source, event or {}, _reaction_names(reads))
        try:
            sandbox(self.files, self.env, self._codes, {}).get_template(path)
        except TemplateError as error:
            raise Unrenderable(self._template_problem(path, error)) from error
        return {}

    def _ran(self, path: str, source: str, event: Mapping[str, Any] | None) -> Any:
        """What ``run()`` of a file in Python returns. It is code of this station's machine, and of nowhere else."""
        if SCHEME in path:
            what = "a file in Python is run from this machine's own disk alone, and not from salt://"
            raise Unrenderable(Problem(self.label(path), 1, "renderer", what, PYTHON))
        names: dict[str, Any] = {**(event or {})}
        try:
            code = compile(source, f"{self.env}/{path}", "exec")
            if event is None:
                return {}
            exec(code, names)  # noqa: S102 - the operator's own file, in a process with bounds
            return names["run"]()
        except (MemoryError, Late) as error:
            raise self._exhausted(path, error) from None
        except Exception as error:
            raise Unrenderable(self._template_problem(path, error)) from error

    def _source(self, path: str) -> str:
        try:
            return utf8_text(self.files[path])
        except NotUtf8 as error:
            raise Unrenderable(Problem(self.label(path), error.line, "UnicodeDecodeError", str(error), "")) from None

    def _said(self, path: str, source: str, context: Mapping[str, Any], keep: Keep | None) -> Any:
        if not source.strip():
            return {}
        if not self._has_jinja(path, source):
            return self._data(path, source, source, keep, rendered=False)
        environment = sandbox(self.files, self.env, self._codes, context)
        try:
            text = rendered(environment.get_template(path), source)
        except (MemoryError, Late) as error:
            raise self._exhausted(path, error) from None
        except Exception as error:
            raise Unrenderable(self._template_problem(path, error)) from error
        return self._data(path, source, text, keep, rendered=True)

    def _has_jinja(self, path: str, source: str) -> bool:
        asked = _pipe(source)
        if asked not in PIPES:
            what = f"it asks for the renderer {asked}; there are {', '.join(PIPES)}"
            raise Unrenderable(Problem(self.label(path), 1, "renderer", what, source.split("\n", 1)[0].strip()))
        return PIPES[asked]

    def _data(self, path: str, source: str, text: str, keep: Keep | None, *, rendered: bool) -> Any:
        try:
            return (
                render_yaml.read_json_document(text) if _pipe(source) in JSON else render_yaml.read(text, keep)
            ) or {}
        except json.JSONDecodeError as error:
            raise Unrenderable(self._problem(path, error.lineno, error, error.msg, text, rendered=rendered)) from error
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark is not None else 0
            what = f"{error.problem or error.context}"
            raise Unrenderable(self._problem(path, line, error, what, text, rendered=rendered)) from error
        except (yaml.YAMLError, render_yaml.TooLarge, ValueError, TypeError, RecursionError) as error:
            raise Unrenderable(self._problem(path, 0, error, str(error), text, rendered=rendered)) from error

    def _template_problem(self, path: str, error: Exception) -> Problem:
        if isinstance(error, TemplateSyntaxError):
            file, line = error.name or path, error.lineno
        elif isinstance(error, SyntaxError):
            file, line = path, error.lineno or 0
        else:
            file, line = self._place(path, error)
        source = self.files.get(file, b"").decode(errors="replace")
        known = isinstance(error, (TemplateError, NotCallable, render_yaml.TooLarge))
        what = str(error) if known else f"{type(error).__name__}: {error}"
        return self._problem(file, line, error, what, source, rendered=False)

    def _place(self, path: str, error: BaseException) -> tuple[str, int]:
        """The innermost file and line of this environment in which something was raised."""
        place, trace = (path, 0), error.__traceback__
        while trace is not None:
            code, line = trace.tb_frame.f_code, trace.tb_lineno
            if code.co_filename.startswith(f"{self.env}/"):
                # Jinja itself has put the lines of its errors right, but not of what is no ``Exception``.
                template = trace.tb_frame.f_globals.get("__jinja_template__")
                known = template.get_corresponding_lineno(line) if isinstance(template, Template) else line
                place = code.co_filename.removeprefix(f"{self.env}/"), known
            trace = trace.tb_next
        return place

    def _exhausted(self, path: str, error: MemoryError | Late) -> Exhausted:
        late = isinstance(error, Late)
        why = f"it was stopped after {error}" if late else MEMORY
        reason = "too_slow" if late else "memory"
        file, line = self._place(path, error)
        source = self.files.get(file, b"").decode(errors="replace")
        return Exhausted(reason, why, self._problem(file, line, error, why, source, rendered=False))

    def _problem(self, path: str, line: int, error: BaseException, what: str, text: str, *, rendered: bool) -> Problem:
        lines = text.splitlines()
        offending = lines[line - 1].strip()[:TEXT_CHARACTERS] if 0 < line <= len(lines) else ""
        return Problem(self.label(path), line, type(error).__name__, what[:WHAT_CHARACTERS], offending, rendered)


def _reaction_names(reads: Reads) -> Keep:
    """Keep the names of a reactor file, and tell of each other value that YAML reads as another number."""

    def keep(root: Node) -> None:
        render_names.reaction_names(root)
        for line, text in islice(render_names.rewritten(root), REWRITTEN):
            reads.rewritten(line, text)

    return keep


def _pipe(source: str) -> str:
    """The renderers that the first line asks for."""
    first = source.split("\n", 1)[0].strip()
    if not first.startswith("#!") or first.startswith("#!/"):
        return "jinja|yaml"
    return "|".join(part.strip() for part in first[2:].split("|"))


class Nested(dict[str, Any]):
    """Data that files in the field read one level deeper as well: its ``data`` is itself, at any depth.

    ``around`` is what it stands in: what it has not itself is read there.
    """

    def __init__(self, data: Mapping[str, Any], reads: Reads, around: Mapping[str, Any] | None = None) -> None:
        super().__init__(data)
        self._reads = reads
        self._around = around or {}

    def __missing__(self, name: str) -> Any:
        if name != "data" and name not in self._around:
            raise KeyError(name)
        self._reads.nested()
        return self if name == "data" else self._around[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The same for whoever asks for it so."""
        try:
            return self[name]
        except KeyError:
            return default


def nested(data: Mapping[str, Any], reads: Reads) -> Mapping[str, Any]:
    """The data of an event as its master has it, which can be read as Salt's pages show it too.

    They show a beacon's ``id`` as ``data['data']['id']``, and what the beacon says as ``data['data']['data']``. Where a
    beacon says ``data`` itself, that is what ``data['data']`` is; what is not in there is looked for beside it.
    """
    if "data" not in data:
        return Nested(data, reads)
    own = data["data"]
    return {**data, "data": Nested(own, reads, data)} if isinstance(own, dict) else data


class Options(Mapping[str, Any]):
    """``opts`` of a template: the device's name, its site and the environment."""

    _names = ("id", "minion_id", "saltenv", "pillarenv", "site")

    def __init__(self, env: str, reads: Reads) -> None:
        self._env = env
        self._reads = reads

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        if name == "site":
            return self._reads.site
        return self._reads.device if name.endswith("id") else self._env

    def __iter__(self) -> Any:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _places(path: str, sls: str) -> dict[str, str]:
    folder = posixpath.dirname(path)
    return {
        "sls": sls,
        "slspath": folder,
        "slsdotpath": folder.replace("/", "."),
        "slscolonpath": folder.replace("/", ":"),
        "sls_path": folder.replace("/", "_"),
        "tplpath": path,
        "tplfile": path,
        "tpldir": folder or ".",
        "tpldot": folder.replace("/", "."),
    }
