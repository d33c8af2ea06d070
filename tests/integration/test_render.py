"""Templates in their processes: what they may reach, what they may use up, and who is served beside a bad one."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from device_agent.clock import Clock
from device_agent.errors import Refused
from gateway.metrics import Metrics
from gateway.render import Rendered, Renderer
from gateway.render_frames import Task, Tree
from gateway.render_settings import RenderSettings

GRAINS = {"id": "cam-7", "os": "Debian", "model": "dome-2", "roles": ["edge"]}
BOMB = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{below}'] * 9)}]\n" for below, name in zip("abcdefgh", "bcdefghi", strict=True)
)
BAD = {
    "an endless loop": ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "too_slow"),
    "much output": ("{% for n in range(99999) %}{{ 'x' * 1000 }}{% endfor %}", "TooLarge"),
    "much output at once": ("{{ 'x' * 100000000 }}", "TooLarge"),
    "all memory": (
        "{% set n = namespace(l=['x' * 1000000]) %}{% for a in range(99) %}{% set n.l = n.l + n.l %}{% endfor %}",
        "memory",
    ),
    "a power": ("{{ 10 ** 100000000 }}", "TooLarge"),
    "a macro that calls itself": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
    "aliases of aliases": (BOMB, "TooLarge"),
    "an alias of itself": ("a: &a [*a]", "TooLarge"),
    "lists in lists": ("[" * 100_000, "TooLarge"),
    "merges of merges": ("a: &a {x: 1}\nb: {<<: [*a, *a]}", "ConstructorError"),
    "a way out": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "SecurityError"),
    "a way out by a text": ("{{ '{0.__class__}'.format(1) }}", "SecurityError"),
    "a file of the machine": ("{% include '/etc/passwd' %}", "TemplateNotFound"),
    "a file above": ("{% include '../../../../etc/passwd' %}", "TemplateNotFound"),
    "a command": ("{{ salt['cmd.run']('id') }}", "NotCallable"),
    "what is not there": ("a: 1\nb: {{ nope }}", "UndefinedError"),
    "no YAML": ("a: 1\n b: 2", "ScannerError"),
    "a tag of Python": ("!!python/object/apply:os.system ['true']", "ConstructorError"),
}


@pytest.fixture
async def renderer() -> AsyncIterator[Renderer]:
    settings = RenderSettings(workers=1, seconds=60.0, cpu_seconds=2, memory_megabytes=256)
    async with Renderer(settings, Metrics(Clock())) as made:
        yield made


async def rendered(renderer: Renderer, text: str, **more: str) -> Rendered:
    files = {"a.sls": text.encode(), **{path: body.encode() for path, body in more.items()}}
    return await renderer.render(Tree(str(files), {"base": files}), Task(str(files), "cam-7", GRAINS, path="a.sls"))


@pytest.mark.parametrize("name", BAD)
async def test_what_is_bad_is_refused_with_its_reason_and_others_are_served(renderer: Renderer, name: str) -> None:
    text, reason = BAD[name]
    found = await rendered(renderer, text)
    assert found.refused
    assert reason in {found.refused, *(problem.kind for problem in found.problems)}
    assert (await rendered(renderer, "x: {{ grains.os }}")).value() == {"x": "Debian"}


async def test_a_file_in_another_encoding_is_named_with_its_line(renderer: Renderer) -> None:
    wrong = "a: 1\nb: Gerät\n".encode("iso-8859-1")
    for files in ({"a.sls": wrong}, {"a.sls": b"{% include 'b.sls' %}", "b.sls": wrong}):
        tree = Tree(str(files), {"base": files})
        found = await renderer.render(tree, Task(str(files), "cam-7", GRAINS, path="a.sls"))
        [problem] = found.problems
        assert "line 2 is not UTF-8: the byte 0xe4" in problem.what


async def test_a_byte_order_mark_is_no_part_of_a_file(renderer: Renderer) -> None:
    files = {"a.sls": "\ufeffa: Gerät\n".encode()}
    found = await renderer.render(Tree(str(files), {"base": files}), Task(str(files), "cam-7", GRAINS, path="a.sls"))
    assert found.value() == {"a": "Gerät"}


async def test_an_error_names_the_file_the_line_and_the_text(renderer: Renderer) -> None:
    (problem,) = (await rendered(renderer, "a: 1\nb: {{ lacking }}\n")).problems
    assert (problem.file, problem.line, problem.text) == ("base:a.sls", 2, "b: {{ lacking }}")
    assert "'lacking' is undefined" in problem.what
    (problem,) = (await rendered(renderer, "a: {{ grains.lacking }}\n")).problems
    assert problem.what == "'Grains object' has no attribute 'lacking'"
    imported = "{% from 'lib.jinja' import f %}\na: {{ f(0) }}"
    (problem,) = (
        await rendered(renderer, imported, **{"lib.jinja": "{% macro f(n) %}\n{{ 1 / n }}\n{% endmacro %}"})
    ).problems
    assert (problem.file, problem.line, problem.text) == ("base:lib.jinja", 2, "{{ 1 / n }}")
    (problem,) = (await rendered(renderer, "{% set x = 1 %}\na: 1\n  b: 2\n")).problems
    assert (problem.line, problem.text, problem.rendered) == (3, "b: 2", True)


LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
EXHAUSTING = {
    "a loop that says nothing": ("a: 1\n" + LOOP, "too_slow", "a.sls", 2),
    "a loop in what is included": ("a: 1\n{% include 'b.sls' %}", "too_slow", "b.sls", 3),
    "a loop in a macro of another file": ("{% from 'm.sls' import f %}\na: {{ f() }}", "too_slow", "m.sls", 2),
    "a list that grows": (
        "{% set n = namespace(l=['x' * 1000000]) %}\n\n{% for a in range(99) %}\n{% set n.l = n.l + n.l %}{% endfor %}",
        "memory",
        "a.sls",
        4,
    ),
}
NEVER = """{% set n = namespace(a=[], b=[]) %}
{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, n.b] %}{% endfor %}
a: {{ n.a == n.b }}
"""
OTHERS = {"b.sls": "b: 1\n\n" + LOOP, "m.sls": "{% macro f() %}\n" + LOOP + "{% endmacro %}"}


@pytest.mark.parametrize("name", EXHAUSTING)
async def test_what_uses_up_its_time_or_memory_is_named_with_file_and_line(renderer: Renderer, name: str) -> None:
    text, reason, file, line = EXHAUSTING[name]
    found = await rendered(renderer, text, **OTHERS)
    (problem,) = found.problems
    assert (found.refused, problem.file, problem.line) == (reason, f"base:{file}", line)
    assert found.why.endswith(f"; base:{file}, line {line}")
    assert (await rendered(renderer, "x: {{ grains.os }}")).value() == {"x": "Debian"}


async def test_output_that_is_too_large_is_named_with_the_line_that_printed_it(renderer: Renderer) -> None:
    printing = "a: 1\n\nb: {% for n in range(99999) %}{{ 'x' * 1000 }}{% endfor %}"
    # What is included prints at the line that includes it.
    for text, line in ((printing, 3), ("a: 1\n{% include 'b.sls' %}", 2)):
        (problem,) = (await rendered(renderer, text, **{"b.sls": printing})).problems
        assert (problem.kind, problem.file, problem.line) == ("TooLarge", "base:a.sls", line)


async def test_what_does_not_come_back_to_be_stopped_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.render.GRACE_SECONDS", 1.0)
    settings = RenderSettings(workers=1, seconds=3.0, cpu_seconds=60, memory_megabytes=256)
    async with Renderer(settings, Metrics(Clock())) as made:
        found = await rendered(made, NEVER)
        assert (found.refused, found.why, found.problems) == ("too_slow", "it was killed after 4 s", [])
        assert (await rendered(made, "x: 1")).value() == {"x": 1}


async def test_what_is_read_of_the_device_is_told_in_its_order(renderer: Renderer) -> None:
    found = await rendered(renderer, "{% if grains.os == 'Debian' %}a: {{ grains.model }}{% endif %}\nb: {{ opts.id }}")
    assert found.reads == [("grain", "os"), ("grain", "model"), ("id",)]
    found = await rendered(renderer, "a: {{ grains | length }}\nb: {{ 'model' in grains }}")
    assert found.reads == [("grains",), ("grain", "model")]
    # Also of one that was killed meanwhile.
    found = await rendered(renderer, "{{ grains.model }}" + BAD["an endless loop"][0])
    assert (found.refused, found.reads) == ("too_slow", [("grain", "model")])


async def test_a_template_sees_nothing_of_its_station(renderer: Renderer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTSTATION_SECRET", "for nobody")
    assert (await rendered(renderer, "x: 1")).value() == {"x": 1}
    process = renderer._processes[0]._process
    assert process is not None
    environment = await read(f"/proc/{process.pid}/environ")
    assert b"for nobody" not in environment
    limits = await read(f"/proc/{process.pid}/limits")
    assert b"Max file size             0 " in limits


async def read(path: str) -> bytes:
    import asyncio

    def content() -> bytes:
        with open(path, "rb") as file:  # noqa: PTH123 - a file of the kernel's
            return file.read()

    return await asyncio.to_thread(content)


async def test_a_process_that_died_is_replaced(renderer: Renderer) -> None:
    assert (await rendered(renderer, "x: 1")).value() == {"x": 1}
    process = renderer._processes[0]._process
    assert process is not None
    os.kill(process.pid, 9)
    with pytest.raises(Refused, match="died"):
        (await rendered(renderer, "x: 2")).value()
    assert (await rendered(renderer, "x: 3")).value() == {"x": 3}


async def test_what_a_process_takes_to_start_is_no_time_of_the_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "python"
    slow.write_text(f'#!/bin/sh\nsleep 4\nexec {sys.executable} "$@"\n')
    slow.chmod(0o700)
    monkeypatch.setattr("gateway.render.sys.executable", str(slow))
    async with Renderer(RenderSettings(workers=1, seconds=3.0), Metrics(Clock())) as made:
        assert (await rendered(made, "x: 1")).value() == {"x": 1}
        # One that does not start at all is no fault of the template's either.
        slow.write_text("#!/bin/sh\n")
        await made._processes[0].end()
        assert (await rendered(made, "x: 2")).refused == "died"
