"""gateway/devices/policy.py: tables of who may do what."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import EXIT_REFUSED
from device_agent.protocol.several import SEVERAL
from gateway.devices.argument_shapes import Shape
from gateway.devices.policy import (
    DAYS,
    MAY,
    Allow,
    Deny,
    Hold,
    Need,
    Operator,
    Policy,
    Role,
    Rule,
    Span,
    not_allowed,
    without_file,
)
from gateway.devices.policy_file import parse_hours

MONDAY_NOON = 4 * 86_400.0 + 12 * 3600
"""1970-01-05T12:00:00Z."""

ADMIN, OPERATOR = (frozenset[Role]({role}) for role in ("admin", "operator"))


def who(*roles: Role, name: str = "anna", groups: tuple[str, ...] = ()) -> Operator:
    return Operator(name, frozenset(roles), groups=frozenset(groups))


ABOVE = Operator("anna", frozenset(), "above")


def policy(*rules: Rule, centre: tuple[Rule, ...] | None = None) -> Policy:
    """A policy with these rules for operators; without any, there is no section of rules."""
    return Policy({}, {}, operator=rules or None, centre=centre, source="policy.yaml")


def judged(held_to: Policy, operator: Operator, fun: str = "test.ping", *arg: Any, **changed: Any) -> Any:
    given: dict[str, Any] = {"kwarg": {}, "target": ["cam-1"], "sites": ["lisbon"], "now": MONDAY_NOON, **changed}
    return held_to.judge(operator, fun, arg, **given)


@pytest.mark.parametrize(
    ("role", "needs"),
    [
        ("viewer", {"view"}),
        ("operator", {"view", "run"}),
        ("approver", {"view", "keys", "release"}),
        ("admin", {"view", "run", "keys", "release", "admin"}),
    ],
)
def test_a_role_includes_this_and_nothing_else(role: Role, needs: set[Need]) -> None:
    assert {need for need in get_args(Need) if who(role).may(need)} == needs == MAY[role]


def test_roles_add_up_and_nobody_without_one_may_anything() -> None:
    assert {need for need in get_args(Need) if who("operator", "approver").may(need)} == {
        "view",
        "run",
        "keys",
        "release",
    }
    assert not any(who().may(need) for need in get_args(Need))


@pytest.mark.parametrize(
    ("operator", "fun", "verdict"),
    [
        (who("admin"), "cmd.run", Allow),
        (who("admin"), "test.ping", Allow),
        (who("operator"), "test.ping", Allow),
        (who("operator"), "cmd.run", Deny),
        (who("operator"), "cmd.anything", Deny),
        (who("operator"), "cmdx.run", Deny),
        (who("operator"), "file.write", Deny),
        (who("operator"), "pkg.install", Deny),
        (who("operator"), "cmd.which", Allow),
        (who("operator"), "file.read", Allow),
        (who("operator"), "service.restart", Allow),
        (who("viewer"), "test.ping", Deny),
        (who("approver"), "test.ping", Deny),
        (who("viewer", "approver"), "test.ping", Deny),
        (who(), "test.ping", Deny),
        (ABOVE, "test.ping", Allow),
        (ABOVE, "cmd.run", Allow),
    ],
)
def test_without_rules_a_role_alone_decides_and_the_shell_is_for_admins(
    operator: Operator, fun: str, verdict: type
) -> None:
    assert isinstance(judged(policy(), operator, fun), verdict)


@pytest.mark.parametrize("glob", ["*", "*.*", "c*", "cm?.run", "[c]md.*", "*.run"])
def test_no_wildcard_reaches_the_shell(glob: str) -> None:
    rule = Rule((glob,))
    assert isinstance(judged(policy(rule), who("operator"), "cmd.run"), Deny)
    assert isinstance(judged(policy(centre=(rule,)), ABOVE, "cmd.run"), Deny)


@pytest.mark.parametrize("glob", ["*", "*.*", "f*", "[f]ile.*", "*.write", "looks", "reads", "changes"])
def test_nor_does_it_reach_what_is_as_good_as_a_shell(glob: str) -> None:
    rule = Rule((glob,))
    for held_to, operator in ((policy(rule), who("operator")), (policy(centre=(rule,)), ABOVE)):
        verdict = judged(held_to, operator, "file.write", "/etc/cron.d/x", "…")
        assert isinstance(verdict, Deny)
    assert judged(policy(Rule(("file.*",))), who("operator"), "file.write", "/x", "…") == Allow()
    assert judged(policy(Rule(("shell",))), who("operator"), "file.write", "/x", "…") == Allow()


def test_a_rule_grants_whole_classes_and_says_which_when_it_refuses() -> None:
    looking = policy(Rule(("looks",)))
    for fun in ("test.ping", "service.status", "grains.items", "cmd.which"):
        assert judged(looking, who("operator"), fun) == Allow()
    for fun in ("service.restart", "grains.set", "file.read", "file.write", "cmd.run", "cmdx.run"):
        denied = judged(looking, who("operator"), fun)
        assert isinstance(denied, Deny)
        assert denied.allowed == "looks (changes nothing)"


@pytest.mark.parametrize("glob", ["looks", "*", "file.*", "file.find"])
def test_an_argument_that_makes_a_call_a_shell_is_granted_on_purpose_alone(glob: str) -> None:
    finding = policy(Rule((glob,)))
    assert judged(finding, who("operator"), "file.find", "/var/log", kwarg={"name": "*.gz"}) == Allow()
    for arg, kwarg in (((), {"exec": "sh {}"}), ((), {"delete": "f"}), (("delete",), {})):
        denied = judged(finding, who("operator"), "file.find", "/", *arg, kwarg=kwarg)
        assert isinstance(denied, Deny)
        assert denied.why.startswith("no rule grants file.find")
    spelled = Rule((glob,), arguments=(("file.find", (Shape(("/var/log",), (("exec", "gzip {}"),)),)),))
    assert judged(policy(spelled), who("operator"), "file.find", "/var/log", kwarg={"exec": "gzip {}"}) == (
        Allow() if glob != "looks" else judged(policy(spelled), who("operator"), "file.find", "/", kwarg={"exec": "x"})
    )
    assert isinstance(judged(policy(spelled), who("operator"), "file.find", "/", kwarg={"exec": "gzip {}"}), Deny)


def test_arguments_of_a_class_are_held_to_as_those_of_a_function() -> None:
    rule = Rule(("looks",), arguments=(("looks", (Shape(),)),))
    assert judged(policy(rule), who("operator"), "test.ping") == Allow()
    assert isinstance(judged(policy(rule), who("operator"), "test.echo", "x"), Deny)


def test_a_job_whose_arguments_are_hidden_may_have_the_worst_of_them() -> None:
    rule = Rule(("camera.*",), sealed=True)
    assert judged(policy(centre=(rule,)), ABOVE, "camera.info", hidden=True) == Allow()
    assert isinstance(judged(policy(centre=(rule,)), ABOVE, "camera.snapshot", hidden=True), Deny)


@pytest.mark.parametrize("glob", ["cmd.run", "cmd.*"])
def test_a_rule_that_names_the_shell_grants_it(glob: str) -> None:
    rule = Rule((glob,))
    assert judged(policy(rule), who("operator"), "cmd.run") == Allow()
    assert judged(policy(centre=(rule,)), ABOVE, "cmd.run") == Allow()
    assert isinstance(judged(policy(rule), who("approver"), "cmd.run"), Deny)


SITE_STATES = Rule(
    ("state.apply", "test.*"),
    arguments=(("state.apply", (Shape(("site/*",), (("test", "true"),), (("queue", "*"),)), Shape())),),
    targets=("cam-*", "ups-1"),
    sites=("lisbon", "porto-?"),
    hours=(("mon-fri 08:00-18:00", parse_hours("mon-fri 08:00-18:00")),),
)


@pytest.mark.parametrize(
    ("fun", "arg", "changed", "why"),
    [
        ("state.apply", ("site/a",), {"kwarg": {"test": True}}, None),
        ("state.apply", ("site/a",), {"kwarg": {"test": "true"}}, None),
        ("state.apply", ("site/a",), {"kwarg": {"test": True, "queue": 3}}, None),
        ("state.apply", (), {}, None),
        ("test.echo", ("anything", 7), {"kwarg": {"at": "all"}}, None),
        ("test.ping", (), {"target": ["cam-1", "ups-1"], "sites": ["lisbon", "porto-1"]}, None),
        ("test.ping", (), {"target": [], "sites": []}, None),
        ("state.highstate", (), {}, "no rule grants state.highstate"),
        ("state.apply", ("site/a",), {}, "with these arguments"),
        ("state.apply", ("site/a",), {"kwarg": {"test": False}}, "with these arguments"),
        ("state.apply", ("other",), {"kwarg": {"test": True}}, "with these arguments"),
        ("state.apply", ("site/a", "site/b"), {"kwarg": {"test": True}}, "with these arguments"),
        ("state.apply", ("site/a",), {"kwarg": {"test": True, "pillar": "x"}}, "with these arguments"),
        ("state.apply", (["site/a"],), {"kwarg": {"test": True}}, "with these arguments"),
        ("state.apply", (), {"kwarg": {"mods": "site/a"}}, "with these arguments"),
        ("test.ping", (), {"target": ["cam-1", "ups-2"]}, "on 1 of its devices: ups-2"),
        ("test.ping", (), {"target": ["CAM-1"]}, "on 1 of its devices: CAM-1"),
        ("test.ping", (), {"sites": ["lisbon", "porto-12"]}, "at site porto-12"),
        ("test.ping", (), {"now": MONDAY_NOON + 6 * 3600}, "at this hour"),
        ("test.ping", (), {"now": MONDAY_NOON - 86_400}, "at this hour"),
    ],
)
def test_a_rule_is_held_to_in_every_part(fun: str, arg: tuple[Any, ...], changed: Any, why: str | None) -> None:
    for held_to, operator in (
        (policy(SITE_STATES), who("operator")),
        (policy(centre=(SITE_STATES,)), ABOVE),
    ):
        verdict = judged(held_to, operator, fun, *arg, **changed)
        if why is None:
            assert verdict == Allow(("cam-*", "ups-1"), ("lisbon", "porto-?"))
        else:
            assert isinstance(verdict, Deny)
            assert why in verdict.why
            assert verdict.allowed
    assert judged(policy(SITE_STATES), who("admin"), fun, *arg, **changed) == Allow()


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (Rule(("test.*",)), "only its devices can read"),
        (Rule(("test.*",), sealed=True), None),
        (Rule(("sys.*",), sealed=True), "no rule grants test.ping"),
        # What a rule says of arguments cannot be held against those that nobody sees, not even that there are none.
        (Rule(("test.*",), arguments=(("test.ping", (Shape(),)),), sealed=True), "with these arguments"),
        (Rule(("test.*",), arguments=(("test.echo", (Shape(),)),), sealed=True), None),
    ],
)
def test_what_a_site_cannot_look_into_needs_a_rule_that_says_so(rule: Rule, why: str | None) -> None:
    verdict = judged(policy(centre=(rule,)), ABOVE, hidden=True)
    assert verdict == Allow() if why is None else isinstance(verdict, Deny) and why in verdict.why


def test_the_first_rule_that_fits_the_whole_job_decides() -> None:
    held, free = Rule(("test.*",), targets=("cam-*",), hold=True), Rule(("test.*",))
    assert judged(policy(held, free), who("operator")) == Hold(("cam-*",))
    assert judged(policy(free, held), who("operator")) == Allow()
    # Two rules that each fit a half do not make a whole.
    halves = policy(Rule(("test.*",), targets=("a",)), Rule(("test.*",), targets=("b",)))
    assert isinstance(judged(halves, who("operator"), target=["a", "b"]), Deny)


def test_a_rule_for_some_is_for_nobody_else() -> None:
    rule = Rule(("test.*",), users=("bob", "ops-*"), groups=("wheel",))
    for operator, allowed in (
        (who("operator", name="bob"), True),
        (who("operator", name="ops-1"), True),
        (who("operator", groups=("users", "wheel")), True),
        (who("operator", groups=("wheels",)), False),
        (who("operator", name="bobby"), False),
    ):
        assert isinstance(judged(policy(rule), operator), Allow) == allowed
    only_bob = policy(centre=(Rule(("test.*",), users=("bob",)),))
    assert isinstance(judged(only_bob, ABOVE), Deny)
    assert judged(only_bob, Operator("bob", frozenset(), "above")) == Allow()


def test_an_empty_list_of_rules_grants_nothing() -> None:
    nothing = Policy({}, {}, operator=(), centre=())
    assert isinstance(judged(nothing, who("operator")), Deny)
    assert isinstance(judged(nothing, ABOVE), Deny)
    assert judged(nothing, who("admin")) == Allow()


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("mon-fri 08:00-18:00", ["mon 08:00", "fri 17:59"], ["mon 07:59", "fri 18:00", "sat 12:00", "sun 12:00"]),
        ("sat,sun 10:00-12:00", ["sat 10:00", "sun 11:59"], ["fri 10:00", "mon 11:00", "sun 12:00"]),
        ("fri-mon 00:00-24:00", ["fri 00:00", "sun 23:59", "mon 12:00"], ["tue 00:00", "thu 23:59"]),
        ("sun 22:00-06:00", ["sun 22:00", "sun 23:59", "mon 00:00", "mon 05:59"], ["sun 05:00", "mon 06:00"]),
        ("daily 12:00-13:00", [f"{day} 12:30" for day in DAYS], [f"{day} 13:00" for day in DAYS]),
    ],
)
def test_hours_hold_in_utc(text: str, inside: list[str], outside: list[str]) -> None:
    span = parse_hours(text)
    for moments, within in ((inside, True), (outside, False)):
        for moment in moments:
            day, _, hour = moment.partition(" ")
            hours, minutes = map(int, hour.split(":"))
            monday = MONDAY_NOON - 12 * 3600
            now = monday + DAYS.index(day) * 86_400 + hours * 3600 + minutes * 60
            for weeks in (0, 2916):
                assert span.holds(now + weeks * 7 * 86_400) == within, moment


@given(st.integers(0, 1439), st.integers(0, 1440), st.floats(0, 4e9))
def test_hours_of_every_day_hold_each_day_alike(start: int, end: int, now: float) -> None:
    span = Span(frozenset(range(7)), start, end)
    assert span.holds(now) == span.holds(now % 86_400)


def test_roles_come_by_name_and_by_group_and_others_are_what_the_file_says() -> None:
    viewer: frozenset[Role] = frozenset({"viewer"})
    found = Policy({"anna": OPERATOR}, {"wheel": ADMIN, "staff": viewer}, others=viewer)
    assert found.roles("anna", frozenset()) == OPERATOR
    assert found.roles("anna", frozenset({"wheel", "staff"})) == OPERATOR | ADMIN | viewer
    assert found.roles("bob", frozenset({"nobody"})) == viewer
    assert Policy({}, {}).roles("root", frozenset({"root"})) == frozenset()


def test_without_a_file_root_and_the_stations_user_do_everything_and_others_look() -> None:
    found = without_file("outstation")
    assert found.roles("root", frozenset()) == found.roles("outstation", frozenset()) == ADMIN
    assert found.roles("anna", frozenset({"outstation"})) == frozenset({"viewer"})


def test_a_refusal_says_who_what_and_how_to_get_it() -> None:
    error = not_allowed(policy(), who("viewer"), "release", "POST /jobs/1/release")
    assert (error.exit_status, error.error_id) == (EXIT_REFUSED, "policy.role")
    assert error.what == "anna may not release held jobs"
    assert (error.found, error.allowed) == ("POST /jobs/1/release", "viewer: view")
    assert error.hint == "ask an admin to give anna the role approver in policy.yaml"
    assert "sudo" in (not_allowed(without_file("x"), who("viewer"), "run", "").hint or "")
    token = Operator("anna", frozenset(), "api", token="1")
    assert "tokens: {anna: operator} into policy.yaml" in (not_allowed(policy(), token, "run", "").hint or "")
    assert "operators new anna --role operator" in (not_allowed(without_file("x"), token, "run", "").hint or "")


def test_users_of_the_machine_and_of_tokens_do_not_share_their_names() -> None:
    here, by_token = who("operator"), Operator("anna", frozenset[Role]({"operator"}), "api", token="1")
    from_above, by_token_above = ABOVE, Operator("anna", frozenset(), "above", asked_by_token=True)
    for rule, users, tokens in (
        (Rule(("test.*",), users=("anna",)), True, False),
        (Rule(("test.*",), users=("*",)), True, False),
        (Rule(("test.*",), tokens=("an*",)), False, True),
        (Rule(("test.*",), users=("anna",), tokens=("anna",)), True, True),
        (Rule(("test.*",)), True, True),
    ):
        for operator, let in ((here, users), (by_token, tokens)):
            assert isinstance(judged(policy(rule), operator), Allow) is let
        for operator, let in ((from_above, users), (by_token_above, tokens)):
            assert isinstance(judged(policy(centre=(rule,)), operator), Allow) is let
    roles = Policy(users={"anna": ADMIN}, groups={}, tokens={"anna": frozenset({"viewer"}), "ci": ADMIN})
    assert (roles.roles("anna", frozenset()), roles.token_roles("anna")) == (ADMIN, frozenset({"viewer"}))
    assert (roles.roles("ci", frozenset()), roles.token_roles("root")) == (frozenset(), frozenset())


@pytest.mark.parametrize("hidden", [True, False])
def test_several_functions_are_granted_by_no_rule_at_once(hidden: bool) -> None:
    """Whoever judges a job judges each of its functions; where these are sealed to devices nobody here can."""
    calls = [] if hidden else [["test.ping", [], {}], ["cmd.run", ["id"], {}]]
    rules = (Rule(("shell", "_several.*", "*"), sealed=True),)
    asking = who("operator")
    for held_to, operator in ((policy(centre=rules), ABOVE), (policy(*rules), asking), (policy(), asking)):
        verdict = judged(held_to, operator, SEVERAL, *calls, hidden=hidden)
        assert isinstance(verdict, Deny)
        assert "one by one" in verdict.why
    assert judged(policy(), ABOVE, SEVERAL, *calls, hidden=hidden) == Allow()
    assert judged(policy(*rules), who("admin"), SEVERAL, *calls) == Allow()
