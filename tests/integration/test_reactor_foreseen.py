"""What an event would have refused, ``reactor check`` and ``reactor test`` say before it, with file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device_agent.trust.policy import SitePolicy
from gateway.devices.policy import Operator
from gateway.reactor.replay import Wanted
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
    "a job of a runner": (
        "a:\n  runner.salt.execute:\n    - args: {tgt: cam-1, fun: cmd.run, arg: [id]}\n",
        2,
        "cmd.run is for admins",
    ),
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
        if name not in ("arguments of a device", "a job of a runner"):
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


BY_EVENT = """\
{% if data['id'] %}
answer:
  local.test.arg:
  - tgt: {{ data['id'] }}
  # - ret: mail
  - ret: syslog, smtp
  - kwarg:
      - ret: another
again:
    local.test.ping:
        - tgt: cam-1
        - "ret": ["syslog"]
other:
    runner.test.arg:
        - ret: none_of_a_job
{% endif %}
"""


async def test_a_check_names_a_returner_of_a_file_that_no_event_has_rendered(tmp_path: Path) -> None:
    async with reacting(tmp_path, rule(tmp_path, BY_EVENT)) as station:
        found = [each for each in await checked(station) if each["level"] == "warning"]
        assert [(each["line"], each["text"]) for each in found] == [(6, "- ret: syslog, smtp")]
        assert "not here: syslog, smtp; here are none; try: configure smtp (docs/returners.md)" in found[0]["what"]


async def test_a_reaction_whose_target_matches_no_device_says_so(tmp_path: Path) -> None:
    text = "a:\n  local.test.ping:\n    - tgt: {{ data['id'] }}\n"
    async with reacting(tmp_path, rule(tmp_path, text)) as station:
        for name, job in (("cam-9", "closed"), ("cam-1", "open")):
            await station.fire(f"site/{name}", id=name)
            (made,) = (await station.event(f"site/{name}"))["reactions"]
            assert (made["state"], made["job"], made["outcomes"]) == ("issued", job, [])


async def test_a_reaction_runs_where_there_is_no_returner_at_all(tmp_path: Path) -> None:
    async with reacting(tmp_path, rule(tmp_path, RETURNED)) as station:
        await station.fire("site/a")
        assert len(await station.jobs_are(1)) == 1


ADMIN = "users: {reactor: admin}\n"
PING = "a:\n  local.test.ping: [{tgt: cam-1}]\n"
RESTART = "a:\n  local.service.restart:\n    - tgt: cam-1\n    - args: [{name: cron}]\n"
SHELL = "a:\n  local.cmd.run:\n    - tgt: cam-1\n    - arg: [id]\n"
BRANCH = """\
{% if data.get('on') %}
a:
  local.cmd.run:
    - tgt: cam-1
    - arg: [/usr/bin/site]
{% endif %}
"""


@pytest.mark.parametrize(
    ("text", "policy", "line", "what"),
    [
        (RESTART, SitePolicy(), 2, "service.restart is not granted to this site"),
        (SHELL, SitePolicy(fun=("looks", "changes")), 2, "cmd.run is not granted to this site"),
        (SHELL, SitePolicy(fun=("cmd.*",), arg={"cmd.*": ("/usr/bin/site",)}), 2, "cmd.run is not granted"),
        (BRANCH, SitePolicy(fun=("looks", "changes")), 3, "cmd.run is not granted to this site"),
        (PING, SitePolicy(ttl=300), 2, "a job of this site may not live so long"),
    ],
)
async def test_what_the_certificate_of_the_site_does_not_grant_is_named_before_the_event(
    text: str, policy: SitePolicy, line: int, what: str, tmp_path: Path
) -> None:
    async with reacting(tmp_path, rule(tmp_path, text), policy=ADMIN, grants=policy) as station:
        (trouble,) = await checked(station)
        assert (trouble["line"], trouble["level"]) == (line, "error")
        assert what in trouble["what"], trouble
        assert [each["what"] for each in await dry_run(station, "site/a", on=True)] == [trouble["what"]]
        await station.fire("site/a", on=True)
        (made,) = (await station.event("site/a"))["reactions"]
        assert made["state"] == "refused"
        assert what in made["why"]


async def test_what_the_certificate_of_the_site_grants_is_no_trouble(tmp_path: Path) -> None:
    granted = SitePolicy(fun=("looks", "changes", "cmd.*"), arg={"cmd.*": ("/usr/bin/site",)})
    for text in (PING, RESTART, BRANCH):
        async with reacting(tmp_path, rule(tmp_path, text), policy=ADMIN, grants=granted) as station:
            assert await checked(station) == [], "the arguments that a grant limits are not known in a branch"
            assert await dry_run(station, "site/a", on=True) == []


async def test_a_gateway_that_has_not_joined_a_fleet_says_so_before_the_event(tmp_path: Path) -> None:
    for text in (PING, f"{{% if data.on %}}\n{PING}{{% endif %}}\n"):
        async with reacting(tmp_path, rule(tmp_path, text), joined=False) as station:
            (trouble,) = await checked(station)
            assert (trouble["file"], trouble["level"]) == (str(tmp_path / "a.sls"), "error")
            assert trouble["text"] == "local.test.ping: [{tgt: cam-1}]"
            assert "belongs to no fleet yet" in trouble["what"]
            await station.fire("site/a", on=True)
            (made,) = (await station.event("site/a"))["reactions"]
            assert (made["state"], "belongs to no fleet" in made["why"]) == ("refused", True)


STATION = (
    "a:\n  caller.service.restart:\n    - args: [cron]\nb:\n  local.ps.kill_pid: [{tgt: lisbon-station}, {arg: [1]}]\n"
)


async def test_what_the_settings_of_the_station_do_not_grant_is_named_before_the_event(tmp_path: Path) -> None:
    async with reacting(tmp_path, rule(tmp_path, untaken(STATION))) as station:
        (trouble,) = await checked(station)
        assert (trouble["line"], trouble["level"]) == (3, "error")
        assert "service.restart on a station takes a grant in its settings: station.grants" in trouble["what"]
        found = await dry_run(station, "site/a", on=True)
        assert [(each["line"], "station.grants" in each["what"]) for each in found] == [(3, True), (6, True)]
    async with reacting(tmp_path, rule(tmp_path, STATION), station={"grants": ["looks", "changes"]}) as station:
        assert await checked(station) == []


def untaken(call: str) -> str:
    return f"{{% if data.get('on') %}}\n{call}{{% endif %}}\n"


async def test_each_form_of_a_call_in_a_branch_that_no_event_has_taken_is_named(tmp_path: Path) -> None:
    text = (
        "a:\n  local:\n    - state.apply\n    - tgt: cam-1\nb: {runner: [cloud.destroy]}\nc: wheel.key.acept\n"
        "d:\n  cmd.run:\n    - tgt: cam-1\n"
    )
    async with reacting(tmp_path, rule(tmp_path, untaken(text))) as station:
        found = [(each["line"], each["what"]) for each in await checked(station) if each["level"] == "error"]
        words = ["state.apply is for admins", "runner.cloud.destroy", "wheel.key.acept", "write local.cmd.run"]
        assert [line for line, _ in found] == [4, 6, 7, 9]
        assert all(word in what for word, (_, what) in zip(words, found, strict=True)), found
    # Where the event takes the branch, each is named once, and by the same line.
    async with reacting(tmp_path, rule(tmp_path, text)) as station:
        found = [(each["line"], each["what"]) for each in await checked(station) if each["level"] == "error"]
        assert sorted(line for line, _ in found) == [3, 5, 6, 7]


RULES = """\
users: {reactor: operator, other: operator}
rules:
  operator:
  - functions: [looks, 'cmd.*', 'runner.jobs.*']
    users: [reactor]
    targets: ['door-*']
    arguments: {'cmd.*': [{positional: [date]}]}
  - {users: [reactor], functions: ['runner.queue.*'], hold: true}
  - {functions: ['runner.test.*'], arguments: {'runner.test.*': [{positional: [x]}]}, hours: ['mon 08:00-08:01']}
  - {users: [other], functions: [changes, 'runner.*']}
