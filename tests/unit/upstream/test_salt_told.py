"""upstream/salt/above.py: what a Salt master is told of a job with several functions, as its own minions tell it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.peers.salt_above import ChannelDouble
from upstream.salt.above import Above
from upstream.salt.ports import DeviceAnswer, ReturnsOfJob
from upstream.salt.terms import SaltRules

FUNCTIONS = ("cmd.run", "test.ping")
VALUE = {"cmd.run": "said", "test.ping": True}


async def told(answer: DeviceAnswer, fun: str | tuple[str, ...]) -> dict[str, Any]:
    channel = ChannelDouble({})
    await Above(SaltRules(id="lisbon"), channel, channel).returns([ReturnsOfJob("1", fun, {"cam-1": answer})])
    (entry,) = channel.fields["load"]
    assert entry["fun"] == (fun if isinstance(fun, str) else list(fun))
    found: dict[str, Any] = entry["return"]["cam-1"]
    return found


@pytest.mark.parametrize(
    ("answer", "value", "retcode", "success"),
    [
        (DeviceAnswer(VALUE), VALUE, [0, 0], [True, True]),
        (DeviceAnswer(VALUE, 3, success=False, retcodes={"cmd.run": 3, "test.ping": 0}), VALUE, [3, 0], [False, True]),
        # From a gateway below that does not pass them on.
        (DeviceAnswer(VALUE, 3, success=False), VALUE, [3, 3], [False, False]),
        (
            DeviceAnswer("refused: no", 1, success=False),
            dict.fromkeys(FUNCTIONS, "refused: no"),
            [1, 1],
            [False, False],
        ),
    ],
)
async def test_each_field_has_an_entry_for_each_function(
    answer: DeviceAnswer, value: Any, retcode: list[int], success: list[bool]
) -> None:
    found = await told(answer, FUNCTIONS)
    assert found["return"] == value
    assert found["retcode"] == dict(zip(FUNCTIONS, retcode, strict=True))
    assert found["success"] == dict(zip(FUNCTIONS, success, strict=True))


async def test_a_single_function_is_told_as_it_was() -> None:
    found = await told(DeviceAnswer(VALUE, 3, success=False), "test.arg")
    assert (found["return"], found["retcode"], found["success"]) == (VALUE, 3, False)
