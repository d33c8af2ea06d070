"""device_agent/loader.py: whatever is asked and whatever a function does, there is one end that can be sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent import functions, loader
from device_agent.ended import Ended, FunctionFailed
from device_agent.errors import NotFound
from device_agent.local_host import LocalHost
from device_agent.own import Own
from device_agent.protocol import limits
from device_agent.protocol.messages import Return, decode_upward, encode
from tests.peers.empty_host import EmptyHost

HOST = LocalHost({"os": "Debian"})
JID = "20231114221320250000"

STRANGE = '''
"""Functions that end in every way."""

import asyncio
from asyncio import sleep
from typing import Annotated

from msgspec import Meta

from device_agent.ended import Ended, FunctionFailed
from device_agent.host import Host


async def value(host: Host, kind: str):
    """Return something strange."""
    return {
        "tuple": (1, (2, 3)), "set": {2, 1}, "object": object(), "key": {1: 2}, "wide": 2**64, "surrogate": "\\ud800",
        "deep": __import__("functools").reduce(lambda inner, _: [inner], range(40), 1), "large": "x" * 300_000,
        "bytes": b"\\x00", "nothing": None, "odd one among others": {"a": {"n": -(2**63) - 1}, "b": (1, 2)},
        "foreign": {"a": {"n": object()}, "b": 1}, "same key": {"a": {1: 2, "1": 3}},
    }[kind]


async def raises(host: Host, kind: str):
    """Raise something."""
    if kind == "group":
        raise ExceptionGroup("two", [ValueError("one"), OSError("other")])
    raise {"value": ValueError("bad"), "exit": SystemExit(3), "long": ValueError("x" * 10_000),
           "surrogate": ValueError("\\ud800"), "recursion": RecursionError("deep"), "timeout": TimeoutError("late"),
           "failed": FunctionFailed("no film", 4, value={"left": 0})}[kind]


async def ends(host: Host, retcode: int, outcome: str = "failed"):
    """End in so many words."""
    return Ended(value=("a",), retcode=retcode, outcome=outcome, why="as asked")


async def sleeps(host: Host):
    """Wait for ever."""
    await asyncio.Event().wait()


async def takes(host: Host, must, might=2, *rest: int, only: Annotated[float, Meta(ge=0)] = 0.5, **named: str):
    """Show what came."""
    return [host.grains, must, might, list(rest), only, named]


async def _private(host: Host):
    return 1


def plain(host: Host):
    return 1


class Thing:
    async def __call__(self):
        return 1
'''


@pytest.fixture
def _strange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A device with two more files of functions, one of which does not load."""
    (tmp_path / "strange.py").write_text(STRANGE, encoding="utf-8")
    (tmp_path / "broken.py").write_text("import a_camera_without_this\n", encoding="utf-8")
    monkeypatch.setattr(functions, "__path__", [*functions.__path__, str(tmp_path)])
    forget()
    yield
    forget()


def forget() -> None:
    for cached in (loader.names, loader._module_names, loader._module):
        cached.cache_clear()


async def call(name: str, *arg: Any, **kwarg: Any) -> Ended:
    return sendable(name, await loader.call(name, HOST, list(arg), kwarg))


def sendable(name: str, ended: Ended) -> Ended:
    # What comes out can always be sent, whole.
    sent = Return(jid=JID, fun=name, outcome=ended.outcome, retcode=ended.retcode, value=ended.value, why=ended.why)
    received = decode_upward(encode(sent))
    assert isinstance(received, Return)
    assert received.why == ended.why
    return ended


