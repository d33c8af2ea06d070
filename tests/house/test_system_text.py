"""Text of system files and commands is split through device_agent/system_text.py, and not as Python splits text.

``str.splitlines()`` ends a line at eleven characters, the kernel and C programs at one. A file that is split so and
written again has more lines than before: a comment in authorized_keys becomes a key.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.tree import listing, name, python_files, syntax

THE_PLACE = "device_agent/system_text.py"
NO_SYSTEM_TEXT = {
    "device_agent/camera/streams.py": "answers of cameras, whose lines end with a carriage return and a line feed",
    "device_agent/swarm.py": "figures of this process",
    "gateway/bench/": "output of our own benchmarks",
    "gateway/cli/": "files that an operator writes, and text for a terminal",
    "gateway/demo.py": "our own output",
    "gateway/devices/ssh_device.py": "a column of the store, whose parts have only printable ASCII",
    "gateway/fleet/": "our own key files",
    "gateway/manual/": "our own pages",
    "gateway/orchestrate/reading.py": "YAML, which ends a line at more characters too",
    "gateway/reactor/": "YAML, which ends a line at more characters too",
    "gateway/render_sls.py": "YAML, which ends a line at more characters too",
    "gateway/schedule/schedule.py": "the first line of one of our own messages",
    "gateway/support/machine.py": "the first line that a command prints, for a person",
    "gateway/upgrade/": "output of dpkg and systemctl about our own packages",
    "gateway/broker/mosquitto.py": "a log, for a person",
    "upstream/curve.py": "our own key files",
}
"""Files, or folders with a stroke at the end, that may split as Python does, and what they split."""

READERS = (
    "device_agent/accounts/",
    "device_agent/fstab.py",
    "device_agent/functions/disk.py",
    "device_agent/functions/network/",
    "device_agent/functions/ps/",
    "device_agent/functions/service.py",
    "device_agent/functions/status/",
    "device_agent/init_systems/",
    "device_agent/looks.py",
    "device_agent/openssh_files.py",
    "device_agent/openssh_keys.py",
    "device_agent/packages/",
    "device_agent/readings/",
)
"""Where words are those of system text too: ``str.split()`` also splits at blanks that only Unicode knows."""

FOR_A_PERSON = {("device_agent/readings/machine.py", "word")}
"""Functions of them that make one line of a text, whatever blanks it has."""


def splits(tree: ast.Module, method: str) -> Iterator[tuple[int, str]]:
    """Lines with a call of this method that names no separator, and the function that it is in."""
    places = {
        id(node): function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=found), args=[] | [ast.Constant(value=None), *_]) if found == method:
                yield node.lineno, places.get(id(node), "")
            case ast.Call(func=ast.Attribute(attr="splitlines")) if method == "splitlines":
                yield node.lineno, places.get(id(node), "")


def test_no_system_text_is_split_into_lines_as_python_does() -> None:
    allowed = (THE_PLACE, *NO_SYSTEM_TEXT)
    findings = [
        f"{name(path)}:{line}: use device_agent/system_text.py: lines()"
        for path in python_files("device_agent", "upstream", "gateway")
        if not name(path).startswith(allowed)
        for line, _ in splits(syntax(path), "splitlines")
    ]
    assert not findings, listing(findings)


def test_no_system_text_is_split_into_words_as_python_does() -> None:
    findings = [
        f"{name(path)}:{line}: use device_agent/system_text.py: words() or fields()"
        for path in python_files("device_agent")
        if name(path).startswith(READERS)
        for line, function in splits(syntax(path), "split")
        if (name(path), function) not in FOR_A_PERSON
    ]
    assert not findings, listing(findings)


def test_each_exception_still_splits() -> None:
    found = {
        name(path)
        for path in python_files("device_agent", "upstream", "gateway")
        if list(splits(syntax(path), "splitlines")) or list(splits(syntax(path), "split"))
    }
    unused = [place for place in NO_SYSTEM_TEXT if not any(each.startswith(place) for each in found)]
    assert not unused, listing(unused)


def test_a_split_is_found_with_and_without_arguments() -> None:
    source = "def f(a):\n  a.split()\n  a.split(None, 2)\n  a.split(',')\n  a.splitlines(True)\na.splitlines()\n"
    assert list(splits(ast.parse(source), "split")) == [(2, "f"), (3, "f")]
    assert sorted(splits(ast.parse(source), "splitlines")) == [(5, "f"), (6, "")]
