"""Reactor files, schedules and code of the site's own: each runs here as it is, needs a grant, or needs a change."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from types import ModuleType

import pytest

import gateway.runners
import gateway.wheels
from gateway.calls.functions import Function
from gateway.salt.import_box import Asked, Looked, look
from gateway.salt.import_findings import Finding, holds_secret
from gateway.salt.import_functions import ROLES
from tests.peers.salt_box import SaltBox

RUNS, GRANT, CHANGE = "runs as is", "needs a grant", "needs a change"


@pytest.fixture
def box(tmp_path: Path) -> SaltBox:
    made = SaltBox(tmp_path)
    made.write("etc/salt/master", f"id: site-a\nfile_roots: {{base: [{tmp_path}/srv/salt]}}\n")
    return made


def looked_at(box: SaltBox, **files: str) -> Looked:
    """What the box comes to with these pieces of the master's settings."""
    for name, text in files.items():
        box.write(f"etc/salt/master.d/{name}.conf", text.replace("ROOT", str(box.root)))
    return look(Asked(box.salt))


def verdict(looked: Looked, what: str) -> Finding:
    (finding,) = [each for each in looked.findings if each.what == what]
    return finding


def test_a_tag_a_path_and_a_name_hold_no_secret(box: SaltBox) -> None:
    rules = [
        {"salt/beacon/*/inotify//etc/passwd": ["/srv/reactor/revert.sls"]},
        {"site/token/*": ["salt://a@b/secret.sls"]},
        {"token": "/srv/passwd.sls"},
        {"salt/minion/*/start": ["/srv/reactor/start.sls"]},
    ]
    looked = looked_at(
        box,
        a=f"reactor: {rules}\nnodegroups: {{token-readers: 'cam-*', secret: [cam-1]}}\n"
        "schedule: {token: {function: test.ping, hours: 1}}\nengines: [{webhook: {port: 1}}]\n",
    )
    assert looked.settings["reactor"] == rules
    assert verdict(looked, "reactor").verdict == "carried"
    assert looked.settings["nodegroups"] == {"token-readers": "cam-*", "secret": ["cam-1"]}
    assert "token" in looked.settings["schedule"]


@pytest.mark.parametrize(
    ("value", "is_secret"),
    [
        ({"processes": {"passwd-daemon": "running"}}, False),
        ({"files": {"/etc/passwd": "modify"}}, False),
        ({"services": {"token": "x"}}, False),
        ({"mine_functions": {"token.info": ["x"]}}, False),
        ({"a/token": "x", "token*": "x", "the token": "x"}, False),
        ({"processes": {"x": {"password": "hunter2"}}}, True),
        ({"token": "x"}, True),
        ({"url": "https://kim:hunter2@example.net/"}, True),
    ],
)
def test_only_a_setting_is_a_secret_by_its_name(value: object, is_secret: bool) -> None:
    assert holds_secret(value) is is_secret


@pytest.mark.parametrize(
    ("text", "expected", "line", "words"),
    [
        ("a:\n  local.test.ping:\n    - tgt: {{ data['id'] }}\n", RUNS, "", ""),
        ("a:\n  runner.manage.up: []\n  caller.test.ping: []\n", RUNS, "", ""),
        ("{% set up = salt['manage.present']() %}\na:\n  local.test.ping: [{tgt: x}]\n", RUNS, "", ""),
        ("a:\n  runner.state.orchestrate:\n    - mods: x\n", RUNS, "", "orchestrate_show_sls"),
        ("a:\n  local.cmd.run:\n    - tgt: x\n", GRANT, ":2", "the site needs --grant 'cmd.*'"),
        (
            "a:\n  local.service.restart:\n    - tgt: x\n",
            GRANT,
            ":2",
            "--grant changes (docs/sites.md); with some arguments it is of the class shell",
        ),
        ("a:\n  caller.service.restart: []\n", GRANT, ":2", "station.grants"),
        ("a:\n  wheel.key.accept:\n    - match: x\n", GRANT, ":2", "the role approver"),
        ("a:\n  runner.cache.pillar: []\n", GRANT, ":2", "the role admin"),
        ("# x\nhs:\n  local.state.apply:\n    - tgt: x\n", CHANGE, ":3", "no state system"),
        (
            "a:\n  local.test.ping: [{tgt: x}]\nb:\n  cmd.state.sls:\n    - tgt: x\n",
            CHANGE,
            ":4",
            "no function state.sls",
        ),
        ("a:\n  cmd.run:\n    - tgt: x\n", CHANGE, ":2", "write local.cmd.run"),
        ("a:\n  runner.cloud.destroy: []\n", CHANGE, ":2", "no runner cloud.destroy"),
        ("a:\n  runner.state.event: []\n", CHANGE, ":2", "is refused here"),
        ("a:\n  wheel.key.gen: []\n", CHANGE, ":2", "is refused here"),
        ("a:\n  local:\n    - state.apply\n    - tgt: x\n", CHANGE, ":3", "no function state.apply"),
        ("{% if grains['os'] %}\n{% endif %}\n{{ pillar.x }}: {}\n", CHANGE, ":1", "grains is not there"),
        ("a: {}\nb: {{ salt['cmd.run']('x') }}\n", CHANGE, ":2", "salt['cmd.run'] cannot be called"),
        ("a: {}\n{% if %}\n", CHANGE, ":2", "its Jinja cannot be read"),
        ("a: {{ data.x | no_such_filter }}\n", CHANGE, ":1", "its Jinja cannot be read"),
        ("a:\n  local.{{ data['fun'] }}:\n    - tgt: x\n", RUNS, "", "at the event alone"),
        ("#!py\ndef run():\n    return {'a': {'local.state.apply': []}}\n", CHANGE, ":3", "no function state.apply"),
        ("#!py\ndef run(:\n", CHANGE, ":2", "cannot read its Python"),
    ],
)
def test_a_reactor_file_has_a_verdict_and_the_line(
    text: str, expected: str, line: str, words: str, box: SaltBox
) -> None:
    file = box.write("srv/reactor/x.sls", text)
    found = verdict(looked_at(box, a="reactor: [{'site/*': ROOT/srv/reactor/*.sls}]\n"), "reactor x.sls")
    assert (found.verdict, found.where) == (expected, f"{file}{line}")
    assert words in found.words