def test_every_function_of_this_release_is_there() -> None:
    assert {
        "cmd.run",
        "cron.set_job",
        "file.read",
        "grains.set",
        "pkg.install",
        "sys.doc",
        "test.ping",
        "test.true",
    } <= set(loader.names())
    assert list(loader.names()) == sorted(loader.names())
    assert all(loader.find(name) for name in loader.names())
    assert loader.not_loaded() == []


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("test.png", "test.ping"),
        ("tst.ping", "test.ping"),
        ("cmd.runn", "cmd.run"),
        ("qq.zz", "sys.list_functions"),
    ],
)
async def test_an_unknown_function_is_refused_with_the_nearest(name: str, near: str) -> None:
    ended = await call(name)
    assert (ended.outcome, ended.retcode, ended.value) == ("refused", 1, None)
    assert ended.why.startswith("unknown_function: ")
    assert name in ended.why
    assert near in ended.why


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "test", "test.", ".ping", "test.ping.x", "Test.ping", "test.ping\n", "os.system", "builtins.eval"),
        *("test.__class__", "test.asyncio", "test.Any", "..test.ping", "test/ping.x", "sys.loader", "x" * 100_000),
        *("cmd._text", "grains.host", "cmd.signal", "__init__.x", "functions.test"),
    ],
)
async def test_what_is_no_function_is_not_found(name: str) -> None:
    with pytest.raises(NotFound) as caught:
        loader.find(name)
    assert len(str(caught.value)) < 1000
    ended = await loader.call(name, HOST, [], {})
    assert (ended.outcome, ended.why.partition(":")[0]) == ("refused", "unknown_function")


@pytest.mark.usefixtures("_strange")
@pytest.mark.parametrize(
    "name", ["strange._private", "strange.plain", "strange.Thing", "strange.sleep", "strange.asyncio"]
)
def test_private_plain_and_imported_names_are_not_functions(name: str) -> None:
    assert name not in loader.names()
    with pytest.raises(NotFound):
        loader.find(name)


@pytest.mark.usefixtures("_strange")
async def test_a_file_that_does_not_load_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    assert "test.ping" in loader.names()
    assert "strange.takes" in loader.names()
    assert "module=broken" in caplog.text
    ended = await call("broken.thing")
    assert ended.outcome == "refused"
    assert "a_camera_without_this" in ended.why


@pytest.mark.usefixtures("_strange")
async def test_arguments_are_bound_as_in_python() -> None:
    grains = {"os": "Debian"}
    assert (await call("strange.takes", 1)).value == [grains, 1, 2, [], 0.5, {}]
    assert (await call("strange.takes", 1, 3, 4, "5", only=2, more="x")).value == [
        grains,
        1,
        3,
        [4, 5],
        2.0,
        {"more": "x"},
    ]
    assert (await call("strange.takes", must="a", only="0.25")).value == [grains, "a", 2, [], 0.25, {}]


@pytest.mark.usefixtures("_strange")
@pytest.mark.parametrize(
    ("arg", "kwarg", "says"),
    [
        ([], {}, "missing a required argument: 'must'"),
        ([1], {"must": 2}, "multiple values for argument 'must'"),
        ([1, 2, "x"], {}, "rest: Expected `int`"),
        ([1], {"only": "soon"}, "only: Expected `float`"),
        ([1], {"only": -1}, "only: Expected `float` >= 0.0"),
        ([1], {"only": float("inf")}, "only: inf is not a finite number"),
        ([1], {"named": True}, "named: Expected `str`"),
        ([1], {"named": [3]}, "named: Expected `str`"),
        ([1], {"host": "evil"}, "unexpected keyword argument 'host'"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_with_what_fits(
    arg: list[Any], kwarg: dict[str, Any], says: str
) -> None:
    ended = await call("strange.takes", *arg, **kwarg)
    assert ended.outcome == "refused"
    assert ended.why.startswith("bad_arguments: strange.takes takes (must, might=2, *rest, only=0.5, **named); ")
    assert says in ended.why


async def test_no_argument_sets_the_host() -> None:
    for name in loader.names():
        given = loader._given(loader.find(name))
        assert given[0].lstrip("_") == "host"
        for key in given:
            ended = await call(name, **{key: "evil"})
            assert ended.outcome == "refused", (name, key)


@pytest.mark.usefixtures("_strange")
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("tuple", [1, [2, 3]]),
        ("set", [1, 2]),
        ("bytes", b"\x00"),
        ("nothing", None),
        ("key", {"1": 2}),
        ("wide", str(2**64)),
        ("surrogate", "\\ud800"),
        ("odd one among others", {"a": {"n": str(-(2**63) - 1)}, "b": [1, 2]}),
    ],
)
async def test_a_value_becomes_plain(kind: str, expected: Any) -> None:
    assert await call("strange.value", kind) == Ended(value=expected)


@pytest.mark.usefixtures("_strange")
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("object", "result_not_plain: object"),
        ("foreign", "result_not_plain: a:n: object cannot be a value"),
        ("same key", "result_not_plain: a: two keys are '1' as text"),
        ("deep", "result_not_plain: values nest"),
        ("large", "result_too_large: 300005 bytes"),
    ],
)
async def test_a_value_that_no_message_can_carry_is_a_failure_that_says_so(kind: str, reason: str) -> None:
    ended = await call("strange.value", kind)
    assert (ended.outcome, ended.value, ended.retcode) == ("failed", None, 1)
    assert ended.why.startswith(reason)


