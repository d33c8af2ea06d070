"""Reading an orchestration's files: from the station's file server, rendered in the renderer's processes.

A name with dots means a file or a folder's ``init.sls``; ``include`` brings others. Of what a template itself imports
is fetched what it names, and nothing else: the files of a station may come over a thin line, or be firmware.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, Protocol

from device_agent.errors import OutstationError, Refused
from device_agent.protocol.file_questions import FileEntry
from gateway.orchestrate.words import SlsFile
from gateway.render import Rendered, Renderer
from gateway.render_frames import Problem, Task, Tree

FILE_BYTES: Final = 1024 * 1024
TREE_BYTES: Final = 8 * 1024 * 1024
FILES: Final = 200
"""Most that one orchestration may be made of, with what its templates import."""

_NAMED: Final = re.compile(
    r"""\b(?:include|import|from|import_yaml|import_json|import_text|extends)\s+["']([^"']+)["']"""
)
_ID: Final = re.compile(r"""^(["']?)([^\s"'#{][^"']*?)\1\s*:(?:\s|$)""")


class StationFiles(Protocol):
    """The files that this station serves."""

    async def find(self, path: str, saltenv: str) -> FileEntry | None:
        """What stands at a path."""

    async def paths(self, saltenv: str, under: str = "") -> list[str]:
        """The paths below a folder."""

    async def environments(self) -> list[str]:
        """Those that have roots."""

    async def read(self, entry: FileEntry, limit: int) -> bytes:
        """The content of a file."""


class Wrong(Exception):
    """A file that cannot be had; the text says why."""


class Reading:
    """One reading of the files of an orchestration."""

    def __init__(self, files: StationFiles, renderer: Renderer, device: str, pillar: Mapping[str, Any]) -> None:
        self._files = files
        self._renderer = renderer
        self._device = device
        self._pillar = pillar
        self._known: dict[str, dict[str, bytes]] = {}
        self._bytes = 0
        self._read: dict[tuple[str, str], None] = {}
        self.files: list[SlsFile] = []
        """What was read, those that are included before who includes them."""

        self.errors: list[str] = []

    async def read(self, mods: list[str], saltenv: str) -> None:
        """Read files by their names with dots, in order. Raises ``Refused`` (``busy``)."""
        for name in mods:
            for sls in await self._meant(name, saltenv):
                await self._file(sls, saltenv, ())

    async def _file(self, sls: str, env: str, by: tuple[str, ...]) -> None:
        if (env, sls) in self._read:
            return
        self._read[env, sls] = None
        try:
            path = await self._place(sls, env)
            data = await self._rendered(path, sls, env)
        except Wrong as wrong:
            self.errors.append(str(wrong))
            return
        file = SlsFile(env=env, sls=sls, path=path, data=data, lines=self._lines(env, path), included_from=by)
        if isinstance(data, dict) and "include" in data:
            for other, other_env in await self._included(file, data["include"]):
                await self._file(other, other_env, (*by, sls))
        self.files.append(file)

    # --- which files -----------------------------------------------------------------------------------------------

    async def _included(self, file: SlsFile, said: Any) -> list[tuple[str, str]]:
        if not isinstance(said, list):
            where = file.place("include")
            self.errors.append(f"{where}: Include Declaration in SLS {file.sls} is not formed as a list")
            return []
        found = []
        for item in said:
            env, name = file.env, item
            if isinstance(item, dict) and len(item) == 1:
                ((env, name),) = item.items()
            if not isinstance(name, str) or not isinstance(env, str):
                where = file.place("include")
                self.errors.append(f"{where}: an include is the name of a file, and here is {str(item)[:80]!r}")
                continue
            try:
                found += [(sls, env) for sls in await self._meant(_absolute(name, file), env)]
            except Wrong as wrong:
                self.errors.append(f"{file.place('include')}: {wrong}")
        return found

    async def _meant(self, name: str, env: str) -> list[str]:
        """A name, or all that a glob of names means."""
        if not any(letter in name for letter in "*?["):
            return [name]
        try:
            paths = await self._files.paths(env)
        except (OutstationError, TimeoutError) as error:
            raise Wrong(f"The files of saltenv {env} cannot be listed: {error}") from None
        names = {
            path.removesuffix(".sls").removesuffix("/init").replace("/", ".") for path in paths if path.endswith(".sls")
        }
        return sorted(each for each in names if fnmatchcase(each, name))[:FILES] or [name]

    async def _place(self, sls: str, env: str) -> str:
        name = sls.replace(".", "/")
        for path in (f"{name}.sls", f"{name}/init.sls"):
            if await self._have(path, env):
                return path
        where = "is not available on the salt master or through a configured fileserver"
        raise Wrong(f"Specified SLS {sls} in saltenv {env} {where}: neither {name}.sls nor {name}/init.sls is there")

    async def _have(self, path: str, env: str) -> bool:
        """Have a file in the tree. Raises ``Wrong`` for one that is there and cannot be had."""
        known = self._known.setdefault(env, {})
        if path in known:
            return True
        try:
            entry = await self._files.find(path, env)
            if entry is None:
                return False
            self._bytes += entry.size
            if self._bytes > TREE_BYTES or sum(map(len, self._known.values())) >= FILES:
                raise Wrong(f"{env}:{path}: an orchestration has at most {FILES} files and {TREE_BYTES:,} bytes")
            known[path] = await self._files.read(entry, FILE_BYTES)
        except (OutstationError, TimeoutError, OSError) as error:
            raise Wrong(f"{env}:{path}: it cannot be had: {str(error) or 'no answer'}") from None
        for named in _NAMED.findall(known[path].decode(errors="replace")):
            if not named.startswith(("./", "../", "/")):
                await self._have_quietly(named, env)
        return True

    async def _have_quietly(self, path: str, env: str) -> bool:
        """The same for a name that a template may mean: what is no path is none of a file."""
        try:
            return await self._have(path, env)
        except Wrong:
            return False

    # --- what they say -----------------------------------------------------------------------------------------------

    async def _rendered(self, path: str, sls: str, env: str) -> Any:
        while True:
            count = self._count()
            answer = await self._render(path, sls, env)
            if not answer.refused:
                return answer.value()
            problem = answer.problems[0] if answer.problems else None
            if problem is None:
                raise Wrong(f"Rendering SLS '{env}:{sls}' failed: {answer.refused}: {answer.why}")
            missing = problem.what if problem.kind == "TemplateNotFound" else ""
            if not missing or not await self._have_quietly(missing, env) or self._count() == count:
                raise Wrong(_words(problem, sls, env))

    def _count(self) -> int:
        return sum(map(len, self._known.values()))

    async def _render(self, path: str, sls: str, env: str) -> Rendered:
        tree = self._tree()
        task = Task(
            tree.digest,
            self._device,
            {"id": self._device},
            given=dict(self._pillar),
            env=env,
            path=path,
            sls=sls,
            names="steps",
        )
        return await self._renderer.render(tree, task)

    def _tree(self) -> Tree:
        whole = hashlib.sha256(b"orchestrate")
        for env, files in sorted(self._known.items()):
            for path, content in sorted(files.items()):
                whole.update(f"{env}\0{path}\0{len(content)}\0".encode(errors="surrogateescape"))
                whole.update(content)
        return Tree(whole.hexdigest(), {env: dict(files) for env, files in self._known.items()})

    def _lines(self, env: str, path: str) -> dict[str, int]:
        """At which line an id stands, as the file is written; ids that a template makes are not there."""
        found: dict[str, int] = {}
        for number, text in enumerate(self._known[env][path].decode(errors="replace").splitlines(), start=1):
            if (match := _ID.match(text)) is not None:
                found.setdefault(match[2], number)
        return found


def _absolute(name: str, file: SlsFile) -> str:
    """A name that begins with dots is one beside, or above, the file that includes it."""
    levels = len(name) - len(name.lstrip("."))
    if not levels:
        return name
    words = file.sls.split(".")
    if file.path.endswith("/init.sls"):
        words.append("init")
    if levels > len(words):
        where = f"within SLS '{file.env}:{file.sls}'"
        raise Wrong(f"Attempted relative include of '{name}' {where} goes beyond top level package")
    return ".".join([*words[:-levels], name[levels:]])


def _words(problem: Problem, sls: str, env: str) -> str:
    line = f":{problem.line}" if problem.line else ""
    text = f"   [{problem.text}]" if problem.text else ""
    made = " (a line of what was rendered)" if problem.rendered and problem.line else ""
    return f"Rendering SLS '{env}:{sls}' failed: {problem.file}{line}: {problem.what}{made}{text}"


__all__ = ["Reading", "Refused", "StationFiles", "Wrong"]
