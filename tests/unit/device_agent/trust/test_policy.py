"""device_agent/trust/policy.py: what a site may order without a master, and that a grant must name something."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.trust import codec
from device_agent.trust.policy import DEFAULT_GRANTS, SitePolicy, check_function, check_reach

POLICY = SitePolicy(
    fun=("test.*", "state.*", "camera.reboot"),
    arg={"state.*": ("site/*", "test=*", "saltenv=base"), "camera.reboot": ("delay=[0-9]",)},
    ttl=600,
    devmax=7,
    devttl=86_400,
    grp=("all", "gate"),
    offl=3600,
    org={"salt": ("cmd.run", "state.apply")},
)


def granted(fun: str, /, *arg: Any, origin: str = "", policy: SitePolicy = POLICY, **kwarg: Any) -> bool:
    with suppress(Refused):
        check_function(policy, fun, arg, kwarg, origin=origin)
        return True
    return False


@pytest.mark.parametrize("policy", [SitePolicy(), POLICY, SitePolicy(fun=(), grp=())])
def test_a_policy_is_read_as_it_was_written(policy: SitePolicy) -> None:
    assert SitePolicy.from_claims(codec.decode(codec.encode(policy.to_claims()))) == policy


@pytest.mark.parametrize(("fun", "origin"), [("cmd.run", ""), ("test.ping", "salt"), ("state.apply", "")])
def test_what_is_not_granted_is_refused_as_such(fun: str, origin: str) -> None:
    with pytest.raises(Refused, match=fun) as refused:
        check_function(POLICY, fun, [], {}, origin=origin)
    assert refused.value.reason == "not_granted"


def test_a_site_may_look_and_not_touch_unless_somebody_grants_it_more() -> None:
    assert SitePolicy().fun == DEFAULT_GRANTS == ("looks",)
    for name in ("test.ping", "grains.items", "sys.doc", "service.status", "cmd.which"):
        assert granted(name, policy=SitePolicy())
    for name in (
        "cmd.run",
        "state.apply",
        "grains.set",
        "service.restart",
        "file.read",
        "file.write",
        "firmware.install",
        "keys.show",
        "testing.x",
        "test",
        "",
        "x.test.ping",
    ):
        assert not granted(name, policy=SitePolicy())


@pytest.mark.parametrize("glob", ["*", "**", "*.*", "*.**", "?*", "?.?", "[!x]*", "[a-z]*.*", "", ".", "[]x]*"])
@pytest.mark.parametrize("place", ["fun", "org"])
def test_a_grant_that_names_nothing_is_refused(glob: str, place: str) -> None:
    globs = ("test.ping", glob)
    policy = replace(POLICY, fun=globs) if place == "fun" else replace(POLICY, org={"salt": globs})
    with pytest.raises(Refused) as refused:
        policy.to_claims()
    assert refused.value.reason == "grant_too_wide"
    claims = POLICY.to_claims()
    claims[place] = list(globs) if place == "fun" else {"salt": list(globs)}
    with pytest.raises(Refused) as refused:
        SitePolicy.from_claims(claims)
    assert refused.value.reason == "grant_too_wide"


@pytest.mark.parametrize("glob", ["test.*", "*.ping", "t*", "*a*", "[x", "test.?"])
def test_a_grant_that_names_something_is_taken(glob: str) -> None:
    assert SitePolicy.from_claims(replace(POLICY, fun=(glob,)).to_claims()).fun == (glob,)


def test_every_positional_argument_must_fit() -> None:
    assert granted("state.apply", "site/camera")
    assert granted("state.apply", "site/a", "site/b")
    assert granted("state.apply", ["site/a", "site/b"])
    wrong: list[Any] = ["fleet/x", ["site/a", "fleet/x"], [], {}, {"site/a": 1}, 1, None]
    for value in wrong:
        assert not granted("state.apply", value)
        assert not granted("state.apply", "site/a", value)
    assert not granted("state.apply", b"site/a")
    assert not granted("state.apply", "Site/a"), "case matters"


def test_a_function_without_its_argument_does_the_most_and_is_not_granted() -> None:
    assert not granted("state.apply")
    assert not granted("state.apply", test=True)
    assert granted("state.apply", policy=replace(POLICY, arg={"state.*": ("site/*", "")}))
    assert granted("camera.reboot"), "its globs name no positional argument"


def test_keyword_arguments_fit_the_glob_of_their_name() -> None:
    assert granted("state.apply", "site/a", test=True, saltenv="base")
    assert granted("camera.reboot", delay=5)
    assert not granted("camera.reboot", delay=50)
    assert not granted("camera.reboot", 5)
    assert not granted("state.apply", "site/a", saltenv="dev")
    assert not granted("state.apply", "site/a", pillar={"x": 1})
    assert not granted("state.apply", "site/a", mods="site/a"), "a glob without a name is for no keyword"
    assert not granted("state.apply", "test=True"), "a glob with a name is for no positional argument"


def test_arguments_are_free_where_nothing_was_said_of_them() -> None:
    assert granted("test.echo", {"any": [b"\x00", None]}, x=1.5)


def test_every_rule_that_fits_the_function_holds() -> None:
    policy = replace(POLICY, arg={"state.*": ("site/*",), "*.apply": ("*/camera",)})
    assert granted("state.apply", "site/camera", policy=policy)
    assert not granted("state.apply", "site/other", policy=policy)
    assert granted("state.single", "site/other", policy=policy)


def test_an_origin_has_what_was_granted_to_it_and_nothing_else() -> None:
    assert granted("cmd.run", "id", origin="salt")
    assert not granted("cmd.run", "id")
    assert not granted("test.ping", origin="salt")
    assert not granted("cmd.run", "id", origin="other")
    assert not granted("state.apply", "fleet/x", origin="salt"), "argument globs hold for every origin"


def test_a_job_is_for_a_granted_group_and_lives_no_longer_than_granted() -> None:
    check_reach(POLICY, group="gate", seconds=600)
    check_reach(POLICY, group="", seconds=0)
    for group, seconds in (("other", 1.0), ("all", 600.5), ("all", -1.0)):
        with pytest.raises(Refused) as refused:
            check_reach(POLICY, group=group, seconds=seconds)
        assert refused.value.reason == "not_granted"


@pytest.mark.parametrize(
    "changes",
    [
        {"new": 1},
        {1: 1},
        {"fun": "test.*"},
        {"fun": [1]},
        {"fun": ["x" * 257]},
        {"fun": ["x"] * 257},
        {"arg": []},
        {"arg": {1: []}},
        {"arg": {"": []}},
        {"arg": {"x": "y"}},
        {"org": {"salt": [None]}},
        {"ttl": -1},
        {"ttl": 1.0},
        {"ttl": True},
        {"devttl": 2**40},
        {"devmax": None},
        {"grp": {"all": 1}},
    ],
)
def test_a_policy_that_is_wrong_is_refused(changes: dict[Any, Any]) -> None:
    with pytest.raises(Refused) as refused:
        SitePolicy.from_claims({**POLICY.to_claims(), **changes})
    assert refused.value.reason == "policy_invalid"


@pytest.mark.parametrize("name", ["fun", "ttl", "devmax", "devttl", "grp", "offl"])
def test_nothing_of_a_policy_is_taken_for_granted(name: str) -> None:
    claims = {key: value for key, value in POLICY.to_claims().items() if key != name}
    with pytest.raises(Refused) as refused:
        SitePolicy.from_claims(claims)
    assert refused.value.reason == "policy_invalid"


PLAIN = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.binary(max_size=3) | st.floats() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(st.dictionaries(st.sampled_from(["fun", "arg", "ttl", "devmax", "devttl", "grp", "offl", "org", "x"]), PLAIN))
def test_any_map_is_a_policy_or_refused(claims: dict[str, Any]) -> None:
    for changed in (claims, {**POLICY.to_claims(), **claims}):
        with suppress(Refused):
            SitePolicy.from_claims(changed)


@given(st.text(max_size=10), st.lists(PLAIN, max_size=3), st.dictionaries(st.text(max_size=3), PLAIN, max_size=3))
@example("state.apply", ["site/a", ["site/b"]], {"test": True})
def test_any_call_is_granted_or_refused(fun: str, arg: list[Any], kwarg: dict[str, Any]) -> None:
    granted(fun, *arg, policy=POLICY)
    for name in ("state.apply", "camera.reboot"):
        granted(name, *arg, **kwarg)
