"""The engine itself, in its process: its limits, its module with what Salt puts into it, and its ``start``."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import os
import resource
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec
from msgspec import Struct

from gateway.engines import context, salt_names
from gateway.engines.calls import Functions, Runners
from gateway.engines.report import WORDS, Report

LOG_FORMAT: Final = "%(levelname)s %(name)s: %(message)s"
NICENESS: Final = 5
FAILED: Final = 1
MEMORY: Final = 2


class Given(Struct, frozen=True):
    """An engine as its station hands it over."""

    name: str
    module: str
    path: str
    text: bytes
    builtin: bool
    options: dict[str, Any]
    opts: dict[str, Any]
    api: str
    events: str
    folder: str
    log_level: str
    memory_megabytes: int
    open_files: int


class Unfit(Exception):
    """A module that is no engine, or says that it cannot be one here."""


def run(frame: bytes, descriptor: int) -> int:
    """Run the engine until it ends by itself; the exit status of its process."""
    given = msgspec.msgpack.decode(frame, type=Given)
    report = Report(descriptor)
    os.nice(NICENESS)
    _limit(given)
    logging.basicConfig(stream=sys.stderr, level=given.log_level.upper(), format=LOG_FORMAT)
    known = context.Context(
        name=given.name,
        opts=given.opts,
        api=Path(given.api),
        events=Path(given.events) if given.events else None,
        folder=Path(given.folder),
        report=report,
    )
    context.use(known)
    salt_names.install()
    report.tell_regularly()
    try:
        start = _start_of(given, known)
        report.said(state="running")
        _called(start, given.options)
    except MemoryError:
        report.said(error=f"it used up its memory: engine_limits.memory_megabytes is {given.memory_megabytes}")
        return MEMORY
    except Unfit as error:
        report.said(error=str(error)[:WORDS])
        return FAILED
    except Exception as error:  # noqa: BLE001 - whatever it raises is told, and is its end
        words = _words(error, given.path)
        log = logging.getLogger(given.name)
        log.error("it raised %s", words)
        for step in traceback.extract_tb(error.__traceback__):
            if step.filename != __file__:
                log.error("  %s:%s in %s: %s", step.filename, step.lineno, step.name, step.line)
        report.said(error=words[:WORDS])
        return FAILED
    finally:
        report.tell()
    return 0


def _limit(given: Given) -> None:
    memory = given.memory_megabytes * 1024 * 1024
    for limit, most in {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_NOFILE: given.open_files,
    }.items():
        resource.setrlimit(limit, (most, most))


def _start_of(given: Given, known: context.Context) -> Any:
    module = _module(given, known)
    virtual = getattr(module, "__virtual__", None)
    if callable(virtual):
        said = virtual()
        if said is False or (isinstance(said, tuple) and said and said[0] is False):
            why = f": {said[1]}" if isinstance(said, tuple) and len(said) > 1 else ""
            raise Unfit(f"{given.path}: its __virtual__ says that it cannot run here{why}")
    start = getattr(module, "start", None)
    if not callable(start):
        raise Unfit(f"{given.path}: it has no start(): an engine is a file with a function of that name")
    try:
        inspect.signature(start).bind(**given.options)
    except TypeError as error:
        takes = ", ".join(inspect.signature(start).parameters) or "nothing"
        raise Unfit(f"engines: {given.name}: {error}; start of {given.path} takes {takes}") from None
    return start


def _module(given: Given, known: context.Context) -> ModuleType:
    if given.builtin:
        return importlib.import_module(f"gateway.engines.builtin.{given.module}")
    module = sys.modules[f"engines.{given.module}"] = ModuleType(f"engines.{given.module}")
    module.__file__ = given.path
    functions = Functions(known)
    vars(module).update(
        __runners__=Runners(known),
        __opts__=known.opts,
        __salt__=functions,
        __grains__=known.opts.get("grains", {}),
        __context__={},
    )
    exec(compile(given.text, given.path, "exec", dont_inherit=True), vars(module))  # noqa: S102 - its owner or its hash was checked
    return module


def _called(start: Any, options: dict[str, Any]) -> None:
    ended = start(**options)
    if inspect.iscoroutine(ended):
        asyncio.run(ended)


def _words(error: BaseException, path: str) -> str:
    """The error with the line of the engine's own file, where it has one in it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    if isinstance(error, SyntaxError) and error.filename == path:
        lines = [error.lineno]
    place = f"{path}:{lines[-1]}: " if lines else ""
    return f"{place}{type(error).__name__}: {error}"
