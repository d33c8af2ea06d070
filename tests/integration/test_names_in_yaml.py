"""A device whose name is digits, or a MAC: what is meant for it goes to no other device."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peers.orchestrating import orchestrating
from tests.peers.pillar_site import pillar_site, write_tree
from tests.peers.reacting import reacting, written

NAMES = ["00427", "427", "52:54:00:42:25:43", "1_0", "on"]


async def test_a_reaction_to_a_device_whose_name_is_digits_is_a_job_for_that_device(tmp_path: Path) -> None:
    file = (
        written(tmp_path, {"digits.sls": "answer:\n  local.test.ping:\n    - tgt: {{ data['id'] }}\n"}) / "digits.sls"
    )
    async with reacting(tmp_path, [{"probe/digits": str(file)}]) as station:
        for number, name in enumerate(NAMES, start=1):
            await station.fire("probe/digits", id=name)
            assert [job.tgt for job in await station.jobs_are(number)] == NAMES[:number]


async def test_an_argument_that_yaml_rewrites_is_noted_with_its_line(tmp_path: Path) -> None:
    args = "      - id: {{ data['id'] }}\n      - b: '007'\n      - c: 8080\n"
    text = f"a:\n  local.test.arg:\n    - tgt: 00427\n    - args:\n{args}"
    file = written(tmp_path, {"a.sls": text}) / "a.sls"
    async with reacting(tmp_path, [{"probe/digits": str(file)}]) as station:
        for number, name in enumerate(("00427", "52:54:00:42:25:43"), start=1):
            tested = await station.kept.explain.tested("probe/digits", {"id": name})
            (note,) = tested["troubles"]
            assert (note["level"], note["line"]) == ("note", 5)
            assert note["what"].startswith(f"{name} is read as a number")
            await station.fire("probe/digits", id=name)
            assert [job.tgt for job in await station.jobs_are(number)] == ["00427"] * number
        assert (await station.kept.explain.tested("probe/digits", {"id": "427"}))["troubles"] == []
    written(tmp_path, {"a.sls": f"{{% for n in (1, 2, 3) %}}\n\n{{% endfor %}}\n{text}"})
    async with reacting(tmp_path, [{"probe/digits": str(file)}]) as station:
        (note,) = (await station.kept.explain.tested("probe/digits", {"id": "00427"}))["troubles"]
        assert note["what"].endswith("(a line of what was rendered)")


@pytest.mark.parametrize("line", ["{'tgt': 427}", "{'tgt': [427]}"])
async def test_a_file_in_python_that_names_a_number_sets_off_nothing(tmp_path: Path, line: str) -> None:
    text = f"#!py\ndef run():\n    return {{'answer': {{'local.test.ping': [{line}]}}}}\n"
    file = written(tmp_path, {"digits.sls": text}) / "digits.sls"
    async with reacting(tmp_path, [{"probe/digits": str(file)}]) as station:
        await station.fire("probe/digits", id="00427")
        (trouble,) = (await station.event("probe/digits"))["troubles"]
        assert "write the name in quotes" in str(trouble)
        assert await station.jobs() == []


async def test_pillar_for_a_device_whose_name_is_digits_is_told_to_that_device_alone(tmp_path: Path) -> None:
    tree = {"top.sls": "base:\n  00427: [digits-pillar]\n", "digits-pillar.sls": "special: only for 00427"}
    roots = write_tree(tmp_path / "roots", tree)
    async with pillar_site(tmp_path, pillar_roots={"base": [str(roots)]}) as site:
        for name in ("00427", "427"):
            site.hello(name)
        assert await site.pillar("00427") == {"special": "only for 00427"}
        assert await site.pillar("427") == {}


async def test_a_step_for_a_device_whose_name_is_digits_is_a_job_for_that_device(tmp_path: Path) -> None:
    step = "s{{ loop.index }}:\n  salt.function:\n    - name: test.ping\n    - tgt: {{ name }}\n"
    text = f"{{% for name in pillar.names %}}{step}{{% endfor %}}"
    async with orchestrating(tmp_path, {"orch.sls": text}) as station:
        await station.ran("orch", pillar={"names": NAMES})
        assert [job.tgt for job in await station.jobs()] == NAMES
