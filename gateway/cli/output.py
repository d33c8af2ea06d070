"""Where the command line writes: results on stdout, everything about them on stderr.

On a terminal rich draws; in a pipe lines are plain, whole and never wrapped, and rich is not even loaded. Text that is
handed in here has been through ``text.safe``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from device_agent.clock import Clock, iso
from gateway.cli.text import moment, since

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

TABLE_ROWS = 1000
"""Tables longer than this are not drawn: rich would measure every cell of them."""

FACT_CELLS = 13

Styled = tuple[str, str]
"""Text and the name of its style."""


def is_terminal(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether the stream is a terminal that understands more than lines."""
    return stream.isatty() and environment.get("TERM") != "dumb"


class Output:
    """The two streams of one invocation."""

    def __init__(self, out: TextIO, error: TextIO, environment: Mapping[str, str], clock: Clock) -> None:
        self._out = out
        self._error = error
        self._environment = environment
        self._clock = clock
        self.on_terminal = is_terminal(out, environment)
        self.error_on_terminal = is_terminal(error, environment)
        self._consoles: dict[TextIO, Console] = {}

    def now(self) -> float:
        """Seconds since 1970 UTC."""
        return self._clock.wall()

    def line(self, *parts: str | Styled) -> None:
        """One line of the result."""
        self._write(self._out, self.on_terminal, parts)

    def note(self, *parts: str | Styled) -> None:
        """One line about the result, on stderr."""
        self._write(self._error, self.error_on_terminal, parts)

    def json(self, fields: Mapping[str, Any]) -> None:
        """One JSON object on a line of its own, in pure ASCII."""
        self._out.write(json.dumps(fields, separators=(",", ":")) + "\n")

    def raw(self, lines: Iterable[str]) -> None:
        """Lines with colours of their own, for a terminal."""
        self._out.writelines(f"{line}\n" for line in lines)

    def record(self, kind: str, view: object) -> None:
        """What the API said, as one JSON object that begins with its ``type``."""
        import msgspec

        self.json({"type": kind, **msgspec.to_builtins(view)})

    def flush(self) -> None:
        """Hand on what was written, so that a pipe shows a result when it comes."""
        self._out.flush()

    def time(self, wall_seconds: float | None, nothing: str = "never") -> str:
        """A time among facts: with its age on a terminal, bare in a pipe."""
        if wall_seconds is None:
            return nothing
        return moment(wall_seconds, self.now()) if self.on_terminal else iso(wall_seconds)

    def age(self, wall_seconds: float | None, nothing: str = "never") -> str:
        """A time in a table: its age alone on a terminal, the time itself in a pipe."""
        if wall_seconds is None:
            return nothing
        return since(self.now() - wall_seconds) if self.on_terminal else iso(wall_seconds)

    def facts(self, facts: Sequence[tuple[str, str]]) -> None:
        """What is known of one thing: a name and words on each line."""
        for name, words in facts:
            self.line((f"{name + ':':<{FACT_CELLS - 1}} ", "bold"), words)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str | Styled]], numbers: Sequence[str] = ()) -> int:
        """A table with a heading; the columns named in ``numbers`` stand to the right. Returns how many rows it had."""
        listed = [list(row) for row in rows]
        if not listed:
            return 0
        if self.on_terminal and len(listed) <= TABLE_ROWS:
            self._draw(columns, listed, numbers)
        else:
            self._align(columns, listed, numbers)
        return len(listed)

    def doing(self, words: str) -> None:
        """Say what is under way, on a terminal alone."""
        if self.error_on_terminal:
            self.status_line([(words, "dim")])

    def done(self) -> None:
        """Take away what was under way."""
        if self.error_on_terminal:
            self.clear_status_line()

    def status_line(self, parts: Sequence[Styled]) -> None:
        """Replace the line that the terminal behind stderr stands on."""
        console = self._console(self._error)
        text = _text(parts)
        text.truncate(max(console.width - 1, 1), overflow="ellipsis")
        self._error.write("\r\x1b[2K")
        console.print(text, end="", soft_wrap=True)
        self._error.flush()

    def clear_status_line(self) -> None:
        """Wipe what ``status_line`` wrote."""
        self._error.write("\r\x1b[2K")
        self._error.flush()

    def _write(self, stream: TextIO, drawn: bool, parts: Sequence[str | Styled]) -> None:
        if drawn:
            self._console(stream).print(_text(parts), soft_wrap=True)
        else:
            stream.write("".join(part if isinstance(part, str) else part[0] for part in parts) + "\n")

    def _align(self, columns: Sequence[str], rows: list[list[str | Styled]], numbers: Sequence[str]) -> None:
        plain = [[part if isinstance(part, str) else part[0] for part in row] for row in rows]
        heading = [name.upper() for name in columns]
        widths = [max(map(len, cells)) for cells in zip(heading, *plain, strict=True)]
        for row in [heading, *plain]:
            cells = (
                cell.rjust(width) if name in numbers else cell.ljust(width)
                for cell, width, name in zip(row, widths, columns, strict=True)
            )
            self._out.write("  ".join(cells).rstrip() + "\n")

    def _draw(self, columns: Sequence[str], rows: list[list[str | Styled]], numbers: Sequence[str]) -> None:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for name in columns:
            table.add_column(name.upper(), justify="right" if name in numbers else "left", overflow="fold")
        for row in rows:
            table.add_row(*(_text([cell]) for cell in row))
        self._console(self._out).print(table)

    def _console(self, stream: TextIO) -> Console:
        if stream not in self._consoles:
            from rich.console import Console

            self._consoles[stream] = Console(
                file=stream,
                force_terminal=True,
                color_system=None if self._environment.get("NO_COLOR") else "auto",
                markup=False,
                emoji=False,
                highlight=False,
            )
        return self._consoles[stream]


def standard_output() -> Output:
    """The streams of this process."""
    return Output(sys.stdout, sys.stderr, os.environ, Clock())


def _text(parts: Sequence[str | Styled]) -> Text:
    from rich.text import Text

    return Text.assemble(*parts)
