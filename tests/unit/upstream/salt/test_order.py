"""upstream/salt/order.py."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.protocol import limits
from upstream.salt import wire
from upstream.salt.order import FAULT_CHARACTERS, SaltOrder, read_order

JID = "20261123220000123456"
PING: dict[str, Any] = {
    "fun": "test.ping",
    "arg": [],
    "tgt": "cam-*",
    "tgt_type": "glob",
    "jid": JID,
    "ret": "",
    "to": 5,
    "user": "root",
    "auth_list": [],
    "serial": 3,
}


def test_a_plain_job() -> None:
    order = read_order(PING)
    assert (order.jid, order.fun, order.tgt, order.tgt_type) == (JID, "test.ping", "cam-*", "glob")
    assert (order.arg, order.kwarg, order.to, order.user, order.auth_list) == ([], {}, 5.0, "root", [])
    assert order.load == PING


def test_arguments_by_name_are_taken_out_of_their_map() -> None:
    order = read_order(PING | {"arg": ["uptime", {"__kwarg__": True, "timeout": 3}, {"plain": 1}]})
    assert order.arg == ["uptime", {"plain": 1}]
    assert order.kwarg == {"timeout": 3}


def test_a_map_that_only_looks_like_arguments_by_name_stays_an_argument() -> None:
    assert read_order(PING | {"arg": [{"__kwarg__": 1, "a": 2}]}).arg == [{"__kwarg__": 1, "a": 2}]


def test_a_compound_job_keeps_its_lists() -> None:
    order = read_order(PING | {"fun": ["test.ping", "cmd.run"], "arg": [[], ["uptime"]]})
    assert order.fun == ("test.ping", "cmd.run")
    assert order.arg == [[], ["uptime"]]


@pytest.mark.parametrize("tgt", [["a", "b"], "a,b", "a, b,"])
def test_a_list_is_one_in_either_form(tgt: object) -> None:
    assert read_order(PING | {"tgt": tgt, "tgt_type": "list"}).tgt == ("a", "b")


def test_what_a_master_leaves_out_has_a_default() -> None:
    order = read_order({"fun": "test.ping", "jid": JID, "tgt": "*"})
    assert (order.tgt_type, order.delimiter, order.ret, order.to) == ("glob", ":", "", 0.0)


@pytest.mark.parametrize(
    "jid",
    ["", "../../etc/passwd", "a/b", JID + "\n", "x" * 65, None, True, 1.5, [JID], b"\xff", wire.Unreadable("why")],
)
def test_an_order_whose_jid_no_answer_can_have_is_refused(jid: object) -> None:
    with pytest.raises(Refused) as refused:
        read_order(PING | {"jid": jid})
    assert refused.value.reason == "unusable_jid"
    assert "the field jid of a publish: found " in refused.value.detail


def test_an_order_without_a_jid_is_refused() -> None:
    with pytest.raises(Refused, match="unusable_jid"):
        read_order({"fun": "test.ping", "tgt": "*"})


@pytest.mark.parametrize(
    ("jid", "word"),
    [("2026", "2026"), ("my-job_1.a", "my-job_1.a"), (20261123220000123456, JID), (JID + "_x", JID + "_x"), (7, "7")],
)
def test_an_order_with_another_jid_can_be_answered_under_it(jid: object, word: str) -> None:
    order = read_order(PING | {"jid": jid})
    assert (order.jid, order.tgt, order.has_target) == (word, PING["tgt"], True)
    assert order.fault.startswith("the field jid of a publish: found ")


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("tgt", None, "allowed is text"),
        ("tgt", 7, "allowed is text"),
        ("tgt", [1, 2], "allowed are ids"),
        ("tgt", "x" * (128 * 1024 + 1), "at most 131072 characters"),
        ("tgt", wire.Unreadable("more than 1000000 values"), "more than 1000000 values"),
        ("tgt_type", 4, "allowed is text"),
        ("tgt_type", "x" * 257, "at most 256"),
        ("delimiter", 4, "allowed is text"),
        ("delimiter", [":"], "allowed is text"),
        ("delimiter", wire.Unreadable("deeper than 48"), "deeper than 48"),
    ],
)
def test_an_order_with_a_malformed_target_has_no_target_and_says_why(field: str, value: object, why: str) -> None:
    order = read_order(PING | {field: value})
    assert not order.has_target
    assert order.jid == JID
    assert order.fault.startswith(f"the field {field} of a publish: ")
    assert why in order.fault
    assert len(order.fault) <= FAULT_CHARACTERS
    assert order.load == {}
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(order), type=SaltOrder) == order


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("fun", None),
        ("fun", ""),
        ("fun", 7),
        ("fun", []),
        ("fun", ["a.b", 3]),
        ("fun", ["a.b"] * 65),
        ("fun", "x" * 300),
        ("arg", "uptime"),
        ("arg", [0] * 300),
        ("arg", [{"__kwarg__": True, 7: 8}]),
        ("auth_list", "all"),
        ("metadata", [1]),
        ("user", ["root"]),
        ("master_id", b"\xff"),
        ("arg", [{None: "b"}]),
        ("arg", [{1.5: "b"}]),
        ("arg", [{True: {b"\xff": 1}}]),
        ("arg", wire.Unreadable("deeper than 48")),
        ("ret", {None: 1}),
        ("metadata", {None: 1}),
        ("user", "x" * 257),
        ("tgt_extra", {"a": [{None: 1}]}),
    ],
)
def test_an_order_with_a_malformed_field_can_be_answered_and_grants_nothing(field: str, value: object) -> None:
    order = read_order(PING | {field: value})
    assert order.fault.startswith(f"the field {field} of a publish: ")
    assert len(order.fault) <= FAULT_CHARACTERS
    assert (order.jid, order.tgt, order.load) == (JID, PING["tgt"], {})
    assert order.fun
    assert order.has_target
    assert field != "arg" or (order.arg, order.kwarg) == ([], {})
    assert field != "auth_list" or order.auth_list == [None], "an empty list would be the superuser's"
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(order), type=SaltOrder) == order


def test_all_malformed_fields_are_named() -> None:
    order = read_order(PING | {"arg": [{None: 1}], "user": 7})
    assert "a key must be text or a whole number, found null" in order.fault
    assert "the field user of a publish" in order.fault


@pytest.mark.parametrize("to", [float("nan"), float("inf"), -1, True, "5", None, 10**30])
def test_a_wait_that_is_none_counts_as_not_said(to: object) -> None:
    assert read_order(PING | {"to": to}).to == 0.0


def test_a_list_names_as_many_as_a_site_has_and_no_more() -> None:
    names = [f"{number:0>128}" for number in range(limits.DEVICES_PER_STATION)]
    assert read_order(PING | {"tgt": names, "tgt_type": "list"}).tgt == tuple(names)
    for tgt, kind in (([*names, "x"], "list"), (names[:1_025], "compound")):
        order = read_order(PING | {"tgt": tgt, "tgt_type": kind})
        assert not order.has_target
        assert "the field tgt of a publish: allowed are ids of together at most" in order.fault


def test_an_order_is_read_back_from_disk_as_it_was() -> None:
    order = read_order(
        PING | {"arg": ["a", {"__kwarg__": True, "b": [1, {"c": None}]}], "tgt": ["x"], "tgt_type": "list"}
    )
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(order), type=SaltOrder) == order


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from([*PING, "delimiter", "metadata", "master_id"]), VALUES))
def test_any_load_is_an_order_or_refused(changes: dict[str, object]) -> None:
    with contextlib.suppress(Refused):
        assert isinstance(read_order(PING | changes).fun, (str, tuple))