async def test_the_largest_value_and_the_longest_reason_fit_in_one_message() -> None:
    text = "x" * (loader.VALUE_BYTES - 5)
    ended = await call("test.echo", text)
    assert ended.value == text
    whole = Return(jid=JID, fun="x" * 130, outcome="failed", value=text, why="\U0001f4f7" * limits.WHY_CHARACTERS)
    assert len(encode(whole)) <= limits.MESSAGE_BYTES
    assert (await call("test.echo", text + "x")).why.startswith("result_too_large")


@pytest.mark.usefixtures("_strange")
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("value", "ValueError: bad"),
        ("exit", "SystemExit: 3"),
        ("recursion", "RecursionError: deep"),
        ("timeout", "TimeoutError: late"),
        ("group", "ValueError: one; OSError: other"),
        ("surrogate", "ValueError: ?"),
        ("long", "ValueError: " + "x" * (limits.WHY_CHARACTERS - 12)),
    ],
)
async def test_whatever_a_function_raises_is_a_failure_by_name(kind: str, why: str) -> None:
    assert await call("strange.raises", kind) == Ended(retcode=1, outcome="failed", why=why)


@pytest.mark.usefixtures("_strange")
async def test_a_function_can_fail_in_its_own_words() -> None:
    assert await call("strange.raises", "failed") == Ended({"left": 0}, 4, "failed", "no film")
    assert await call("strange.ends", 7) == Ended(["a"], 7, "failed", "as asked")
    assert (await call("strange.ends", 2**31)).why == "result_not_plain: the return code is 2147483648; as asked"
    assert isinstance(FunctionFailed("x"), Exception)


@pytest.mark.usefixtures("_strange")
async def test_a_cancelled_call_is_cancelled_and_not_failed() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await loader.call("strange.sleeps", HOST, [], {})


def test_usage_shows_what_a_function_takes_without_the_host() -> None:
    assert loader.usage("test.echo") == "test.echo takes (text)"
    assert loader.usage("grains.fetch") == "grains.fetch takes (key, default='', delimiter=':', ordered=True)"
    assert loader.usage("saltutil.find_job") == "saltutil.find_job takes (jid)"


arguments = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
SLEEPS = {"test.sleep", "test.rand_sleep"}


@given(
    name=st.sampled_from(sorted(set(loader.names()) - SLEEPS)),
    arg=st.lists(arguments, max_size=3),
    kwarg=st.dictionaries(
        st.sampled_from(["host", "text", "key", "default", "delimiter", "message", "retcode", "x"]), arguments
    ),
)
def test_any_arguments_come_to_an_end_that_can_be_sent(name: str, arg: list[Any], kwarg: dict[str, Any]) -> None:
    # With any arguments a function may do anything: never on the machine of the tests.
    empty = EmptyHost({"os": "Debian"})
    sendable(name, asyncio.run(loader.call(name, empty, arg, kwarg, Own(grains_file="/nowhere/grains"))))
