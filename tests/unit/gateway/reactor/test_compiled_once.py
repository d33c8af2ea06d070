"""A rule file is compiled once for its content: not at each event, nor when it is only written again."""

from __future__ import annotations

import pytest

from gateway.render_reads import Reads
from gateway.render_sls import Sources, Unrenderable
from gateway.render_templates import Codes

RULE = b"say: {local.test.echo: [{tgt: {{ data['id'] }}}]}\n"
PATH = "etc/rules/a.sls"


class Kept:
    """What a process that renders keeps: the compiled templates, beside ever newer trees of files."""

    def __init__(self) -> None:
        self.codes = Codes()

    def says(self, content: bytes, path: str = PATH, device: str = "cam-1") -> object:
        """What a file says to an event, in a tree of its own, as after each change on the disk."""
        sources = Sources("base", {path: content}, self.codes)
        return sources.react(path, Reads("", {}, {}, lambda _: None), {"tag": "site/a", "data": {"id": device}})


def test_each_event_and_each_writing_of_the_same_content_finds_it_compiled() -> None:
    kept = Kept()
    for device in ("cam-1", "cam-2"):
        assert kept.says(RULE, device=device) == {"say": {"local.test.echo": [{"tgt": device}]}}
    assert kept.codes.compiled == 1


def test_another_content_is_compiled_anew_and_the_one_before_is_still_there() -> None:
    kept = Kept()
    kept.says(RULE)
    assert kept.says(RULE.replace(b"say", b"tell")) == {"tell": {"local.test.echo": [{"tgt": "cam-1"}]}}
    assert kept.codes.compiled == 2
    kept.says(RULE)
    assert kept.codes.compiled == 2


def test_the_same_content_under_another_name_is_compiled_for_it_since_its_errors_name_it() -> None:
    kept = Kept()
    for path in ("etc/rules/a.sls", "etc/rules/b.sls", "etc/rules/a.sls"):
        with pytest.raises(Unrenderable) as error:
            kept.says(b"a: 1\nb: {{ lacking }}\n", path)
        assert (error.value.problem.file, error.value.problem.line) == (f"base:{path}", 2)
    assert kept.codes.compiled == 2
