"""The reactor on a real store: from the event to the job, across restarts, and what stops it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from device_agent.errors import NotFound
from device_agent.protocol.messages import Gone, Hello
from gateway.jobs.request import JobRequest
from gateway.reactor.plan import Plan
from tests.peers.reacting import Reacting, reacting, written
from tests.peers.waiting import until

ECHO = """\
say:
  local.test.echo:
    - tgt: {{ data['id'] }}
    - args:
      - text: {{ tag }} {{ data.get('door', 'none') }}
"""
PING = "ping: {local.test.ping: [{tgt: cam-1}]}\n"


def rules(folder: Path, text: str, tag: str = "site/*") -> list[dict[str, str]]:
    return [{tag: str(written(folder, {"a.sls": text}) / "a.sls")}]


async def test_an_event_becomes_a_job_of_the_reactor_that_names_its_reaction(tmp_path: Path) -> None:
    async with reacting(tmp_path, rules(tmp_path, ECHO)) as station:
        await station.fire("site/door", id="cam-1", door="north")
        (job,) = await station.jobs_are(1)
        assert (job.fun, job.tgt, job.tgt_type) == ("test.echo", "cam-1", "glob")
        assert (job.arg, job.kwarg, job.user, job.late) == ([], {"text": "site/door north"}, "reactor", "run")
        told = await station.event("site/door")
        (made,) = told["reactions"]
        assert (made["state"], made["jid"], made["id"]) == ("issued", job.jid, "say")
        assert job.why.startswith(f"reaction {made['key']} depth 0 ")
        assert (await station.kept.explain.why(job.jid))["events"] == [told]
        await station.fire("other/door", id="cam-1")
        await station.fire("site/door2", id="cam-1")
        assert len(await station.jobs_are(2)) == 2


async def test_what_waits_is_taken_up_after_an_end_and_no_reaction_becomes_two_jobs(tmp_path: Path) -> None:
    said = rules(tmp_path, ECHO)
    async with reacting(tmp_path, said, draining=True) as station:
        await station.fire("site/a", id="cam-1")
        await until(lambda: station.counted("reactor_events_matched") == 1, what="it matched")
    async with reacting(tmp_path, said, draining=True) as station:
        await station.fire("site/b", id="cam-1")
        assert await station.jobs() == []
    for _ in range(3):
        async with reacting(tmp_path, said) as station:
            jobs = await station.jobs_are(2)
            for tag in ("site/a", "site/b"):
                await station.event(tag)
            assert {job.kwarg["text"] for job in jobs} == {"site/a none", "site/b none"}
            assert len(await station.jobs()) == 2


async def test_a_station_that_had_no_rules_does_not_react_to_what_was_before_them(tmp_path: Path) -> None:
    said = rules(tmp_path, PING)
    for before in ([], said, []):
        async with reacting(tmp_path, before) as station:
            if not before:
                await station.fire("site/before")
    async with reacting(tmp_path, said) as station:
        await station.fire("site/after")
        await station.event("site/after")
        assert len(await station.jobs()) == 1
        with pytest.raises(NotFound):
            await station.kept.explain.why("site/before")


async def test_a_rule_that_sets_itself_off_stops_at_the_depth_and_says_so(tmp_path: Path) -> None:
    said = rules(tmp_path, PING, "salt/job/*/new")
    async with reacting(tmp_path, said, reactions={"depth": 2}) as station:
        await station.fire("salt/job/20260101000000000000/new", jid="x")
        jobs = await station.jobs_are(3)
        told = await station.event(f"salt/job/{jobs[-1].jid}/new", "stopped")
        assert (told["depth"], told["reactions"]) == (3, [])
        assert "reactions.depth" in told["why"]
        assert station.rooms.metrics.refusals["reactor", "too_deep"] == 1
        assert len(await station.jobs()) == 3
        assert [job.why.split()[3] for job in jobs] == ["0", "1", "2"]


async def test_an_event_of_salts_reactor_sets_off_nothing(tmp_path: Path) -> None:
    async with reacting(tmp_path, rules(tmp_path, PING)) as station:
        await station.fire("site/run", user="Reactor")
        await until(lambda: station.counted("reactor_events_guarded") == 1, what="it was seen")
        await station.fire("site/run", user="somebody")
        assert len(await station.jobs_are(1)) == 1


async def test_a_return_is_an_event_too(tmp_path: Path) -> None:
    text = "again: {local.test.echo: [{tgt: cam-1}, {arg: [\"{{ data['outcome'] }} {{ data['fun'] }}\"]}]}\n"
    async with reacting(tmp_path, rules(tmp_path, text, "salt/job/*/ret/cam-9")) as station:
        station.rooms.registry.hello("mqtt", "cam-9", Hello("1" * 16, "0", {}))
        station.rooms.registry.gone("cam-9", Gone("1" * 16))
        await station.rooms.acceptance.submit(JobRequest(tgt="cam-9", fun="test.ping", tgt_type="list"), "ada")
        jobs = await station.jobs_are(2)
        assert jobs[1].arg == ["unreachable test.ping"]


async def test_the_policy_of_the_site_holds_for_reactions(tmp_path: Path) -> None:
    said = rules(tmp_path, "shell: {local.cmd.run: [{tgt: cam-1}, {arg: [id]}]}\n")
    async with reacting(tmp_path, said) as station:
        await station.fire("site/a")
        (made,) = (await station.event("site/a"))["reactions"]
        assert (made["state"], made["jid"]) == ("refused", "")
        assert "reactor may not do this" in made["why"]
        assert await station.jobs() == []
    async with reacting(tmp_path, said, policy="users: {reactor: admin}\n") as station:
        await station.fire("site/b")
        assert [job.fun for job in await station.jobs_are(1)] == ["cmd.run"]


async def test_each_type_is_made_or_says_why_not(tmp_path: Path) -> None:
    text = (
        "r: {runner.nonsense.run: []}\nw: {wheel.nonsense.run: []}\nc: {caller.test.echo: [{args: [hello]}]}\n"
        "m: {cmd.test.ping: [{tgt: 'os:*'}, {expr_form: grain}]}\n"
        "x: {local.test.ping: [{tgt: '( and'}, {tgt_type: compound}]}\n"
    )
    async with reacting(tmp_path, rules(tmp_path, text)) as station:
        await station.fire("site/a")
        made = {each["id"]: each for each in (await station.event("site/a"))["reactions"]}
        assert list(made) == ["c", "m", "x", "r", "w"]
        assert (made["r"]["state"], made["r"]["why"]) == ("failed", "unknown function: runner.nonsense.run")
        assert (made["w"]["state"], made["x"]["state"]) == ("failed", "failed")
        jobs = await station.jobs()
        assert [(job.fun, job.tgt, job.tgt_type, job.arg) for job in jobs] == [
            ("test.echo", "lisbon-station", "list", ["hello"]),
            ("test.ping", "os:*", "grain", []),
        ]


BAD = {
    "a syntax error": ("a: 1\nb: {% if %}\n", 2, "xpected"),
    "an endless loop": (
        "a: 1\n\n{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        3,
        "it was not rendered (too_slow): it was stopped after ",
    ),
    "an endless file in Python": ("#!py\ndef run():\n    while True: pass\n", 3, "too_slow"),
    "output without end": ("a: 1\n{% for n in range(99999) %}\nb: {{ 'x' * 1000 }}{% endfor %}", 3, "renders to more"),
    "100 MB": ("a: 1\nb: {{ 'x' * 100000000 }}\n", 2, "product"),
    "an undefined variable": ("a: 1\n\nb: {{ lacking }}\n", 3, "'lacking' is undefined"),
    "grains": ("a: {{ grains.os }}\n", 1, "'grains' is undefined"),
    "pillar": ("a: {{ pillar.x }}\n", 1, "'pillar' is undefined"),
    "internals": ("a: {{ ''.__class__.__mro__ }}\n", 1, "unsafe"),
    "no YAML": ("a: 1\n b: 2\n", 2, ""),
    "a body that is no list": ("a:\n  local.test.ping:\n    tgt: x\n", 1, "is a list"),
    "Python with a syntax error": ("#!py\ndef run(:\n", 2, "SyntaxError"),
    "Python that raises": ("#!py\ndef run():\n    return data['lacking']\n", 3, "KeyError"),
    "nothing there": (None, 0, "no file is there"),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_file_harms_itself_alone_and_is_named_with_its_line(name: str, tmp_path: Path) -> None:
    text, line, what = BAD[name]
    folder = written(tmp_path / "r", {"good.sls": PING, **({} if text is None else {"bad.sls": text})})
    said = [{"site/*": [str(folder / "bad.sls"), str(folder / "good.sls")]}]
    async with reacting(tmp_path, said, render={"seconds": 4.0, "cpu_seconds": 6}) as station:
        await station.fire("site/a", id="cam-1")
        told = await station.event("site/a")
        (trouble,) = told["troubles"]
        assert (trouble["file"], trouble["line"]) == (str(folder / "bad.sls"), line)
        assert what in trouble["what"]
        assert [each["id"] for each in told["reactions"]] == ["ping"]
        assert len(await station.jobs()) == 1


async def test_files_are_found_by_globs_in_order_and_read_again_when_they_change(tmp_path: Path) -> None:
    folder = written(tmp_path / "r", {"b.sls": "b: {local.test.ping: [{tgt: cam-1}]}\n", "a.sls": "", "no.txt": "x"})
    async with reacting(tmp_path, [{"site/*": str(folder / "*.sls")}]) as station:
        (rule,) = (await station.kept.explain.listed())["rules"]
        assert rule["files"] == [str(folder / "a.sls"), str(folder / "b.sls")]
        await station.fire("site/a")
        assert [each["id"] for each in (await station.event("site/a"))["reactions"]] == ["b"]
        written(folder, {"a.sls": "a: {local.test.ping: [{tgt: cam-1}]}\n"})
        await station.fire("site/b")
        assert [each["id"] for each in (await station.event("site/b"))["reactions"]] == ["a", "b"]


async def test_a_file_whose_name_is_no_text_harms_itself_alone(tmp_path: Path) -> None:
    folder = written(tmp_path / "r", {"good.sls": PING})
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.sls")).write_text(PING, encoding="utf-8")
    async with reacting(tmp_path, [{"site/*": str(folder / "*.sls")}]) as station:
        await station.fire("site/a")
        told = await station.event("site/a")
        assert [(each["file"], each["what"]) for each in told["troubles"]] == [
            (f"{folder}/\\xff.sls", "the name of a file is UTF-8 text")
        ]
        assert [each["id"] for each in told["reactions"]] == ["ping"]


async def test_a_file_in_python_says_what_its_run_returns(tmp_path: Path) -> None:
    text = "#!py\ndef run():\n    return {'a': {'local.test.echo': [{'tgt': data['id']}, {'args': {'text': tag}}]}}\n"
    said = [{"site/*": [str(written(tmp_path, {"r/a.sls": text}) / "r" / "a.sls"), "salt://a.sls"]}]
    roots = {"base": [str(tmp_path / "r")]}
    async with reacting(tmp_path, said, file_roots=roots) as station:
        await station.fire("site/a", id="cam-1")
        (job,) = await station.jobs_are(1)
        assert (job.tgt, job.kwarg) == ("cam-1", {"text": "site/a"})
        (trouble,) = (await station.event("site/a"))["troubles"]
        assert (trouble["file"], trouble["line"]) == ("salt://a.sls", 1)


async def test_a_file_in_python_that_others_may_write_is_not_run_and_harms_itself_alone(tmp_path: Path) -> None:
    text = "#!py \ndef run():\n    return {'%s': {'local.test.ping': [{'tgt': 'cam-1'}]}}\n"
    folder = written(tmp_path, {"r/a.sls": text % "a", "r/b.sls": text % "b", "r/c.sls": PING}) / "r"
    (folder / "c.sls").chmod(0o666)
    async with reacting(tmp_path, [{"site/*": str(folder / "*.sls")}]) as station:
        await station.fire("site/well")
        assert len((await station.event("site/well"))["reactions"]) == 3
        (folder / "a.sls").chmod(0o664)
        await station.fire("site/file")
        told = await station.event("site/file")
        assert [each["id"] for each in told["reactions"]] == ["b", "ping"]
        (trouble,) = told["troubles"]
        assert trouble["file"] == str(folder / "a.sls")
        assert "mode 0664" in trouble["what"]
        assert f"chmod go-w {folder / 'a.sls'}" in trouble["what"]
        folder.chmod(0o777)
        await station.fire("site/folder")
        told = await station.event("site/folder")
        assert [each["id"] for each in told["reactions"]] == ["ping"]
        assert f"others may write {folder} (mode 0777)" in told["troubles"][0]["what"]


async def test_a_map_in_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    folder = written(tmp_path / "r", {"a.sls": PING})
    path = tmp_path / "map.yaml"
    async with reacting(tmp_path, str(path)) as station:
        assert "cannot be read" in (await station.kept.explain.checked())["skipped"][0]
        path.write_text(f"- site/one: {folder / 'a.sls'}\n")
        await station.fire("site/one")
        await station.event("site/one")
        path.write_text(f"reactor:\n  - site/other: [{folder / 'a.sls'}]\n")
        await station.fire("site/one/again")
        await station.fire("site/other")
        await station.event("site/other")
        assert len(await station.jobs()) == 2


async def test_files_come_from_the_station_s_own_roots_by_environment(tmp_path: Path) -> None:
    roots = {
        env: [str(written(tmp_path / env, {"r/a.sls": f"{env}: {{local.test.ping: [{{tgt: x}}]}}\n"}))]
        for env in ("base", "dev")
    }
    said = [{"site/*": ["salt://r/a.sls", "salt://r/a.sls?saltenv=dev", "salt://r/*.sls", "salt://r/none.sls"]}]
    async with reacting(tmp_path, said, file_roots=roots) as station:
        await station.fire("site/a")
        told = await station.event("site/a")
        assert [each["id"] for each in told["reactions"]] == ["base", "dev"]
        assert [each["file"] for each in told["troubles"]] == ["salt://r/*.sls", "salt://r/none.sls"]


async def test_data_without_data_is_read_one_level_deeper_too(tmp_path: Path) -> None:
    args = "[\"{{ data['data']['id'] }}\", \"{{ data.data.id }}\"]"
    text = f"a: {{local.test.echo: [{{tgt: \"{{{{ data['id'] }}}}\"}}, {{arg: {args}}}]}}\n"
    async with reacting(tmp_path, rules(tmp_path, text, "*/a")) as station:
        await station.fire("salt/beacon/cam-1/disk/a", id="cam-1")
        (job,) = await station.jobs_are(1)
        assert (job.tgt, job.arg) == ("cam-1", ["cam-1", "cam-1"])
        await station.fire("site/a", id="cam-1", data={"id": "inner"})
        assert (await station.jobs_are(2))[1].arg == ["inner", "inner"]
        await station.fire("start/a", id="cam-1", data="Minion cam-1 started")
        assert "'str object' has no attribute 'id'" in (await station.event("start/a"))["troubles"][0]["what"]


async def test_what_a_beacon_says_is_read_as_salts_pages_show_it_whatever_its_keys(tmp_path: Path) -> None:
    """``data['data']['id']`` and ``data['data']['data']``; and flat, as Salt's master has it."""
    paths = ("data['data']['id']", "data.data.data.mount", "data['data'].get('data', {}).get('mount')")
    shown = ", ".join(f'"{{{{ {path} }}}}"' for path in paths)
    said = "{% set d = data['data']['data'] %}{{ d|json }}"
    jinja = f"a: {{local.test.echo: [{{tgt: x}}, {{arg: [{shown}]}}, {{kwarg: {{all: {said}}}}}]}}\n"
    python = """#!py
def run():
    inner = data["data"]
    arg = [inner["id"], inner["data"]["mount"], inner.get("data").get("mount")]
    return {"b": {"local.test.echo": [{"tgt": "x"}, {"arg": arg}, {"kwarg": {"all": inner["data"]}}]}}
"""
    written(tmp_path, {"a.sls": jinja, "b.sls": python})
    async with reacting(tmp_path, [{"*/x/": [str(tmp_path / "a.sls"), str(tmp_path / "b.sls")]}]) as station:
        await station.fire("salt/beacon/cam-1/x/", id="cam-1", mount="/")
        flat = await station.jobs_are(2)
        assert [job.arg for job in flat] == [["cam-1", "/", "/"]] * 2
        assert [(job.kwarg["all"]["id"], job.kwarg["all"]["mount"]) for job in flat] == [("cam-1", "/")] * 2
        await station.fire("salt/beacon/cam-2/x/", id="cam-2", data={"mount": "/media"})
        own = (await station.jobs_are(4))[2:]
        assert [job.arg for job in own] == [["cam-2", "/media", "/media"]] * 2
        assert [job.kwarg["all"] for job in own] == [{"mount": "/media"}] * 2, "what it says itself, and no more"
        await station.fire("salt/beacon/cam-3/x/", id="cam-3", data="text")
        assert {each["level"] for each in (await station.event("salt/beacon/cam-3/x/"))["troubles"]} == {"error"}
        # What an operator or a device fired has no other shape: an id in there is theirs.
        await station.fire("site/x/", id="cam-4", data={"mount": "/"})
        assert {each["level"] for each in (await station.event("site/x/"))["troubles"]} == {"error"}