"""


async def test_a_function_that_no_rule_can_let_through_is_refused_by_its_name(tmp_path: Path) -> None:
    refused = {
        "local.service.restart": "no rule grants service.restart",
        "local.file.write": "no rule grants file.write",
        "runner.delay.runner": "no rule grants runner.delay.runner",
        "runner.queue.insert": "cannot wait for a release",
        "wheel.key.accept": "may not decide on keys",
    }
    # Their arguments, their target and the hour decide: that is not known before an event.
    open_still = ["runner.jobs.active", "local.test.ping", "local.cmd.run", "local.file.find", "runner.test.arg"]
    text = "".join(f"a{at}:\n  {fun}: [{{tgt: cam-1}}]\n" for at, fun in enumerate([*refused, *open_still]))
    async with reacting(tmp_path, rule(tmp_path, untaken(text)), policy=RULES) as station:
        found = await checked(station)
        assert [(each["line"], each["level"]) for each in found] == [
            (3 + 2 * at, "error") for at in range(len(refused))
        ]
        assert all(words in each["what"] for words, each in zip(refused.values(), found, strict=True)), found
    viewer = RULES.replace("reactor: operator", "reactor: viewer")
    async with reacting(tmp_path, rule(tmp_path, untaken(PING)), policy=viewer) as station:
        (trouble,) = await checked(station)
        assert "reactor may not run jobs" in trouble["what"]


async def test_an_event_that_a_runner_may_not_fire_is_named_before_the_event(tmp_path: Path) -> None:
    policy = (
        "users: {reactor: operator}\n"
        "rules:\n  operator:\n  - functions: [event.send]\n"
        "    arguments: {event.send: [{positional: ['site/b/*', '*']}]}\n"
    )
    text = "a:\n  runner.event.send: [{tag: site/b/c}]\nb:\n  runner.event.send: [{tag: site/c/d}]\n"
    async with reacting(tmp_path, rule(tmp_path, text), policy=policy) as station:
        (trouble,) = await checked(station)
        assert (trouble["line"], trouble["level"]) == (4, "error")
        assert "event.send is not granted with these arguments" in trouble["what"]
        assert await dry_run(station, "site/a") == [trouble]
        await station.fire("site/a")
        states = {each["id"]: each["state"] for each in (await station.event("site/a"))["reactions"]}
        assert states == {"a": "issued", "b": "issued"}, "the second one fails in the call"
    own = rule(tmp_path, "a:\n  runner.event.send: [{tag: salt/key}]\n")
    async with reacting(tmp_path, own) as station:
        (trouble,) = await checked(station)
        assert "belongs to the station itself" in trouble["what"]


async def test_notes_about_a_file_are_shown_by_the_check(tmp_path: Path) -> None:
    text = "a:\n  local.test.arg:\n    - tgt: 00427\n    - args:\n      - id: 00427\n"
    async with reacting(tmp_path, rule(tmp_path, text)) as station:
        (note,) = await checked(station)
        assert (note["line"], note["level"]) == (5, "note")
        assert "00427 is read as a number" in note["what"]


async def test_a_replay_names_what_would_be_refused_to_the_reactor_now(tmp_path: Path) -> None:
    async with reacting(tmp_path, rule(tmp_path, START)) as station:
        await station.fire("site/a", id="cam-1")
        await station.event("site/a")
        now = station.clock.wall()
        for given, file in ((None, str(tmp_path / "a.sls")), (f"# a file that is sent along\n{START}", "given.sls")):
            wanted = Wanted(since=now - 60.0, until=now + 60.0, tag="site/*", given=given)
            page = await station.kept.replay.page(wanted, Operator("anna", frozenset({"admin"})))
            (event,) = page["events"]
            assert [each["said"] for each in event["reactions"]] == ["local.state.apply"]
            (trouble,) = event["troubles"]
            assert (trouble["file"], trouble["line"], trouble["level"]) == (file, 2 if given is None else 3, "error")
            assert "reactor may not do this: state.apply is for admins" in trouble["what"]
        assert station.counted("jobs_denied") == 1, "only the event itself was refused"
