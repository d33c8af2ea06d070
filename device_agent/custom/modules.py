"""The custom modules of one party: kept in a folder, and verified against the newest release list before each load.

    list                the newest release list, and the versions that were seen of each release key
    _modules/door.py …  what was brought, by kind

Every call looks at the file again. What is not in a list by a release key that counts now, byte for byte, does not run:
not after a restart, not when the file was altered, not when the key was revoked meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Final

from device_agent.custom.facts import with_custom
from device_agent.custom.kinds import KINDS, LIST_BYTES, MODULE_BYTES, MODULES_MAX, name_of, path_of
from device_agent.custom.loading import Function, functions_in, loaded, plain_in
from device_agent.custom.station_files import StationFiles
from device_agent.custom.sync import CodeSource, Synced, sync
from device_agent.durable import open_regular
from device_agent.errors import Refused
from device_agent.host import Host
from device_agent.protocol.messages import Grains
from device_agent.questions import Station
from device_agent.trust.reach import CLASSES, MODULES, Reach
from device_agent.trust.release_list import STATE_BYTES, ReleaseList, Releases
from device_agent.trust.root_list import RootList

log = logging.getLogger(__name__)

STATE: Final = "list"


class CustomModules:
    """Implements ``Custom``. ``root`` gives the root list that counts now; the folder is made when something comes."""

    def __init__(
        self,
        folder: Path,
        root: Callable[[], RootList | None],
        source: Callable[[Station], CodeSource] = StationFiles,
    ) -> None:
        self.folder: Final = folder
        self.grain_problems: dict[str, str] = {}
        self._source = source
        self._bringing = asyncio.Lock()
        self._root = root
        self._releases: Releases | None = None
        self._loaded: dict[str, tuple[bytes, ModuleType]] = {}
        self._hung: dict[str, bytes] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._refused: dict[str, Refused] = {}

    # --- the list ------------------------------------------------------------------------------------------------

    def take_list(self, body: bytes) -> bool:
        """A release list from anywhere; whether it is news. It is on disk when this returns. Raises ``Refused``."""
        if len(body) > LIST_BYTES:
            raise Refused("oversized", f"{len(body)} bytes, at most {LIST_BYTES}")
        releases = self._state()
        if not releases.take(body, self._root()):
            return False
        self._write(STATE, releases.export())
        return True

    def release(self) -> ReleaseList:
        """The newest list, if it counts now. Raises ``Refused``."""
        return self._state().current(self._root())

    def check(self, path: str, sha256: bytes) -> None:
        """Whether this may run under this path. Raises ``Refused`` (``unsigned``, ``altered``, …)."""
        listed = self.release()
        released = listed.of(path)
        if not released:
            raise Refused("unsigned", f"{path} is not in version {listed.version} of the release list")
        if sha256 not in {each.sha256 for each in released}:
            known = " or ".join(f"{each.sha256.hex()[:16]}…" for each in released)
            found = f"{path} has the hash {sha256.hex()[:16]}…"
            raise Refused("altered", f"{found}, version {listed.version} of the release list names {known}")

    # --- the files -----------------------------------------------------------------------------------------------

    def hashes(self, kind: str) -> dict[str, bytes]:
        """What is kept of a kind: paths, and the hashes of what lies there now."""
        found: dict[str, bytes] = {}
        for place in sorted((self.folder / f"_{kind}").glob("*.py"))[:MODULES_MAX]:
            with suppress(Refused, OSError):
                path = path_of(kind, place.stem)
                found[path] = hashlib.sha256(self._read(path)).digest()
        return found

    def keep(self, path: str, body: bytes) -> None:
        """Keep a file that was released. Raises ``Refused`` for any other, and ``OSError``."""
        self.check_name(path)
        self.check(path, hashlib.sha256(body).digest())
        if len(body) > MODULE_BYTES:
            raise Refused("oversized", f"{path}: {len(body)} bytes, at most {MODULE_BYTES}")
        self._write(path, body)
        self._refused.pop(path, None)

    def check_name(self, path: str) -> None:
        """Whether a module may have this name. Raises ``Refused`` (``bad_name``, ``shadows``)."""
        if path.startswith("_modules/") and name_of(path) in MODULES:
            raise Refused("shadows", f"{path}: {name_of(path)} is a module of this release, and keeps its name")
        name_of(path)

    def remove(self, path: str) -> None:
        """Remove a file that is served no more. Raises ``Refused`` for what is no path of a module."""
        name_of(path)
        (self.folder / path).unlink(missing_ok=True)
        self._loaded.pop(path, None)
        self._refused.pop(path, None)

    def refuse(self, path: str, refusal: Refused) -> None:
        """A file was not brought for this reason: who calls it hears that, unless one from before may run still."""
        if len(self._refused) < MODULES_MAX * len(KINDS):
            self._refused[path] = refusal

    # --- what they hold ------------------------------------------------------------------------------------------

    async def function(self, name: str) -> Function | None:
        """A function of a custom module; None when there is none. Raises ``Refused`` for one that may not run."""
        module_name, _, function_name = name.partition(".")
        path = path_of("modules", module_name)
        if module_name in MODULES:
            return None
        if not self._is_there(path):
            if path in self._refused:
                raise self._refused[path]
            return None
        module = await self._module(path)
        if function_name in plain_in(module):
            form = f"write it as: async def {function_name}(host, …); docs/modules.md shows one"
            raise Refused("plain_function", f"{name} is a plain def, as in Salt; {form}")
        return functions_in(module).get(function_name)

    async def functions(self) -> dict[str, Function]:
        """Every function of every custom module that may run and loads."""
        found: dict[str, Function] = {}
        for path in self.hashes("modules"):
            with suppress(Refused):
                module = await self._module(path)
                if name_of(path) not in MODULES:
                    found |= {f"{name_of(path)}.{name}": each for name, each in functions_in(module).items()}
        return found

    async def functions_of(self, path: str) -> dict[str, Function]:
        """The functions of one file. Raises ``Refused``."""
        module = await self._module(path)
        plain = plain_in(module)
        if plain and not functions_in(module):
            raise Refused("plain_function", f"{path}: write it as: async def {min(plain)}(host)")
        return functions_in(module)

    def beacons(self) -> list[str]:
        """The beacons that were brought, by name; whether each may run is seen when it does."""
        return [name_of(path) for path in self.hashes("beacons")]

    async def beacon(self, name: str) -> dict[str, Function]:
        """The functions of one of them. Raises ``Refused``."""
        return await self.functions_of(path_of("beacons", name))

    def reach(self, fun: str) -> Reach | None:
        """The class of a custom function: what the list says, else ``shell``; None for what the list does not have."""
        module_name, _, function_name = fun.partition(".")
        if module_name in MODULES:
            return None
        try:
            released = self.release().of(path_of("modules", module_name))
        except Refused:
            return None
        classes: list[Reach] = [each.reaches.get(function_name, "shell") for each in released]
        return max(classes, key=CLASSES.index, default=None)

    async def told(self, host: Host, grains: Grains) -> Grains:
        """The grains of a device with what the site's modules tell of it."""
        found, problems = await with_custom(self, host, grains)
        for path, why in problems.items():
            if self.grain_problems.get(path) != why:
                log.error("a custom grain is missing path=%s why=%r", path, why)
        self.grain_problems = problems
        return found

    def holds(self, path: str) -> bool:
        """Whether a file was brought to this path, or was refused when it was brought."""
        return self._is_there(path) or path in self._refused

    def verified(self, path: str) -> bytes:
        """The bytes of a file, verified now, for who runs them elsewhere. Raises ``Refused``."""
        if not self._is_there(path) and path in self._refused:
            raise self._refused[path]
        body = self._read(path)
        self.check(path, hashlib.sha256(body).digest())
        return body

    # --- bringing them -------------------------------------------------------------------------------------------

    async def sync(self, station: Station, kinds: Sequence[str], saltenvs: Sequence[str]) -> Synced:
        """Bring these kinds from the files of a station. Raises ``OutstationError`` and ``OSError``."""
        async with self._bringing:
            return await sync(self, self._source(station), kinds, saltenvs)

    # --- inside --------------------------------------------------------------------------------------------------

    async def _module(self, path: str) -> ModuleType:
        """The module at a path, verified now. Raises ``Refused``."""
        body = self._read(path)
        digest = hashlib.sha256(body).digest()
        self.check(path, digest)
        async with self._turns[path]:
            known = self._loaded.get(path)
            if known is not None and known[0] == digest:
                return known[1]
            if self._hung.get(path) == digest:
                raise Refused("hangs", f"{path}: it did not load in time, and is not begun again before a restart")
            try:
                module = await loaded(path, body)
            except Refused as refusal:
                if refusal.reason == "hangs":
                    self._hung[path] = digest
                log.error("a custom module does not load path=%s error=%s", path, refusal)
                raise
            # Another list may have come while it was loaded.
            self.check(path, digest)
            self._loaded[path] = (digest, module)
            return module

    def _is_there(self, path: str) -> bool:
        try:
            return (self.folder / path).is_file()
        except ValueError:
            return False

    def _read(self, path: str) -> bytes:
        try:
            descriptor = os.open(self.folder / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                body = file.read(MODULE_BYTES + 1)
        except OSError as error:
            raise Refused("unreadable", f"{path}: {error.strerror or error}") from None
        if len(body) > MODULE_BYTES:
            raise Refused("oversized", f"{path}: more than {MODULE_BYTES} bytes")
        return body

    def _state(self) -> Releases:
        if self._releases is None:
            self._releases = self._restored()
        return self._releases

    def _restored(self) -> Releases:
        place = self.folder / STATE
        try:
            with open_regular(place) as file:
                return Releases.restored(file.read(STATE_BYTES + 1))
        except FileNotFoundError:
            return Releases()
        except (Refused, OSError) as error:
            log.error(
                "the release list that was kept cannot be used: nothing of it runs path=%s error=%s", place, error
            )
            return Releases()

    def _write(self, path: str, body: bytes) -> None:
        place = self.folder / path
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = place.with_name(f".{place.name}.new")
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(descriptor)
        fresh.replace(place)
        folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
