"""What a compilation asks of its device: few questions where there could be many, never without end, kept in bounds."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.devices.pillar_cache import KEPT_BYTES, Leaf, PillarCache, Place
from gateway.render import Rendered
from gateway.render_pillar import Compiled, Compiler, Rules
from gateway.render_reads import QUESTIONS, Question, Reads, answered
from gateway.render_sls import Sources
from gateway.render_templates import Codes


def compiled(files: dict[str, str], device: str, **grains: Any) -> tuple[Compiled, list[Question]]:
    asked: list[Question] = []
    facts = {"id": device, **grains}
    sources = Sources("base", {path: text.encode() for path, text in files.items()}, Codes())
    return Compiler({"base": sources}, Rules(), Reads(device, facts, {}, asked.append), {}, None).compile(), asked


def test_an_entry_for_each_of_many_devices_is_one_question() -> None:
    names = [f"cam-{number}" for number in range(500)]
    top = "base:\n  '*': [all]\n  'cam-1*': [some]\n" + "".join(f"  {name}: [own]\n" for name in names)
    files = {"top.sls": top, "all.sls": "a: 1", "some.sls": "b: 1", "own.sls": "c: 1"}
    found, asked = compiled(files, "cam-17")
    assert found.pillar == {"a": 1, "b": 1, "c": 1}
    assert asked == [("one_of", *names), ("match", "compound", "*"), ("match", "compound", "cam-1*")]
    found, asked = compiled(files, "door-1")
    assert found.pillar == {"a": 1}
    assert len(asked) == 3
    # Those that have no entry of their own share one answer; each that has one has its own.
    first = asked[0]
    assert len({answered(first, name, {}, {}) for name in ("door-1", "door-2", "cam-500")}) == 1
    assert len({answered(first, name, {}, {}) for name in names}) == 500


@pytest.mark.parametrize("match", ["glob", "list", "pcre", "compound"])
def test_an_entry_by_name_means_that_device_however_it_is_said(match: str) -> None:
    files = {
        "top.sls": f"base:\n  cam-1:\n    - match: {match}\n    - own\n  'not cam-1': [other]\n  'G@os:x': [os]\n",
        "own.sls": "own: 1",
        "other.sls": "other: 1",
        "os.sls": "os: 1",
    }
    assert compiled(files, "cam-1")[0].pillar == {"own": 1}
    assert compiled(files, "cam-2", os="x")[0].pillar == {"other": 1, "os": 1}


def test_a_template_that_asks_without_end_is_stopped() -> None:
    files = {
        "top.sls": "base:\n  '*': [a, b]",
        "a.sls": "{% for n in range(99999) %}{% set x = grains.get('g' ~ n) %}{% endfor %}x: 1",
        "b.sls": "y: 1",
    }
    found, asked = compiled(files, "cam-1")
    assert found.pillar["y"] == 1
    assert [problem.kind for problem in found.problems] == ["TooLarge"]
    assert len(asked) <= QUESTIONS
    files["a.sls"] = "{% for n in range(99999) %}{% set x = grains.get('g' * 100000 ~ n) %}{% endfor %}x: 1"
    found, asked = compiled(files, "cam-1")
    assert [problem.kind for problem in found.problems] == ["TooLarge"]
    assert len(asked) < 100


def test_compilations_that_say_the_same_by_ever_new_ways_do_not_pile_up() -> None:
    cache = PillarCache()
    asked: list[Question] = [("given",), *(("grain", "g" * 1000 + str(number)) for number in range(1000))]
    for turn in range(200):
        cache.put("tree", asked, [f"{turn}", *("a" for _ in asked[1:])], Leaf(Rendered(asked, b"same")))
        assert cache._bytes <= KEPT_BYTES
    assert isinstance(cache.find("tree", lambda _: "nothing", 0.0), Place)
    cache.put("tree", asked[:1], ["now"], Leaf(Rendered(asked, b"same")))
    found = cache.find("tree", lambda _: "now", 0.0)
    assert isinstance(found, Rendered)
    assert found.data == b"same"
