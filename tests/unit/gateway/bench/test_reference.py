"""The reference reads what a broker sends, in any pieces, and shares nothing with the product."""

from __future__ import annotations

import ast
import sys
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gateway.bench import reference

MESSAGES = st.dictionaries(
    st.text(st.characters(codec="utf-8", exclude_characters="\x00+#"), min_size=1, max_size=40),
    st.binary(max_size=300),
    max_size=8,
)


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    return [stream[start:end] for start, end in pairwise(ends)]


@given(messages=MESSAGES, places=st.lists(st.integers(0, 10_000), max_size=30))
def test_every_message_is_taken_whatever_pieces_it_comes_in(messages: dict[str, bytes], places: list[int]) -> None:
    stream = b"".join(reference.publish(topic, payload) for topic, payload in messages.items())
    seen: set[bytes] = set()
    rest = b""
    for piece in cut(stream, places):
        rest = reference.take(rest + piece, 0, seen)
    assert rest == b""
    assert seen == {topic.encode() for topic in messages}


@given(size=st.sampled_from([0, 1, 127, 128, 16_383, 16_384, 100_000]))
def test_a_remaining_length_of_any_size_is_written_and_read(size: int) -> None:
    seen: set[bytes] = set()
    whole = reference.publish("t", bytes(size))
    assert reference.take(whole[:-1], 0, seen) == whole[:-1]
    assert not seen
    assert reference.take(whole + b"\x30", size, seen) == b"\x30"
    assert seen == {b"t"}


def test_other_packets_are_no_answers() -> None:
    seen: set[bytes] = set()
    assert reference.take(b"\xd0\x00" + reference.publish("a", b"1") + b"\xd0\x00", 1, seen) == b""
    assert seen == {b"a"}


def test_what_is_too_small_for_an_answer_is_none() -> None:
    seen: set[bytes] = set()
    stream = reference.publish("a", b"x" * 100) + reference.publish("b", b"x" * 99) + reference.publish("c", b"")
    assert reference.take(stream, 100, seen) == b""
    assert seen == {b"a"}


def test_it_imports_nothing_but_pythons_own_library() -> None:
    tree = ast.parse(Path(reference.__file__).read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names
