"""What an event would have refused, ``reactor check`` and ``reactor test`` say before it, with file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.peers.reacting import Reacting, reacting, written

DESTROY = """\
{% if data.get('post_data') %}
destroy:
  runner.cloud.destroy:
    - instances: [{{ data['id'] }}]
{% endif %}
"""
START = """\
start:
  local.state.apply:
    - tgt: cam-1
"""
RETURNED = """\
answer:
  local.test.ping:
    - tgt: cam-1
    - ret: syslog,smtp
"""


async def checked(station: Reacting) -> list[dict[str, Any]]:
    """Every trouble of the check, without the words of its message that are the same in all."""
    return [each for rule in (await station.kept.explain.checked())["rules"] for each in rule["troubles"]]


async def dry_run(station: Reacting, tag: str, **data: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await station.kept.explain.tested(tag, data))["troubles"]
    return found


def rule(folder: Path, text: str, tag: str = "site/*") -> list[dict[str, str]]:
    return [{tag: str(written(folder, {"a.sls": text}) / "a.sls")}]


WRONG = {
    "runner": ("a:\n  runner.cloud.destroy:\n    - x: 1\n", 2, "unknown function: runner.cloud.destroy"),
    "wheel": ("a:\n  wheel.key.acept:\n    - match: x\n", 2, "unknown function: wheel.key.acept"),
    "argument": ("a:\n  runner.manage.present:\n    - nonsense: 1\n", 2, "has no argument 'nonsense'"),
    "unsupported": ("a:\n  runner.test.sleep:\n    - s_time: x\n", 2, "another kind"),
    "role": ("a:\n  wheel.key.accept:\n    - match: cam-9\n", 2, "reactor may not"),
    "function": (START, 2, "reactor may not do this: state.apply is for admins"),
    "shell": ("a:\n  local.cmd.run:\n    - tgt: cam-1\n    - arg: [id]\n", 2, "cmd.run is for admins"),
    "old type": ("a:\n  cmd.cmd.run:\n    - tgt: cam-1\n    - arg: [id]\n", 2, "cmd.run is for admins"),
    "caller": ("a:\n  caller.state.apply: []\n", 2, "state.apply is for admins"),
    "arguments of a device": ("a:\n\n  local.test.echo:\n    - tgt: cam-1\n", 3, "test.echo takes (text)"),
    "nodegroup": ("a:\n  local.test.ping:\n    - tgt: none-such\n    - tgt_type: nodegroup\n", 2, "nodegroup"),
    "in braces": ("a: {local.state.apply: [{tgt: cam-1}]}\n", 1, "state.apply is for admins"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_check_says_what_the_event_would_have_refused(name: str, tmp_path: Path) -> None:
    text, line, what = WRONG[name]
    async with reacting(tmp_path, rule(tmp_path, text)) as station:
        (trouble,) = await checked(station)
        assert (trouble["file"], trouble["line"], trouble["level"]) == (str(tmp_path / "a.sls"), line, "error")
        assert what in trouble["what"], trouble
        (trouble,) = await dry_run(station, "site/a")
        assert (trouble["line"], trouble["level"]) == (line, "error")
        assert what in trouble["what"], trouble
        assert await station.jobs() == []
        assert station.counted("jobs_denied") == station.counted("calls_denied") == 0, "asking leaves no trace"
        audit = await station.rooms.reader.rows("SELECT count(*) FROM audit")
        assert audit == [(0,)]
        if name != "arguments of a device":
            await station.fire("site/a")
            (made,) = (await station.event("site/a"))["reactions"]
            assert made["state"] in ("refused", "failed")


async def test_a_function_in_a_branch_that_no_event_has_taken_is_named_too(tmp_path: Path) -> None:
    async with reacting(tmp_path, rule(tmp_path, DESTROY)) as station:
        for _ in range(2):
            (trouble,) = await checked(station)
            assert (trouble["line"], trouble["level"]) == (3, "error")
            assert "unknown function: runner.cloud.destroy" in trouble["what"]
            # The second time with an event, to which the file says nothing.
            await station.fire("site/a", id="cam-1")
            await station.event("site/a")
        assert await dry_run(station, "site/a", id="cam-1") == []
        (trouble,) = await dry_run(station, "site/a", id="cam-1", post_data=True)
        assert trouble["line"] == 3


async def test_what_a_role_or_a_rule_lets_through_is_no_trouble(tmp_path: Path) -> None:
    shell = WRONG["shell"][0]
    for policy in (
        "users: {reactor: admin}\n",
        "users: {reactor: operator}\nrules:\n  operator: [{users: [reactor], functions: [cmd.run]}]\n",
    ):
        async with reacting(tmp_path, rule(tmp_path, shell), policy=policy) as station:
            assert await checked(station) == []
            assert await dry_run(station, "site/a") == []
    unknown = rule(tmp_path, "a:\n  local.camera.dance:\n    - tgt: cam-1\n")
    async with reacting(tmp_path, unknown, policy="users: {reactor: admin}\n") as station:
        (trouble,) = await checked(station)
        assert (trouble["line"], trouble["level"]) == (2, "warning"), "a device of another release may have it"
        assert "no device of this release has camera.dance" in trouble["what"]


async def test_a_target_beyond_the_rules_is_named_before_the_event(tmp_path: Path) -> None:
    policy = (
        "users: {reactor: operator}\n"
        "rules:\n  operator: [{users: [reactor], functions: [test.*], targets: ['door-*']}]\n"
    )
    async with reacting(tmp_path, rule(tmp_path, "a:\n  local.test.ping: [{tgt: cam-1}]\n"), policy=policy) as station:
        (trouble,) = await checked(station)
        assert (trouble["line"], trouble["level"]) == (2, "error")
        assert "reactor may not do this" in trouble["what"]


async def test_a_returner_that_is_not_here_stops_no_reaction_and_is_named_by_the_check(tmp_path: Path) -> None:
    smtp = {"to": "ops@example.org", "from": "gw@example.org", "host": "127.0.0.1"}
    async with reacting(tmp_path, rule(tmp_path, RETURNED), smtp=smtp) as station:
        for found in (await checked(station), await dry_run(station, "site/a")):
            (trouble,) = found
            assert (trouble["line"], trouble["level"]) == (2, "warning")
            assert "without the returners that are not here: syslog; here are smtp" in trouble["what"]
        await station.fire("site/a")
        (job,) = await station.jobs_are(1)
        assert job.fun == "test.ping"
        (made,) = (await station.event("site/a"))["reactions"]
        assert (made["state"], made["jid"]) == ("issued", job.jid)
        assert "not here: syslog" in made["why"]
        rows = await station.rooms.reader.rows("SELECT returner FROM job_returners WHERE jid = ?", (job.jid,))
        assert rows == [("smtp",)]


async def test_a_reaction_runs_where_there_is_no_returner_at_all(tmp_path: Path) -> None:
    async with reacting(tmp_path, rule(tmp_path, RETURNED)) as station:
        await station.fire("site/a")
        assert len(await station.jobs_are(1)) == 1