@pytest.mark.parametrize(
    "text", ["{% set x = data.data.id %}\n", "#!py\ndef run():\n    data['data']['id']\n    return {}\n"]
)
async def test_that_data_was_read_one_level_deeper_is_told_and_can_be_switched_off(text: str, tmp_path: Path) -> None:
    said = rules(tmp_path, text, "*")
    path = said[0]["*"]
    async with reacting(tmp_path, said) as station:
        await station.fire("site/a", id="cam-1")
        (told,) = (await station.event("site/a"))["troubles"]
        assert (told["file"], told["level"]) == (path, "note")
        assert "data['data'] was read as the data itself" in told["what"]
        assert station.rooms.metrics.refusals["reactor", "odd_file"] == 0
        # Salt's master has its own events in one shape alone.
        await station.fire("salt/auth", id="cam-1")
        assert {each["level"] for each in (await station.event("salt/auth"))["troubles"]} == {"error"}
    async with reacting(tmp_path, said, reactions={"nested_data": False}) as station:
        await station.fire("site/b", id="cam-1")
        (trouble,) = (await station.event("site/b"))["troubles"]
        assert trouble["level"] == "error"


async def test_one_wrong_id_harms_the_whole_event_where_that_is_wanted_as_in_salt(tmp_path: Path) -> None:
    said = rules(tmp_path, f"wrong: {{local.test.ping: {{tgt: x}}}}\n{PING}")
    async with reacting(tmp_path, said, reactions={"wrong_id": "event"}) as station:
        await station.fire("site/a")
        told = await station.event("site/a")
        assert told["reactions"] == []
        assert "reactions.wrong_id" in told["troubles"][-1]["what"]