def test_each_reactor_file_has_one_verdict_and_what_is_not_there_is_named_by_its_rule(box: SaltBox) -> None:
    box.write("srv/salt/r/a.sls", "a:\n  local.test.ping:\n    - tgt: x\n")
    looked = looked_at(
        box,
        a="reactor:\n  - 'a/*': [salt://r/a.sls, ROOT/srv/salt/r/a.sls]\n  - 'b/*': salt://r/gone.sls\n"
        "  - 'c/*': x.sls\n  - 5\n  - 'd/*': salt://../../etc/salt/master\n",
    )
    assert verdict(looked, "reactor a.sls").verdict == RUNS
    gone = verdict(looked, "reactor salt://r/gone.sls")
    assert (gone.verdict, gone.where) == (CHANGE, f"{box.salt}/master.d/a.conf:3")
    assert "write it as /PATH" in verdict(looked, "reactor x.sls").words
    assert "entry 4" in verdict(looked, "reactor rule").words
    assert verdict(looked, "reactor salt://../../etc/salt/master").verdict == CHANGE


@pytest.mark.parametrize(
    ("entry", "expected", "words"),
    [
        ("{function: manage.up, hours: 1}", RUNS, ""),
        ("{function: disk.percent, hours: 1}", RUNS, ""),
        ("{function: runner.manage.up, hours: 1}", RUNS, ""),
        ("{function: manage.up, hours: 1, returner: mysql}", RUNS, "without returner"),
        ("{function: test.ping, target: '*', hours: 1}", RUNS, ""),
        ("{function: cmd.run, job_args: [ls], hours: 1}", GRANT, "station.grants"),
        ("{function: cmd.run, target: '*', job_args: [ls], hours: 1}", GRANT, "name it for schedule"),
        ("{function: wheel.key.accept, hours: 1}", GRANT, "approver"),
        ("{function: state.apply, hours: 1}", CHANGE, "no state system"),
        ("{function: runner.cloud.destroy, hours: 1}", CHANGE, "no runner cloud.destroy"),
        ("{hours: 1}", CHANGE, "no function"),
    ],
)
def test_an_entry_of_a_schedule_has_a_verdict(entry: str, expected: str, words: str, box: SaltBox) -> None:
    looked = looked_at(box, a=f"schedule:\n  x: {entry}\n")
    found = verdict(looked, "schedule.x")
    assert found.verdict == expected
    assert words in found.words
    assert ("schedule" in looked.settings) is (expected != CHANGE)


def test_a_schedule_entry_that_needs_a_change_is_named_by_the_line_of_its_function(box: SaltBox) -> None:
    looked = looked_at(box, a="schedule:\n  x:\n    hours: 1\n    function: state.apply\n")
    assert verdict(looked, "schedule.x").where == f"{box.salt}/master.d/a.conf:4"


ENGINE = "import salt.utils.event\nfrom salt.utils import json\n\n\ndef start():\n    "


