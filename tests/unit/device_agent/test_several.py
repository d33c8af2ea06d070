"""device_agent/protocol/several.py: several functions in one job, and how far that reaches for whoever judges it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from device_agent.errors import NotFound, Refused
from device_agent.loader import find
from device_agent.protocol.several import ALONE, NAMES_CHARACTERS, SEVERAL, Call, calls, in_salt, of_salt, title
from device_agent.trust.policy import SitePolicy, check_function
from device_agent.trust.reach import CLASSES, FUNCTIONS, Reach, concerns, granted, needs_shell, reach_of

PING, RUN = ["test.ping", [], {}], ["cmd.run", ["id"], {}]


def named(*names: str) -> list[Any]:
    return [[name, [], {}] for name in names]


def test_they_are_called_in_their_order_and_each_has_its_own_arguments() -> None:
    arg = of_salt(["cmd.run", "test.echo"], [["uptime", {"__kwarg__": True, "cwd": "/"}], ["hello"]])
    assert calls(SEVERAL, arg, {}) == [
        Call("cmd.run", ["uptime"], {"cwd": "/"}),
        Call("test.echo", ["hello"], {}),
    ]
    assert title(SEVERAL, arg, {}) == "cmd.run,test.echo"
    assert in_salt(SEVERAL, arg, {}) == (
        ["cmd.run", "test.echo"],
        [["uptime", {"cwd": "/", "__kwarg__": True}], ["hello"]],
    )


def test_a_single_function_is_what_it_was() -> None:
    assert calls("cmd.run", ["uptime"], {"cwd": "/"}) == [Call("cmd.run", ["uptime"], {"cwd": "/"})]
    assert title("cmd.run", ["uptime"], {}) == "cmd.run"
    assert in_salt("cmd.run", ["a"], {"b": 1}) == ("cmd.run", ["a", {"b": 1, "__kwarg__": True}])


@pytest.mark.parametrize(
    ("arg", "kwarg"),
    [
        ([], {}),
        ([PING], {"x": 1}),
        (["test.ping"], {}),
        ([["test.ping", []]], {}),
        ([["test.ping", [], {}, 1]], {}),
        ([["test.ping", {}, {}]], {}),
        ([["test.ping,cmd.run", [], {}]], {}),
        ([["test.ping\n", [], {}]], {}),
        ([["ping", [], {}]], {}),
        ([[7, [], {}]], {}),
        ([[SEVERAL, [PING], {}]], {}),
        ([PING, *named(*ALONE)[:1]], {}),
        (named(*["test.versions_report"] * (NAMES_CHARACTERS // 21 + 1)), {}),
        ([["test.echo", list(range(257)), {}]], {}),
    ],
)
def test_what_is_no_list_of_calls_is_refused_and_reaches_as_far_as_any(arg: list[Any], kwarg: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        calls(SEVERAL, arg, kwarg)
    assert title(SEVERAL, arg, kwarg) == SEVERAL
    assert needs_shell(SEVERAL, (arg, kwarg))
    with pytest.raises(Refused):
        check_function(SitePolicy(fun=("test.*", "shell", f"{SEVERAL.partition('.')[0]}.*")), SEVERAL, arg, kwarg)


@pytest.mark.parametrize(("names", "args"), [(["a.b"], []), (["a.b"], ["x"]), (["a.b", "c.d"], [[], [], []])])
def test_salt_gives_each_its_list(names: list[str], args: list[Any]) -> None:
    with pytest.raises(Refused):
        of_salt(names, args)


@pytest.mark.parametrize(
    ("arg", "reach"),
    [
        (named("test.ping", "test.version"), "looks"),
        (named("test.ping", "file.read"), "reads"),
        (named("service.restart", "test.ping"), "changes"),
        ([PING, RUN], "shell"),
        ([RUN, PING], "shell"),
        ([PING, ["camera.snapshot", [], {"save_to": "/x"}]], "shell"),
        (named("test.ping", "nobody.knows"), None),
        (named("nobody.knows", "file.read"), None),
        ([["nobody.knows", [], {}], RUN], "shell"),
    ],
)
def test_several_reach_as_far_as_the_furthest_of_them(arg: list[Any], reach: Reach | None) -> None:
    assert reach_of(SEVERAL, (arg, {})) == reach
    # The role that a master needs is that which one of them needs by itself.
    assert needs_shell(SEVERAL, (arg, {})) is any(needs_shell(fun, given) for fun, *given in arg) is (reach == "shell")
    assert [term for term in CLASSES if concerns(term, SEVERAL, (arg, {}))] == [reach or "shell"]


@pytest.mark.parametrize("glob", ["_several.*", SEVERAL, "*", "_*", "test.*", "cmd.*", "test.ping,*"])
def test_no_glob_grants_several_at_once(glob: str) -> None:
    for arg in ([PING], [PING, RUN]):
        assert not granted(glob, SEVERAL, (arg, {}), spelled=True)
    assert not granted(glob, SEVERAL, None, spelled=True)


@pytest.mark.parametrize(
    ("fun", "allowed"),
    [(("test.*",), False), (("cmd.*",), False), (("looks",), False), (("test.*", "cmd.run"), True)],
)
def test_a_site_may_order_several_when_it_may_order_each(fun: tuple[str, ...], allowed: bool) -> None:
    for arg in ([PING, RUN], [RUN, PING]):
        done = False
        with suppress(Refused):
            check_function(SitePolicy(fun=fun), SEVERAL, arg, {})
            done = True
        assert done is allowed


def test_a_sites_globs_of_arguments_are_for_each() -> None:
    policy = SitePolicy(fun=("test.*", "cmd.run"), arg={"cmd.run": ("uptime",)}, org={"salt": ("test.*",)})
    check_function(policy, SEVERAL, [PING, ["cmd.run", ["uptime"], {}]], {})
    check_function(policy, SEVERAL, [PING, PING], {}, origin="salt")
    with pytest.raises(Refused, match=r"cmd\.run with the argument 'id'"):
        check_function(policy, SEVERAL, [PING, ["cmd.run", ["uptime"], {}], RUN], {})
    with pytest.raises(Refused, match=r"cmd\.run to salt"):
        check_function(policy, SEVERAL, [PING, ["cmd.run", ["uptime"], {}]], {}, origin="salt")


def test_no_release_has_a_function_of_that_name() -> None:
    assert SEVERAL not in FUNCTIONS
    with pytest.raises(NotFound):
        find(SEVERAL)
