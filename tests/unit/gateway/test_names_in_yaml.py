"""Names and targets that YAML reads as numbers, dates or booleans stay as they are typed, or are refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from device_agent.errors import ConfigInvalid
from device_agent.settings import load_text
from gateway.cli.ssh_inventory import read as read_inventory
from gateway.config import StationSettings
from gateway.devices.policy_file import PolicyTable
from gateway.jobs.target_text import NotText, target_text
from gateway.orchestrate.compiling import compiled as compiled_steps
from gateway.orchestrate.deeds import JobDeed, WaitDeed, deed
from gateway.orchestrate.words import SlsFile, Step
from gateway.reactor.rules import parsed_text
from gateway.reactor.sls import Reaction, RenderedFile, Trouble, compiled
from gateway.render_names import reaction_names, roster_names, setting_names, step_names, top_names
from gateway.render_pillar import Compiler, Rules
from gateway.render_reads import Reads
from gateway.render_sls import Sources
from gateway.render_templates import Codes
from gateway.render_yaml import read
from gateway.salt.import_box import Asked, look
from gateway.salt.import_devices import Devices, take_proxy

TYPED = ["00427", "427", "1_0", "0x1F", "52:54:00:42:25:43", "1.50", ".5e+3", "2026-11-27", "on", "No", "y", "+5"]
"""Names that a device may have, and of which YAML 1.1 makes something else."""


def reactions(text: str) -> tuple[list[Reaction], list[Trouble]]:
    found = compiled([RenderedFile("/a.sls", "r", read(text, reaction_names))])
    return found.reactions, found.troubles


def steps(text: str) -> list[Step]:
    found = compiled_steps([SlsFile(env="base", sls="o", path="o.sls", data=read(text, step_names))])
    assert found.errors == []
    return found.steps


def pillar(files: dict[str, str], device: str) -> dict[Any, Any]:
    sources = Sources("base", {path: text.encode() for path, text in files.items()}, Codes())
    reads = Reads(device, {"id": device}, {}, lambda _: None)
    return Compiler({"base": sources}, Rules(), reads, {}, None).compile().pillar


@pytest.mark.parametrize("name", [*TYPED, "null"])
def test_a_pillar_is_given_to_the_device_whose_name_is_typed_in_the_top_file(name: str) -> None:
    files = {"top.sls": f"base:\n  {name}: [own]\n", "own.sls": "special: 1"}
    assert pillar(files, name) == {"special": 1}
    for other in {str(yaml.safe_load(name)), "427", "None", "True"} - {name}:
        assert pillar(files, other) == {}


def test_a_top_file_keeps_environments_files_includes_and_merged_targets() -> None:
    top = "001: {<<: {007: [042]}, 427: [a, 1_0]}\ninclude: [010]\n"
    assert read(top, top_names) == {"001": {"007": ["042"], "427": ["a", "1_0"]}, "include": ["010"]}
    files = {"top.sls": "base:\n  '*': [042]", "042.sls": "include: [007]\nn: 00427", "007.sls": "m: 1_0"}
    assert pillar(files, "cam-1") == {"n": 427, "m": 10}


@pytest.mark.parametrize("name", TYPED)
def test_a_reaction_is_for_the_device_whose_name_is_typed(name: str) -> None:
    (reaction,), troubles = reactions(f"a:\n  local.test.ping:\n    - tgt: {name}\n")
    assert (reaction.tgt, troubles) == (name, [])
    (reaction,), _ = reactions(f"a:\n  local.test.ping:\n    - tgt: [{name}, cam-1]\n")
    assert (reaction.tgt, reaction.tgt_type) == (f"{name},cam-1", "list")
    (reaction,), _ = reactions(f"a:\n  wheel.key.accept:\n    - args:\n      - match: {name}\n")
    assert reaction.kwarg == {"match": name}
    (reaction,), _ = reactions(f"a:\n  wheel.key.accept_dict:\n    - match: {{minions_pre: [{name}]}}\n")
    assert reaction.kwarg == {"match": {"minions_pre": [name]}}
    (reaction,), _ = reactions(f"a:\n  runner.cache.grains:\n    - tgt: {name}\n")
    assert reaction.kwarg == {"tgt": name}


@pytest.mark.parametrize("name", TYPED)
def test_a_reactor_map_keeps_its_tags_and_what_its_throttles_count_by(name: str) -> None:
    text = f"reactor:\n- {name}: /a.sls\nreactor_throttle:\n  {name}: {{once_within: 60, by: [{name}]}}\n"
    for found in (parsed_text(text, "map.yaml"), parsed_text(f"- {name}: /a.sls\n", "map.yaml")):
        assert ([rule.glob for rule in found.rules], found.skipped) == ([name], ())
    throttle = parsed_text(text, "map.yaml").throttles[name]
    assert (throttle.once_within, throttle.by) == (60, [name])
    assert read(f"reactor: [{{{name}: /a.sls}}]\n", setting_names) == {"reactor": [{name: "/a.sls"}]}


def test_two_ids_of_a_reactor_file_that_are_one_number_are_two_reactions() -> None:
    found, troubles = reactions("00427: {runner.a.a: []}\n427: {runner.b.b: []}\n0x1AB: runner.c.c")
    assert ({each.id for each in found}, troubles) == ({"00427", "427", "0x1AB"}, [])


def test_other_arguments_of_a_reaction_are_read_as_salt_reads_them() -> None:
    (reaction,), _ = reactions("a:\n  local.test.arg:\n    - tgt: x\n    - args:\n      - n: 00427\n      - b: on\n")
    assert reaction.kwarg == {"n": 427, "b": True}


@pytest.mark.parametrize("said", [427, 1.5, True, {"a": 1}, [427], ["a", None], [["a"]]])
def test_a_target_that_is_no_text_is_refused(said: Any) -> None:
    """A file in Python or JSON can say a number, where nothing is known of how it was written."""
    body = {"local.test.ping": [{"tgt": said}]}
    found = compiled([RenderedFile("/a.sls", "r", {"a": body, "b": {"local.test.ping": [{"tgt": "x"}]}})])
    assert [each.tgt for each in found.reactions] == ["x"]
    assert [(each.id, "quotes" in each.what) for each in found.troubles] == [("a", True)]
    steps = {"a": {"salt.function": [{"name": "test.ping"}, {"tgt": said}]}}
    orchestrated = compiled_steps([SlsFile(env="base", sls="o", path="o.sls", data=steps, lines={"a": 3})])
    (error,) = orchestrated.errors
    assert error.startswith("base:o.sls:3: ")
    with pytest.raises(NotText):
        target_text(said)


@pytest.mark.parametrize("name", TYPED)
def test_a_step_is_for_the_device_whose_name_is_typed(name: str) -> None:
    text = f"a:\n  salt.function:\n    - name: test.ping\n    - tgt: {name}\n    - fail_minions: [{name}]\n"
    made = deed(steps(text)[0], test=False)
    assert isinstance(made, JobDeed)
    assert (made.tgt, made.fail_minions) == (name, [name])
    (step,) = steps(f"a:\n  salt.runner:\n    - name: cache.grains\n    - tgt: {name}\n")
    assert step.args == {"tgt": name}


def test_a_wait_knows_names_as_typed_and_numbers_as_numbers() -> None:
    (step,) = steps("a/b: {salt.wait_for_event: [{id_list: [00427, 8080, 1_0, on, 1.5, x]}, {event_id: port}]}")
    made = deed(step, test=False)
    assert isinstance(made, WaitDeed)
    assert made.ids == ["00427", 8080, "1_0", "on", 1.5, "x"]


def test_an_include_of_an_orchestration_is_kept() -> None:
    assert read("include: [007, 01: 02]\n", step_names)["include"] == ["007", {"01": 2}]


def test_a_mapping_that_is_used_twice_is_walked_once() -> None:
    bomb = "a: &a {tgt: 007}\n" + "".join(
        f"{n}: &{n} [*{m}, *{m}]\n" for m, n in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert read(bomb, reaction_names)["a"] == {"tgt": "007"}
    with pytest.raises(Exception, match="contains itself"):
        read("a: &a [*a]", reaction_names)


@pytest.mark.parametrize("text", ["[00427]", "[427]", "00427", "427", "[on]"])
def test_a_nodegroup_that_is_no_text_is_refused_by_its_line(text: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load_text(StationSettings, f"name: lisbon\nnodegroups:\n  g: {text}\n", Path("/etc/x.yaml"))
    assert str(caught.value.where) == "/etc/x.yaml:3"
    word = text.strip("[]")
    assert caught.value.hint == (f'quote it: "{word}"' if text.startswith("[") else f'quote it: g: "{word}"')


def policy(text: str) -> str:
    return f"rules:\n  operator:\n  - {text}\n"


@pytest.mark.parametrize(
    ("table", "text", "line"),
    [
        *[
            (PolicyTable, policy(f"{{functions: [test.*], {each}: [{{}}]}}"), 3)
            for each in ("targets", "sites", "users", "groups", "tokens")
        ],
        (PolicyTable, policy("{functions: [{}]}"), 3),
        (PolicyTable, policy("{functions: [cmd.*], arguments: {cmd.*: [{positional: [{}]}]}}"), 3),
        (PolicyTable, policy("{functions: [cmd.*], arguments: {cmd.*: [{named: {a: {}}}]}}"), 3),
        (PolicyTable, "centre:\n- functions: [test.*]\n  targets:\n  - door-1\n  - {}\n", 5),
        (StationSettings, "name: lisbon\nsites:\n  unproven: [{}]\n", 3),
        (StationSettings, "name: lisbon\nspool:\n  urgent:\n  - {}\n", 4),
        (StationSettings, "name: {}\n", 1),
        (StationSettings, "name: lisbon\nupstream: {type: salt, masters: [a], id: {}}\n", 2),
    ],
)
def test_a_name_in_a_list_of_the_settings_that_is_no_text_is_refused_by_its_line(
    table: type[PolicyTable | StationSettings], text: str, line: int
) -> None:
    for name in ("00427", "427", "1_0", "0x1F", "52:54:00:42:25:43", "on", "No", "1.50", "2026-11-27"):
        with pytest.raises(ConfigInvalid) as caught:
            load_text(table, text.replace("{}", name), Path("/etc/x.yaml"))
        assert str(caught.value.where) == f"/etc/x.yaml:{line}", name
        # A setting with the word token in its path may be a secret, which no message shows.
        if "tokens" not in text:
            assert name in str(caught.value.found)
            key = re.search(r"(\w+: )?{}", text.replace("- {}", "{}"))
            assert key is not None
            assert caught.value.hint == f'quote it: {key[1] or ""}"{name}"'


def test_a_name_that_is_a_key_of_the_settings_is_kept_as_typed() -> None:
    users = load_text(PolicyTable, "users: {00427: admin, on: viewer}\ntokens: {1_0: viewer}\n", Path("/x.yaml"))
    assert (users.users, users.tokens) == ({"00427": "admin", "on": "viewer"}, {"1_0": "viewer"})
    settings = load_text(StationSettings, "name: lisbon\nnodegroups: {00427: cam-1}\n", Path("/x.yaml"))
    assert settings.nodegroups == {"00427": "cam-1"}


@pytest.mark.parametrize("text", ["427", "on", "1.5", "[427]", "[on]"])
def test_a_target_of_a_schedule_that_is_no_text_is_refused_by_its_line(text: str) -> None:
    entry = f"  e:\n    function: test.ping\n    seconds: 60\n    target: {text}\n"
    with pytest.raises(ConfigInvalid) as caught:
        load_text(StationSettings, f"name: lisbon\nschedule:\n{entry}", Path("/etc/x.yaml"))
    assert str(caught.value.where).startswith("/etc/x.yaml:")
    assert "schedule.e.target: found " in str(caught.value)
    assert "stands in quotes" in str(caught.value)
    assert "$." not in str(caught.value), "the path is told once"


@pytest.mark.parametrize("text", ["00427", "[00427]", "52:54:00:42:25:43"])
def test_a_target_of_a_schedule_that_yaml_would_rewrite_is_kept(text: str) -> None:
    entry = f"  e:\n    function: test.ping\n    seconds: 60\n    target: {text}\n"
    said = load_text(StationSettings, f"name: lisbon\nschedule:\n{entry}", Path("/etc/x.yaml")).schedule["e"]["target"]
    assert said == (["00427"] if text.startswith("[") else text)


@pytest.mark.parametrize("name", TYPED)
def test_an_inventory_keeps_the_names_that_are_typed(tmp_path: Path, name: str) -> None:
    for suffix, text in (
        ("yaml", f"- name: {name}\n  address: 192.0.2.1\n  password: {name}\n"),
        ("yml", f"{name}:\n  address: 192.0.2.1\n  password: {name}\n"),
        ("csv", f"name,address,password\n{name},192.0.2.1,{name}\n"),
    ):
        (path := tmp_path / f"list.{suffix}").write_text(text)
        (listed,) = read_inventory(path)
        assert (listed.name, listed.wish["password"]) == (name, name)


@pytest.mark.parametrize("name", [name for name in TYPED if name[0] not in "+."])
def test_a_roster_of_salt_ssh_keeps_its_names_and_logins(tmp_path: Path, name: str) -> None:
    (tmp_path / "master").write_text(f"nodegroups:\n  g: [{name}]\n")
    (tmp_path / "roster").write_text(f"{name}:\n  host: 192.0.2.1\n  user: {name}\n  passwd: {name}\n  port: 2222\n")
    (tmp_path / "minion").write_text("id: 010\n")
    found = look(Asked(tmp_path))
    (row,) = found.devices.ssh
    assert (row["name"], row["user"], row["password"], row["port"]) == (name, name, name, 2222)
    assert found.settings["nodegroups"]["g"] == [name]
    assert found.site == "010"


def test_a_deltaproxy_keeps_its_ids_and_names_one_that_is_a_number() -> None:
    assert read("proxy: {ids: [00427], passwd: 007, port: 22}\nid: 010\n", setting_names) == {
        "proxy": {"ids": ["00427"], "passwd": "007", "port": 22},
        "id": "010",
    }
    devices = Devices()
    take_proxy(devices, "control", {"proxytype": "deltaproxy", "ids": ["cam-1", 427]}, "control.sls:3")
    assert list(devices.listed) == ["cam-1"]
    (finding,) = [each for each in devices.findings if each.verdict == "not carried"]
    assert (finding.where, "427" in finding.words) == ("control.sls:3", True)
    assert read("00427: 192.0.2.1", roster_names) == {"00427": "192.0.2.1"}
