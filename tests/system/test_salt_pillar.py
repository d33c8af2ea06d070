"""Pillars compile to what stock Salt compiles them to: over a corpus of trees, and what differs on purpose is told."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from device_agent.clock import Clock
from gateway.devices.pillar_merge import merge
from gateway.metrics import Metrics
from gateway.render import Renderer
from gateway.render_frames import Task, Tree
from gateway.render_pillar import Rules
from gateway.render_settings import RenderSettings
from gateway.render_templates import Codes, sandbox
from tests.peers.pillar_corpus import Case, corpus
from tests.peers.salt_pillar import compiled
from tests.peers.salt_release import MINUTES

ALIKE, KEPT = corpus()
REPOSITORY = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.system, pytest.mark.timeout(60 * (MINUTES + 5))]


@pytest.fixture(scope="module")
def theirs(salt: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    cases = [*ALIKE, *KEPT]
    told = compiled(salt, tmp_path_factory.mktemp("salt"), [case.question() for case in cases])
    return {case.name: answer for case, answer in zip(cases, told, strict=True)}


@pytest.fixture
async def renderer() -> AsyncIterator[Renderer]:
    async with Renderer(RenderSettings(workers=1), Metrics(Clock())) as made:
        yield made


async def ours(renderer: Renderer, number: int, case: Case) -> dict[str, Any]:
    trees = {env: {path: text.encode() for path, text in files.items()} for env, files in case.trees.items()}
    rules = Rules(**case.settings, nodegroups=case.nodegroups)
    task = Task(str(number), case.device, case.grains, rules, given=case.override, env=case.pillarenv)
    rendered = await renderer.render(Tree(str(number), trees), task)
    if rendered.refused:
        return {"error": rendered.refused}
    return {"pillar": named_by_text(merged_over(rendered.value(), case.override))}


def merged_over(pillar: dict[Any, Any], override: dict[str, Any]) -> dict[Any, Any]:
    return merge(pillar, override, "smart") if override else pillar


def named_by_text(value: Any) -> Any:
    """As JSON has it: every name a text."""
    return json.loads(json.dumps(value))


async def test_a_tree_compiles_to_what_salt_compiles_it_to(
    renderer: Renderer, theirs: dict[str, dict[str, Any]]
) -> None:
    assert len({case.name for case in [*ALIKE, *KEPT]}) == len(ALIKE) + len(KEPT)
    wrong = {}
    for number, case in enumerate(ALIKE):
        found = await ours(renderer, number, case)
        if found != theirs[case.name]:
            wrong[case.name] = (found, theirs[case.name])
    assert not wrong, "\n".join(f"{name}\n  ours:  {one}\n  Salt's: {other}" for name, (one, other) in wrong.items())


async def test_what_differs_on_purpose_is_told_and_still_differs(
    renderer: Renderer, theirs: dict[str, dict[str, Any]]
) -> None:
    page = (REPOSITORY / "docs" / "pillar.md").read_text()
    told = set(
        re.findall(r"^\| ([^|]+?) \| [^|]+ \| [^|]+ \|$", page.partition("## Differences from Salt")[2], re.MULTILINE)
    )
    assert {case.name for case in KEPT} <= told
    for number, case in enumerate(KEPT):
        assert await ours(renderer, number, case) != theirs[case.name], case.name


FILTERS = """
import json, salt.utils.templates, salt.utils.network
from salt.utils.decorators.jinja import JinjaFilter
print(json.dumps(sorted(JinjaFilter.salt_jinja_filters)))
"""


def test_every_filter_of_salt_is_there_or_the_page_says_that_it_is_missing(salt: Path) -> None:
    printed = subprocess.run([salt, "-c", FILTERS], capture_output=True, check=True, timeout=120).stdout
    theirs = set(json.loads(printed))
    assert "network_hosts" in theirs
    there = set(sandbox({}, "base", Codes(), {}).filters)
    page = (REPOSITORY / "docs" / "pillar.md").read_text()
    missing = set(re.findall(r"`(\w+)`", page.partition("are missing on purpose:")[2].partition("\n\n")[0]))
    assert theirs - there == missing
