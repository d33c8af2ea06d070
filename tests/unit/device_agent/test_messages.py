"""device_agent/protocol/messages.py: any bytes give a message or a refusal, and what is written is read again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.protocol import limits, messages
from device_agent.protocol.messages import (
    Beat,
    Certificate,
    Close,
    Confirm,
    EpochWanted,
    Event,
    Gone,
    Hello,
    Job,
    JobDefinition,
    Manifest,
    OutcomeRecord,
    Reseal,
    Return,
    Running,
    Welcome,
)
from device_agent.protocol.outcomes import Outcome

JID = "20231114221320250000"
REASONS = {"oversized", "malformed", "wrong_type", "too_deep", "grains_too_large"}
JOB = Job(
    jid=JID,
    tgt="*",
    fun="test.echo",
    arg=["a", 1, {"k": [None, 2.5, True]}],
    kwarg={"b": b"\x00"},
    user="root",
    issued=1.7e9,
    expires=1.7e9 + 300,
)
DOWNWARD: list[messages.Downward] = [
    Welcome(session="0123456789abcdef", index=7),
    Confirm(jids=[JID, JID]),
    Certificate(body=b"a certificate"),
]
UPWARD: list[messages.Upward] = [
    Hello(session="0123456789abcdef", agent="0.1.0", grains={"os": "Debian", "roles": ["a"], "n": {"x": 1}}),
    Beat(session="0123456789abcdef", running=[JID]),
    Gone(session="0123456789abcdef", why="stopped"),
    Running(jid=JID),
    Return(jid=JID, fun="test.echo", outcome="failed", retcode=-9, value={"a": [1, "é"]}, why="so", duration=0.5),
    Reseal(jid=JID, reason="stale_epoch"),
    EpochWanted(),
]
ITEMS: list[messages.Item] = [
    Manifest(jid=JID, site="lisbon", ids=["cam-1", "cam-2"], count=2, digest=b"\x01" * 32, revision=4, final=True),
    OutcomeRecord(
        jid=JID, site="lisbon", id="cam-1", fun="test.ping", outcome=Outcome.UNREACHABLE, seen=1.6e9, ended=1.7e9
    ),
    Close(jid=JID, site="lisbon", counts={"ok": 3, "failed": 1}),
    Event(tag="salt/auth", data={"id": "cam-1", "deep": {"er": [1]}}, stamp=1.7e9, site="lisbon"),
    JobDefinition(job=messages.encode(JOB), site="lisbon"),
]
DECODERS: dict[str, tuple[Callable[[bytes], Any], list[bytes]]] = {
    "job": (messages.decode_job, [messages.encode(JOB)]),
    "downward": (messages.decode_downward, [messages.encode(message) for message in DOWNWARD]),
    "upward": (messages.decode_upward, [messages.encode(message) for message in UPWARD]),
    "item": (messages.decode_item, [messages.encode(message) for message in ITEMS]),
    "value": (messages.decode_value, [messages.encode_value({"a": [1, None, "é", b"x", 1.5]})]),
}
names = st.sampled_from(sorted(DECODERS))


def decoded_or_refused(name: str, body: bytes) -> None:
    """The whole promise of a decoder; any exception but ``Refused`` leaves through here and fails the test."""
    decoder, _ = DECODERS[name]
    try:
        message = decoder(body)
    except Refused as refused:
        assert refused.reason in REASONS  # noqa: PT017 - it may be a message or not; not half
        return
    # A message that was accepted can be sent on, and is then the same message.
    again = messages.encode_value(message)
    assert messages.encode_value(decoder(again)) == again


@given(name=names, body=st.binary(max_size=200))
@example("value", b"\xd9\x01\xff")  # text that is not UTF-8
@example("value", b"\xc7\x0c\xff" + b"\xff" * 12)  # a time stamp no calendar has
@example("value", b"\x81\x90\x01")  # a key that cannot be hashed
@example("value", b"\x91" * 20_000)  # nesting past the interpreter's limit
@example("value", b"\xdd\xff\xff\xff\xff")  # a list said to have four thousand million items
@example("job", b"")
def test_any_bytes_are_a_message_or_refused(name: str, body: bytes) -> None:
    decoded_or_refused(name, body)


@given(data=st.data(), name=names)
def test_a_message_with_bytes_changed_is_a_message_or_refused(data: st.DataObject, name: str) -> None:
    body = bytearray(data.draw(st.sampled_from(DECODERS[name][1])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        match data.draw(st.sampled_from(["flip", "set", "remove", "insert", "cut"])):
            case "flip":
                body[at] ^= 1 << data.draw(st.integers(0, 7))
            case "set":
                body[at] = data.draw(st.integers(0, 255))
            case "remove" if len(body) > 1:
                del body[at]
            case "insert":
                body[at:at] = data.draw(st.binary(min_size=1, max_size=4))
            case _:
                del body[max(1, at) :]
    decoded_or_refused(name, bytes(body))


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | st.integers(0, 9), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(data=st.data(), name=names)
def test_a_message_with_a_field_of_any_other_kind_is_a_message_or_refused(data: st.DataObject, name: str) -> None:
    fields = msgspec.msgpack.decode(data.draw(st.sampled_from(DECODERS[name][1])))
    field = data.draw(st.sampled_from(sorted(fields)))
    fields[field] = data.draw(anything)
    decoded_or_refused(name, msgspec.msgpack.encode(fields))


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(value=plain)
def test_a_plain_value_comes_back_as_it_was(value: object) -> None:
    assert messages.decode_value(messages.encode_value(value)) == value
    returned = Return(jid=JID, fun="test.echo", outcome="ok", value=value)
    assert messages.decode_upward(messages.encode(returned)) == returned


@pytest.mark.parametrize("message", DOWNWARD, ids=lambda message: type(message).__name__)
def test_a_message_downward_comes_back_as_it_was(message: messages.Downward) -> None:
    assert messages.decode_downward(messages.encode(message)) == message


@pytest.mark.parametrize("message", UPWARD, ids=lambda message: type(message).__name__)
def test_a_message_upward_comes_back_as_it_was(message: messages.Upward) -> None:
    assert messages.decode_upward(messages.encode(message)) == message


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: type(item).__name__)
def test_an_item_comes_back_as_it_was(item: messages.Item) -> None:
    assert messages.decode_item(messages.encode(item)) == item


def test_a_job_comes_back_as_it_was() -> None:
    assert messages.decode_job(messages.encode(JOB)) == JOB


def refusal(decoder: Callable[[bytes], Any], body: bytes) -> str:
    with pytest.raises(Refused) as caught:
        decoder(body)
    return caught.value.reason


def test_a_message_over_its_size_is_refused_before_it_is_read() -> None:
    for decoder, _ in DECODERS.values():
        limit = limits.ITEM_BYTES if decoder is messages.decode_item else limits.MESSAGE_BYTES
        assert refusal(decoder, b"\xc0" * (limit + 1)) == "oversized"


def test_a_return_a_station_accepts_becomes_an_item_a_master_accepts() -> None:
    # A hostile device sends 32-bit floats, which are 64 bits wide when they are encoded again.
    floats = b"\xdd" + (50_000).to_bytes(4, "big") + b"\xca\x3f\x80\x00\x01" * 50_000
    plain = messages.encode(messages.Return(jid=JID, fun="test.ping", outcome="ok", value=None))
    body = plain.replace(b"\xa5value\xc0", b"\xa5value" + floats)
    arrived = messages.decode_upward(body)
    assert isinstance(arrived, messages.Return)
    item = messages.OutcomeRecord(
        jid=JID,
        site="s" * 64,
        id="d" * 128,
        fun=arrived.fun,
        outcome=Outcome.OK,
        value=arrived.value,
        why="\N{SNOWMAN}" * limits.WHY_CHARACTERS,
        ended=1.0,
    )
    encoded = messages.encode(item)
    assert len(encoded) > limits.MESSAGE_BYTES
    assert messages.decode_item(encoded) == item


def test_a_message_of_the_other_direction_is_refused() -> None:
    assert refusal(messages.decode_upward, messages.encode(Confirm(jids=[JID]))) == "wrong_type"
    assert refusal(messages.decode_downward, messages.encode(Running(jid=JID))) == "wrong_type"
    assert refusal(messages.decode_job, messages.encode(Running(jid=JID))) == "wrong_type"


@pytest.mark.parametrize(
    "wrong",
    [
        {"jid": "2023"},
        {"jid": JID + "\n"},
        {"tgt": ""},
        {"tgt": "x" * (limits.TARGET_CHARACTERS + 1)},
        {"tgt_type": "nodegroup"},
        {"fun": "Test.ping"},
        {"fun": "test"},
        {"fun": "os.path.join"},
        {"arg": [0] * (limits.ARGUMENTS + 1)},
        {"issued": math.nan},
        {"expires": math.inf},
        {"run_limit": 0.0},
        {"run_limit": limits.RUN_LIMIT_MAX_SECONDS + 1},
        {"late": "maybe"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_job_outside_its_bounds_is_refused(wrong: dict[str, Any]) -> None:
    fields = msgspec.msgpack.decode(messages.encode(JOB)) | wrong
    assert refusal(messages.decode_job, msgspec.msgpack.encode(fields)) == "wrong_type"


def test_values_nest_as_deep_as_the_limit_and_no_deeper() -> None:
    deep: Any = 1
    for _ in range(limits.VALUE_DEPTH):
        deep = [deep]
    assert messages.decode_value(messages.encode_value(deep)) == deep
    assert refusal(messages.decode_value, messages.encode_value([deep])) == "too_deep"


def test_keys_of_a_value_are_text() -> None:
    assert refusal(messages.decode_value, messages.encode_value({1: 2})) == "wrong_type"


def test_a_value_holds_no_foreign_type() -> None:
    assert refusal(messages.decode_value, msgspec.msgpack.encode(msgspec.msgpack.Ext(5, b"x"))) == "wrong_type"


def test_grains_over_their_size_are_refused_by_name() -> None:
    hello = Hello(session="0123456789abcdef", agent="x", grains={"a": "x" * limits.GRAINS_BYTES})
    assert refusal(messages.decode_upward, messages.encode(hello)) == "grains_too_large"