@pytest.mark.parametrize(("full", "dropped"), [("newest", ["site/3", "site/4"]), ("oldest", ["site/1", "site/2"])])
async def test_when_too_many_wait_some_give_way_and_are_counted(
    full: str, dropped: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = {"waiting": 2, "at_once": 1, "when_full": full}
    async with reacting(tmp_path, rules(tmp_path, PING), reactions=bounds) as station:
        go, planner = asyncio.Event(), station.kept.reactor._planner
        plain = planner.plan

        async def late(*given: Any, **more: Any) -> Plan:
            await go.wait()
            return await plain(*given, **more)

        monkeypatch.setattr(planner, "plan", late)
        await station.fire("site/0")
        await until(lambda: station.kept.reactor.gauges()["reactor_events_under_way"] == 1, what="the first is at work")
        # Nobody renders, and matching goes on.
        for number in range(1, 5):
            await station.fire(f"site/{number}")
        await until(lambda: station.rooms.metrics.refusals["reactor", "queue_full"] == 2, what="two gave way")
        go.set()
        for tag in dropped:
            assert "gave way" in (await station.event(tag, "dropped"))["why"]
        assert len(await station.jobs_are(3)) == 3
        assert (await station.kept.explain.listed())["reactions"] == {"issued": 3, "events_dropped": 2}


async def test_a_dry_run_says_what_would_happen_and_does_nothing(tmp_path: Path) -> None:
    async with reacting(tmp_path, rules(tmp_path, ECHO)) as station:
        told = await station.kept.explain.tested("site/door", {"id": "cam-1", "door": "north"})
        assert (told["rules"], told["troubles"]) == (["site/*"], [])
        (reaction,) = told["reactions"]
        assert (reaction["said"], reaction["tgt"]) == ("local.test.echo", "cam-1")
        assert reaction["kwarg"] == {"text": "site/door north"}
        assert told["files"][0]["rendered"]["say"]["local.test.echo"][0] == {"tgt": "cam-1"}
        assert (await station.kept.explain.tested("other", {}))["rules"] == []
        assert await station.jobs() == []


async def test_a_check_names_the_line_with_and_without_an_event(tmp_path: Path) -> None:
    folder = written(
        tmp_path / "r",
        {
            "syntax.sls": "a: 1\n{% if %}\n",
            "plain.sls": "ok:\n  local.test.ping: []\n",
            "late.sls": "a: {{ data.x.y }}\n",
        },
    )
    said = [{"site/*": str(folder / "*.sls")}, "nonsense"]

    async def found(station: Reacting) -> list[tuple[str, int]]:
        (rule,) = (await station.kept.explain.checked())["rules"]
        return [(Path(each["file"]).name, each["line"]) for each in rule["troubles"]]

    async with reacting(tmp_path, said) as station:
        assert await found(station) == [("plain.sls", 1), ("syntax.sls", 2)]
        assert len((await station.kept.explain.checked())["skipped"]) == 1
        await station.fire("site/a", x=1)
        assert await found(station) == [("late.sls", 1), ("plain.sls", 1), ("syntax.sls", 2)]
