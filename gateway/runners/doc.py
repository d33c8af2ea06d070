"""``doc``: what runners and wheels say of themselves."""

from __future__ import annotations

from typing import Any

from gateway.calls.binding import argspec
from gateway.calls.call import Kind
from gateway.calls.functions import Function, Functions
from gateway.calls.running import Running


class DocRunner:
    """The runner, and ``sys`` beside it for those who look there."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions

    def functions(self) -> list[Function]:
        """What it has."""
        return [
            Function("doc.runner", self.runner, need="view"),
            Function("doc.wheel", self.wheel, need="view"),
            Function("sys.doc", self.runner, need="view"),
            Function("sys.argspec", self.argspec, need="view"),
            Function("sys.list_functions", self.list_functions, need="view"),
        ]

    async def runner(self, _: Running, name: str = "") -> dict[str, str]:
        """Say what the runners are for: all, those of a module, or one.

        CLI example: ``outstation runner doc.runner jobs``
        """
        return self._docs("runner", name)

    async def wheel(self, _: Running, name: str = "") -> dict[str, str]:
        """Say what the wheels are for: all, those of a module, or one.

        CLI example: ``outstation runner doc.wheel``
        """
        return self._docs("wheel", name)

    async def argspec(self, _: Running, name: str = "") -> dict[str, Any]:
        """Say which arguments runners take.

        CLI example: ``outstation runner sys.argspec jobs.lookup_jid``
        """
        return {fun: argspec(self._functions.of("runner")[fun].run) for fun in self._named("runner", name)}

    async def list_functions(self, _: Running, name: str = "") -> list[str]:
        """List the runners by name.

        CLI example: ``outstation runner sys.list_functions manage``
        """
        return self._named("runner", name)

    def _docs(self, kind: Kind, name: str) -> dict[str, str]:
        return {fun: self._functions.of(kind)[fun].doc for fun in self._named(kind, name)}

    def _named(self, kind: Kind, name: str) -> list[str]:
        module = f"{name.rstrip('.')}."
        return sorted(fun for fun in self._functions.of(kind) if not name or fun == name or fun.startswith(module))
