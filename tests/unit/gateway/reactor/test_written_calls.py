"""The calls that stand in the text of a reactor file, whatever form they have."""

from __future__ import annotations

import pytest

from gateway.reactor.sls import Reaction
from gateway.reactor.source_lines import SourceLines
from gateway.reactor.written_calls import written_calls

LIST = """\
a:
  local:
    {% if data.on %}
    - state.apply
    {% else %}

    - state.highstate
    {% endif %}
    - tgt: cam-1
    - arg:
      - example.org
      - a.b.c
    - kwarg:
        host: example.net
b:
  runner:
  - manage.up
  - arg:
    - x.y
  - z: []
c:
- d.e
"""


def calls(text: str) -> list[tuple[int, str]]:
    return [(call.line, call.said) for call in written_calls(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a:\n  local.test.ping:\n    - tgt: x\n", [(2, "local.test.ping")]),
        ("a:\n  'cmd.state.sls' :\n    - tgt: x\n", [(2, "cmd.state.sls")]),
        ("a: {local.test.ping: [{tgt: x}],wheel.key.accept: []}\n", [(1, "local.test.ping"), (1, "wheel.key.accept")]),
        ('#!json\n{"a":{"local.test.ping":[{"tgt":"x"}]}}\n', [(2, "local.test.ping")]),
        ('#!json\n{"a":{"local":["test.ping",{"tgt":"x"}]}}\n', [(2, "local.test.ping")]),
        ("a: {local: [test.ping, {tgt: x}]}\n", [(1, "local.test.ping")]),
        (LIST, [(4, "local.state.apply"), (7, "local.state.highstate"), (17, "runner.manage.up")]),
        (
            "a: runner.manage.up\n{{ data.id }}: 'runner.manage.down'\n",
            [(1, "runner.manage.up"), (2, "runner.manage.down")],
        ),
        ("a:\n  local.{{ data['fun'] }}:\n    - tgt: x\n", [(2, "local.")]),
        ("a:\n  local:\n    - {{ data['fun'] }}\n    - tgt: {{ data['id'] }}\n", [(3, "local.")]),
        ("a:\n  cmd.run:\n    - tgt: x\n", [(2, "cmd.run")]),
        (
            "# local.test.ping:\na: {} # local.test.ping: x\n{#\na:\n  local.test.ping:\n#}\nb: {runner.a.b: []}\n",
            [(7, "runner.a.b")],
        ),
        (
            "a:\n  local.test.echo:\n    - tgt: local.example.org\n    - kwarg: {local.name: 1}\n",
            [(2, "local.test.echo")],
        ),
        ("a:\n  local.test.echo:\n    - args:\n      - text: runner.manage.up\n", [(2, "local.test.echo")]),
        ("local:\n  runner.manage.up: []\n", [(2, "runner.manage.up")]),
        ("#!py\n'''local.a.b: x'''\ndef run():\n    return {'a': {'local.test.ping': []}}\n", [(4, "local.test.ping")]),
        (
            "#!py\ndef run():\n    return {'a': {\n        'local': ['test.ping', {'tgt': 'x'}]}}\n",
            [(4, "local.test.ping")],
        ),
        ("#!py\ndef run():\n    fun = 'runner.manage.up'\n    return {'a': {fun: []}}\n", [(3, "runner.manage.up")]),
        ("#!py\ndef run(:\n", []),
    ],
)
def test_each_call_is_found_with_its_line(text: str, found: list[tuple[int, str]]) -> None:
    assert calls(text) == found


@pytest.mark.parametrize(
    ("name", "said", "line"),
    [
        ("a", "local.test.ping", 2),
        ("b:c", "local.test.ping", 4),
        ("d", "local.test.echo", 7),
        ("e", "runner.manage.up", 9),
        ("rendered", "local.test.ping", 2),
        ("d", "local.test.none", 5),
        ("rendered", "local.test.none", 0),
    ],
)
def test_a_reaction_stands_in_the_line_of_its_function_below_its_id(name: str, said: str, line: int) -> None:
    text = (
        "a:\n  local.test.ping: []\n'b:c':\n  local.test.ping: []\nd:\n  local:\n    - test.echo\n"
        "e:\n  runner.{{ data.fun }}: []\n"
    )
    reaction = Reaction(id=name, file="a.sls", rule="*", said=said, kind="local", fun=said.partition(".")[2])
    number, shown = SourceLines(text).of(reaction)
    assert (number, shown) == (line, text.split("\n")[line - 1].strip() if line else "")
