"""Salt's filters and renderers in templates: their values, their bounds, and what the sandbox keeps from them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from jinja2.exceptions import SecurityError

from gateway.reactor.sls import RenderedFile, compiled
from gateway.render_reads import Reads
from gateway.render_sls import Problem, Sources, Unrenderable
from gateway.render_templates import Codes, sandbox
from gateway.render_yaml import TooLarge

PAGE = Path(__file__).resolve().parents[3] / "docs" / "pillar.md"
EVENT = {"tag": "t", "data": {"id": "00427"}}


def printed(text: str) -> str:
    return sandbox({}, "base", Codes(), {}).from_string(text).render()


def reacted(text: str, event: dict[str, Any] | None = EVENT) -> Any:
    sources = Sources("reactor", {"a.sls": text.encode()}, Codes())
    return sources.react("a.sls", Reads("", {}, {}, lambda _: None), event)


def problem(text: str, event: dict[str, Any] | None = EVENT) -> Problem:
    with pytest.raises(Unrenderable) as caught:
        reacted(text, event)
    return caught.value.problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ '192.168.0.1/30'|network_hosts }}", "['192.168.0.1', '192.168.0.2']"),
        ("{{ 6|method_call('bit_length') }}", "3"),
        ("{{ {'a': {'b': 7}}|json_query('a.b') }}", "7"),
        ("{% profile as 'p' %}{% endprofile %}z", "z"),
        ("{{ 'fe80::1'|ipwrap }}", "[fe80::1]"),
    ],
)
def test_a_filter_gives_what_salt_gives(text: str, expected: str) -> None:
    assert printed(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''|method_call('__class__') }}",
        "{{ ''|method_call('__init_subclass__') }}",
        "{{ 5|method_call('__reduce_ex__', 2) }}",
        "{{ '{0.__class__}'|method_call('format', 1) }}",
        "{{ (''.join)|method_call('__call__', []) }}",
    ],
)
def test_a_method_is_called_as_the_sandbox_lets_it_be_called(text: str) -> None:
    with pytest.raises(SecurityError):
        printed(text)


def test_the_hosts_of_a_large_network_are_refused_before_they_are_listed() -> None:
    for text in ("10.0.0.0/8", "fe80::/64"):
        with pytest.raises(TooLarge, match="network_hosts of"):
            printed(f"{{{{ '{text}'|network_hosts }}}}")
    assert printed("{{ '10.0.0.0/15'|network_hosts|length }}") == str(2**17 - 2)


@pytest.mark.parametrize(
    "text",
    [
        '#!json\n{"a": {"local.test.ping": [{"tgt": "00427"}]}}',
        '#!jinja|json\n{"a": {"local.test.ping": [{"tgt": {{ data.id|tojson }}}]}}',
        '#! jinja | json\n{% set name = "00427" %}{"a": {"local.test.ping": [{"tgt": "{{ name }}"}]}}',
    ],
)
def test_a_reactor_file_may_be_json(text: str) -> None:
    data = reacted(text)
    assert data == {"a": {"local.test.ping": [{"tgt": "00427"}]}}
    (reaction,) = compiled([RenderedFile("/a.sls", "r", data)]).reactions
    assert (reaction.fun, reaction.tgt) == ("test.ping", "00427")
    reacted(text, None)


def test_a_target_of_a_json_file_that_is_a_number_is_refused() -> None:
    data = reacted('#!jinja|json\n{"a": {"local.test.ping": [{"tgt": {{ data.id|int }}}]}}')
    found = compiled([RenderedFile("/a.sls", "r", data)])
    assert found.reactions == []
    assert "the int 427" in found.troubles[0].what


@pytest.mark.parametrize("event", [EVENT, None])
def test_json_that_is_wrong_is_named_by_its_line(event: dict[str, Any] | None) -> None:
    found = problem('#!json\n{\n"a": 1,\n"b": 007\n}', event)
    assert (found.line, found.kind, found.text, found.rendered) == (4, "JSONDecodeError", '"b": 007', False)


def test_json_that_a_template_makes_wrong_is_named_by_its_line_there() -> None:
    found = problem('#!jinja|json\n{% set x = 1 %}\n{"a": {{ data.id }}}')
    assert (found.line, found.text, found.rendered) == (3, '{"a": 00427}', True)


def test_braces_in_a_json_file_are_no_template_and_an_empty_file_says_nothing() -> None:
    assert reacted('#!json\n{"a": "{{ x }}"}') == {"a": "{{ x }}"}
    assert reacted("#!json") == reacted("#!json\n  \n") == {}
    assert problem("#!json\n" + "[" * 100_000).kind == "RecursionError"
    assert problem("#!mako|json\n{}").what.startswith("it asks for the renderer mako|json; there are jinja|yaml")


def test_the_page_names_every_filter_that_there_is() -> None:
    page = PAGE.read_text()
    told = set(
        re.findall(r"`([a-z0-9_]+)`", page.partition("Filters beside Jinja's own:")[2].partition("Salt's filters")[0])
    )
    made = sandbox({}, "base", Codes(), {})
    plain = {"tojson", "unique", "max", "min"}
    assert told <= set(made.filters)
    from_jinja = set(type(made)().filters) - plain
    assert set(made.filters) - from_jinja <= told
