"""gateway/devices/policy_file.py: the file as people write it, and as they get it wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_agent.errors import EXIT_CONFIG, ConfigInvalid
from gateway.devices.argument_shapes import Shape
from gateway.devices.policy import Rule, Span
from gateway.devices.policy_file import PolicyHolder, load_policy, own_user

WHOLE = """\
users:
  root: admin
  anna: [operator, approver]
groups:
  ops: operator
others: viewer
rules:
  operator:
    - functions: [test.*]
    - functions: [state.apply, cmd.run]
      arguments:
        state.apply:
          - positional: [site/*]
            named: {test: "true"}
            optional: {queue: "*"}
          - {}
      targets: [cam-*]
      sites: [lisbon]
      hours: ["mon-fri 08:00-18:00"]
      users: [anna]
      groups: [ops]
      hold: true
centre:
  - functions: [test.*]
    users: [root]
    sealed: true
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "policy.yaml"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)
    return path


def test_everything_can_be_written(tmp_path: Path) -> None:
    policy = load_policy(written(tmp_path, WHOLE))
    assert policy.users == {"root": {"admin"}, "anna": {"operator", "approver"}}
    assert policy.groups == {"ops": {"operator"}}
    assert policy.others == {"viewer"}
    assert policy.operator == (
        Rule(("test.*",)),
        Rule(
            ("state.apply", "cmd.run"),
            (("state.apply", (Shape(("site/*",), (("test", "true"),), (("queue", "*"),)), Shape())),),
            ("cam-*",),
            ("lisbon",),
            (("mon-fri 08:00-18:00", Span(frozenset(range(5)), 480, 1080)),),
            ("anna",),
            ("ops",),
            hold=True,
        ),
    )
    assert policy.centre == (Rule(("test.*",), users=("root",), sealed=True),)
    assert policy.source == str(tmp_path / "policy.yaml")


def test_no_section_is_no_rule_and_an_empty_list_is_a_rule_for_nothing(tmp_path: Path) -> None:
    empty = load_policy(written(tmp_path, ""))
    assert (empty.operator, empty.centre, empty.others) == (None, None, frozenset())
    closed = load_policy(written(tmp_path, "rules:\n  operator: []\ncentre: []\n"))
    assert (closed.operator, closed.centre) == ((), ())


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("user:\n  anna: admin\n", 1, ["user", "did you mean 'users'?"]),
        ("users:\n  anna: amdin\n", 2, ["amdin", "did you mean 'admin'?"]),
        ("users:\n  anna: [viewer, boss]\n", 2, ["boss", "one of admin, approver, operator, viewer"]),
        ("users:\n  anna: []\n", 2, ["anna"]),
        ("rules:\n  viewer: []\n", 2, ["rules.viewer", "operator"]),
        ("rules:\n  operator:\n    - function: [test.*]\n", 3, ["function", "did you mean 'functions'?"]),
        ("rules:\n  operator:\n    - targets: [cam-*]\n", 3, ["functions is missing"]),
        ("rules:\n  operator:\n    - functions: []\n", 3, ["functions"]),
        ("rules:\n  operator:\n    - functions: test.ping\n", 3, ["functions: [test.ping]"]),
        ("rules:\n  operator:\n    - functions: [Test.Ping]\n", 3, ["Test.Ping"]),
        ("rules:\n  operator:\n    - functions: [test.*]\n      hours: [mon-fri]\n", 4, ["mon-fri"]),
        ('centre:\n  - functions: [test.*]\n    hours: ["mon-fri 8:00-18:00"]\n', 3, ["8:00"]),
        ('centre:\n  - functions: [test.*]\n    hours: ["mon 08:00-25:00"]\n', 3, ["25:00"]),
        ("centre:\n  - functions: [test.*]\n    groups: [ops]\n", 3, ["groups"]),
        ("centre:\n  - functions: [test.*]\n    targets: [cam 1]\n", 3, ["cam 1"]),
        ("centre:\n  - functions: [test.*]\n    hold: maybe\n", 3, ["true or false"]),
        ("users: {anna: admin}\nusers: {bob: admin}\n", 2, ["twice"]),
        ("users:\n\tanna: admin\n", 2, ["spaces"]),
    ],
)
def test_a_mistake_is_told_with_its_line_and_what_was_meant(
    text: str, line: int, words: list[str], tmp_path: Path
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigInvalid) as error:
        load_policy(path)
    told = str(error.value)
    assert error.value.exit_status == EXIT_CONFIG
    assert f"{path}:{line}" in told
    for word in words:
        assert word in told


def test_a_file_that_everybody_may_write_is_no_policy(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE)
    path.chmod(0o666)
    with pytest.raises(ConfigInvalid, match="everybody may write") as error:
        load_policy(path)
    assert error.value.hint == f"chmod o-w {path}"


def test_a_broken_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="no such settings file"):
        PolicyHolder(str(tmp_path / "none.yaml"))
    with pytest.raises(ConfigInvalid):
        PolicyHolder(str(written(tmp_path, "users: []\n")))


def test_a_file_that_was_broken_since_changes_nothing_and_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, "users: {anna: admin}\n")
    holder = PolicyHolder(str(path))
    first, mark = holder.policy, holder.mark
    assert str(path) in mark
    written(tmp_path, "users: {anna: amdin}\n")
    wrong = holder.reload(str(path))
    assert wrong is not None
    assert "amdin" in wrong
    assert (holder.policy, holder.mark) == (first, mark)
    written(tmp_path, "users: {anna: viewer}\n")
    assert holder.reload(str(path)) is None
    assert holder.policy.users == {"anna": {"viewer"}}
    assert holder.mark != mark


def test_without_a_path_the_stations_own_user_is_admin() -> None:
    holder = PolicyHolder(None)
    assert holder.policy.users[own_user()] == {"admin"}
    assert holder.mark == "no policy file"