@pytest.mark.parametrize(
    ("path", "text", "expected", "line", "words"),
    [
        ("_modules/door.py", "async def status(host):\n    return 1\n", GRANT, ":1", "--grant 'door.*'"),
        ("_modules/door.py", '__reach__ = {"s": "looks"}\n\n\nasync def s(host):\n    return 1\n', RUNS, "", "sign"),
        (
            "_modules/door.py",
            "x = 1\n\n\ndef status():\n    return __salt__['a.b']()\n",
            CHANGE,
            ":4",
            "line 5: __salt__",
        ),
        ("_modules/file.py", "async def status(host):\n    return 1\n", CHANGE, ":1", "keeps its name"),
        ("_modules/door.py", "import requests_of_nobody\n\n\nasync def s(host): ...\n", CHANGE, ":1", "not installed"),
        ("_modules/door.py", "print 'x'\n", CHANGE, ":1", "cannot read its Python: Missing parentheses"),
        ("_grains/lens.py", "def lens():\n    return {}\n", CHANGE, ":1", "async def lens(host)"),
        ("_beacons/b.py", "async def validate(config): ...\n", CHANGE, ":1", "async def beacon(host, config)"),
        ("_runners/lights.py", "async def switch(running): ...\n", GRANT, ":1", "the role admin"),
        ("_engines/e.py", f"{ENGINE}pass\n", RUNS, "", "engines_dirs"),
        ("_engines/e.py", f"{ENGINE}__salt__['event.send']('a')\n    __runners__['manage.up']()\n", RUNS, "", ""),
        ("_engines/e.py", f"{ENGINE}__salt__['cmd.run']('x')\n", GRANT, ":6", "station.grants"),
        ("_engines/e.py", f"{ENGINE}__salt__['state.apply']()\n", CHANGE, ":6", "no state system"),
        ("_engines/e.py", f"{ENGINE}__pillar__\n", CHANGE, ":6", "__pillar__ is not there"),
        (
            "_engines/e.py",
            "import salt.client\n\n\ndef start(): ...\n",
            CHANGE,
            ":1",
            "salt.client of Salt is not here",
        ),
        ("_engines/e.py", "def begin(): ...\n", CHANGE, ":1", "no def start"),
        ("_states/s.py", "x = 1\n", "not carried", "", "no state system"),
        ("_returners/r.py", "x = 1\n", "not carried", "", "docs/returners.md"),
        ("_sdb/r.py", "x = 1\n", "not carried", "", "nothing here"),
    ],
)
def test_code_of_the_sites_own_has_a_verdict_and_the_line(
    path: str, text: str, expected: str, line: str, words: str, box: SaltBox
) -> None:
    file = box.write(f"srv/salt/{path}", text)
    found = verdict(looked_at(box), path)
    assert (found.verdict, found.where) == (expected, f"{file}{line}")
    assert words in found.words


def test_code_in_folders_that_settings_name_is_looked_at_and_settings_may_call_it(box: SaltBox) -> None:
    box.write("opt/engines/logstash.py", "def start(): ...\n")
    box.write("opt/modules/door.py", "async def status(host): ...\n")
    box.write("srv/salt/_runners/lights.py", "async def switch(running): ...\n")
    looked = looked_at(
        box,
        a="engines_dirs: [ROOT/opt/engines]\nmodule_dirs: [ROOT/opt/modules]\nengines: [logstash]\n"
        "schedule:\n  a: {function: door.status, hours: 1}\n  b: {function: lights.switch, hours: 1}\n",
    )
    assert verdict(looked, "_engines/logstash.py").verdict == RUNS
    assert verdict(looked, "_modules/door.py").verdict == GRANT
    assert verdict(looked, "engines.logstash").verdict == "carried"
    assert looked.settings["engines_dirs"] == [f"{box.root}/opt/engines"]
    assert {verdict(looked, f"schedule.{name}").verdict for name in "ab"} == {GRANT}


def test_an_engine_of_salts_own_is_not_taken_for_one_of_the_site(box: SaltBox) -> None:
    looked = looked_at(box, a="engines:\n  - logstash: {host: a}\n  - slack_bolt\n  - redis\njinja_trim_blocks: True\n")
    assert {verdict(looked, f"engines.{name}").verdict for name in ("logstash", "slack_bolt", "redis")} == {
        "not carried"
    }
    assert verdict(looked, "engines.slack_bolt").where.endswith("a.conf:3")
    trim = verdict(looked, "jinja_trim_blocks")
    assert (trim.verdict, "Jinja" in trim.words) == ("not carried", True)


def test_functions_of_the_mine_that_are_not_here_are_named(box: SaltBox) -> None:
    functions = "mine_functions: {status.uptime: [], x509.get: [], ip: [{mine_function: network.ip_addrs}]}\n"
    box.write("etc/salt/proxy", functions)
    found = verdict(looked_at(box), "mine_functions")
    assert (found.verdict, "no function x509.get (" in found.words) == (CHANGE, True)
    box.write("etc/salt/proxy", functions.replace("x509.get: [], ", ""))
    assert verdict(looked_at(box), "mine_functions").verdict == "translated"


def functions_in(package: ModuleType) -> list[Function]:
    """Every function that the modules of a package register, without a station around them."""
    found: list[Function] = []
    for each in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{each.name}")
        found += module.functions() if hasattr(module, "functions") else []
        for member in vars(module).values():
            if inspect.isclass(member) and member.__module__ == module.__name__ and hasattr(member, "functions"):
                found += object.__new__(member).functions()
    return found


@pytest.mark.parametrize(("kind", "package"), [("runner", gateway.runners), ("wheel", gateway.wheels)])
def test_the_table_of_calls_is_what_a_station_has(kind: str, package: ModuleType) -> None:
    roles = {"view": "operator", "run": "operator", "keys": "approver", "admin": "admin"}
    registered = {each.name: "refused" if each.refused else roles[each.need] for each in functions_in(package)}
    assert dict(ROLES[kind]) == registered
