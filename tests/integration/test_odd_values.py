"""One value that no message can carry costs that value at most: in pillar, its sources, reactions, calls and events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from device_agent.custom.facts import with_custom
from device_agent.local_host import LocalHost
from gateway.event_words import check_fired
from gateway.render_yaml import read
from tests.peers.pillar_site import pillar_site, write_tree
from tests.peers.reacting import reacting, written

BIG = 42535295865117307932921825928971026432


async def test_a_number_past_64_bits_in_pillar_is_told_as_text(tmp_path: Path) -> None:
    sls = f"token: {BIG}\nother: {{deep: [1, {-BIG}]}}\n{BIG}: key\nlong: {'9' * 5000}\nfits: {2**64 - 1}\n"
    tree = {"top.sls": "base:\n  '*': [a, b]", "a.sls": sls, "b.sls": "b: 1"}
    roots = write_tree(tmp_path / "roots", tree)
    async with pillar_site(tmp_path, pillar_roots={"base": [str(roots)]}) as site:
        site.hello("cam-1")
        assert await site.pillar("cam-1") == {
            "token": str(BIG),
            "other": {"deep": [1, str(-BIG)]},
            str(BIG): "key",
            "long": "9" * 5000,
            "fits": 2**64 - 1,
            "b": 1,
        }


async def test_a_reaction_has_a_number_past_64_bits_as_text_and_python_is_refused_by_its_key(tmp_path: Path) -> None:
    wrong = "#!py\ndef run():\n    return {'a': {'runner.test.arg': [{'args': [{'x': object()}]}]}}\n"
    file = written(
        tmp_path, {"a.sls": f"a: {{local.test.arg: [{{tgt: cam-1}}, {{args: [{{n: {BIG}}}]}}]}}", "b.sls": wrong}
    )
    async with reacting(tmp_path, [{"x/a": str(file / "a.sls")}, {"x/b": str(file / "b.sls")}]) as station:
        await station.fire("x/a")
        (job,) = await station.jobs_are(1)
        assert job.kwarg == {"n": str(BIG)}
        await station.fire("x/b")
        (trouble,) = (await station.event("x/b"))["troubles"]
        assert "a:runner.test.arg:0:args:0:x: object cannot be a value" in str(trouble)


def test_the_data_of_an_event_has_a_number_past_64_bits_as_text() -> None:
    assert check_fired("site/x", {"n": BIG, "s": ["\ud800"], "b": 1}) == {"n": str(BIG), "s": ["\\ud800"], "b": 1}
    assert json.loads(json.dumps(check_fired("site/x", {"n": {"m": -BIG}}))) == {"n": {"m": str(-BIG)}}


class Modules:
    """One file of a site with one function."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._told = told

    def hashes(self, _: str) -> dict[str, bytes]:
        return {"rack.py": b""}

    async def functions_of(self, _: str) -> dict[str, Any]:
        async def rack(_: object) -> dict[str, Any]:
            return self._told

        return {"rack": rack}


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"n": object()}, "bad:n: object cannot be a value"),
        ("x" * 300_000, "bad: the grains would have"),
        ("\ud800", "bad: it has half"),
    ],
)
async def test_a_fact_that_no_message_can_carry_costs_that_fact_alone(bad: Any, why: str) -> None:
    modules: Any = Modules({"a": BIG, "bad": bad, "b": (1, 2)})
    told, problems = await with_custom(modules, LocalHost({}), {"id": "cam-1"})
    assert told == {"id": "cam-1", "a": str(BIG), "b": [1, 2]}
    assert list(problems) == ["rack.py"]
    assert why in problems["rack.py"]


def test_a_number_of_many_digits_does_not_take_its_document_along() -> None:
    assert read(f"a: {'9' * 5000}\nb: 1") == {"a": "9" * 5000, "b": 1}
    assert read(f"a: {BIG}") == {"a": BIG}
