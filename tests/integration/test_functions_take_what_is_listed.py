"""A function takes what the pages show and what ``sys.doc`` lists: each argument, in each form."""

from __future__ import annotations

import asyncio
import hashlib
import re

import pytest

from device_agent import loader
from device_agent.ended import Ended
from tests.peers import functions_page
from tests.peers.listed_calls import Shown, calls_in, listed_calls, shown_calls
from tests.peers.recording_host import RecordingHost
from tests.peers.recording_own import CONTENT, Effects, recording_own

FAULT = re.compile(r"(Type|Attribute|Key|Index|Name|UnboundLocal|Assertion|Recursion|NotImplemented)Error: ")
"""What a function raises when it does not know a form that it lists."""

WITHOUT_A_CALL = ("test.raise_exception", "test.exception")
"""They raise what they are given."""


WAITING = ("test.sleep", "test.rand_sleep", "ps.top")
WAITS_SECONDS = 0.5
"""A call is refused before it waits; how long one then waits does not matter here."""


async def called(call: Shown) -> Ended:
    """The end of a call on a device on paper; ``timed_out`` for one that waits."""
    own = recording_own("/var/lib/outstation", Effects(), hashlib.sha256(CONTENT).hexdigest())
    try:
        async with asyncio.timeout(WAITS_SECONDS if call.fun in WAITING else 30):
            return await loader.call(call.fun, RecordingHost("systemd", "apt"), call.arg, call.kwarg, own)
    except TimeoutError:
        assert call.fun in WAITING, call
        return Ended(outcome="timed_out")


async def test_every_command_on_a_page_is_taken() -> None:
    calls, unread = shown_calls()
    assert not unread, "no function is found in these commands:\n" + "\n".join(unread)
    assert {call.fun for call in calls} >= set(loader.names()), "each function has an example"
    refused = [f"{call}: {ended.why}" for call in calls if (ended := await called(call)).outcome == "refused"]
    assert not refused, "\n".join(refused)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("outstation run 'cam-*' test.ping", ["test.ping [] {}"]),
        (
            "`outstation run cam-7 test.echo a` and `outstation run cam-7 test.ping`",
            ["test.echo ['a'] {}", "test.ping [] {}"],
        ),
        ("outstation run -G os:Debian --limit 5s test.echo a=1 | wc -l", ["test.echo [] {'a': 1}"]),
        ("outstation run cam-7 \\\n    test.echo 5", ["test.echo [5] {}"]),
        ("outstation run cam-7 cmd.run 'echo a;\n  echo b'\nnext", ["cmd.run ['echo a;\\n  echo b'] {}"]),
        (
            "outstation run cam-7 cmd.run,test.ping,test.echo uptime , , hello",
            ["cmd.run ['uptime'] {}", "test.ping [] {}", "test.echo ['hello'] {}"],
        ),
        ("outstation run TARGET FUNCTION [ARG…]", []),
        ("outstation run cam-7 tset.ping", None),
        ("outstation run cam-7 ping", None),
        ("outstation run cam-7 test.ping,tset.ping", None),
        ("outstation run cam-7 test.ping,test.echo a , b , c", None),
        ("outstation run cam-7 cmd.run 'echo", None),
    ],
)
def test_a_command_is_read_or_counted_as_unread(text: str, calls: list[str] | None) -> None:
    found = calls_in({"page": text})
    assert [str(call) for call in found.calls] == [f"page: {call}" for call in calls or []]
    assert len(found.unread) == (calls is None)


@pytest.mark.parametrize("fun", [name for name in loader.names() if name not in WITHOUT_A_CALL])
async def test_every_argument_is_taken_in_each_form_that_is_listed(fun: str) -> None:
    for call in listed_calls(fun):
        ended = await called(call)
        assert not ended.why.startswith("bad_arguments"), f"{call}: {ended.why}"
        assert not FAULT.match(ended.why), f"{call}: {ended.why}"


async def test_an_argument_that_a_page_names_as_not_taken_is_refused() -> None:
    for name, word in functions_page.words("Not taken"):
        ended = await loader.call(name, RecordingHost("systemd", "apt"), [], {word: "x"})
        assert ended.why.startswith("bad_arguments"), f"{name} takes {word}"


def test_an_argument_that_a_page_says_more_about_is_there() -> None:
    for name, word in functions_page.words("Arguments"):
        taken = loader.signature(name).parameters
        assert word in taken or any(each.kind is each.VAR_KEYWORD for each in taken.values()) or word == "offline"


def test_no_function_that_the_page_names_as_missing_is_here() -> None:
    missing = functions_page.named("Functions of Salt that are not here")
    assert len(missing) > 100
    assert not missing & set(loader.names())
