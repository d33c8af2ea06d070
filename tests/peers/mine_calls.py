"""Calls of ``mine.*`` one after another, for one device and for stock Salt: the same must come of each."""

from __future__ import annotations

from typing import Any, NamedTuple

SETTINGS: dict[str, Any] = {
    "mine_functions": {
        "test.echo": ["here"],
        "list": [{"mine_function": "test.echo"}, "x"],
        "mapping": {"mine_function": "test.echo", "text": "m"},
        "plain": ["test.echo"],
        "no.such": [],
        "kept": [{"mine_function": "test.echo"}, {"allow_tgt": "cam-*"}, {"allow_tgt_type": "glob"}, "y"],
        "fails": [{"mine_function": "test.exception"}, "no film"],
    }
}


class MineCall(NamedTuple):
    """One call."""

    fun: str
    arg: tuple[Any, ...] = ()
    kwarg: dict[str, Any] = {}  # noqa: RUF012 - a named tuple's default, which nobody changes


def call(fun: str, *arg: Any, **kwarg: Any) -> MineCall:
    return MineCall(f"mine.{fun}", arg, kwarg)


CALLS = (
    call("valid"),
    call("get", "*", "list"),
    call("update"),
    call("get", "*", "test.echo"),
    call("get", "*", "list,test.echo"),
    call("get", "*", ["list"]),
    call("get", "*", ["list", "nothing"]),
    # Not of "mapping": stock Salt takes mine_function out of it when it first looks, and then knows it no more.
    call("get", "*", "kept"),
    call("get", "*", "fails"),
    call("get", "*", "plain"),
    call("get", "cam-7", "nothing"),
    call("get", "other", "list"),
    call("get", "*", ""),
    call("get", "cam-[0-9]", "list", "pcre"),
    call("get", "other,cam-7", "list", tgt_type="list"),
    call("get", "os:Debian", "list", tgt_type="grain"),
    call("get", "os:(Debian|Alpine)", "list", tgt_type="grain_pcre"),
    call("get", "G@os:Debian and cam-*", "list", tgt_type="compound"),
    call("get", "not cam-*", "list", tgt_type="compound"),
    call("send", "alias", mine_function="test.echo"),
    call("send", "no.such"),
    call("send", "alias", "t", mine_function="test.echo"),
    call("get", "*", "alias"),
    call("send", "test.echo", "there"),
    call("get", "*", "test.echo"),
    call("delete", "alias"),
    call("get", "*", "alias"),
    call("delete", "alias"),
    call("update", mine_functions={"more": [{"mine_function": "test.echo"}, "q"]}),
    call("get", "*", "more,list"),
    call("update", clear=True, mine_functions={"alone": [{"mine_function": "test.echo"}, "r"]}),
    call("get", "*", "more,alone"),
    call("update", mine_functions=["test.version"]),
    call("update", mine_functions="test.echo"),
    call("flush"),
    call("get", "*", "alone"),
)
MINE = {each.fun for each in CALLS}
