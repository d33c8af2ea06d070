"""Targets mean the devices they mean in stock Salt: its own matchers, on random expressions and random grains.

What differs on purpose is in docs/targets.md, and is kept out of what is drawn here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from device_agent.errors import UsageInvalid
from device_agent.protocol.messages import TargetType
from device_agent.protocol.targeting import compile_target
from gateway.jobs.nodegroups import Nodegroups
from tests.peers.salt_matchers import SaltMatchers
from tests.peers.salt_release import MINUTES, stock_python

pytestmark = [pytest.mark.system, pytest.mark.timeout(60 * (MINUTES + 5))]

# The fixture is one process for all that is drawn: it keeps nothing from one question to the next.
drawn = settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture(scope="module")
def salt() -> Iterator[SaltMatchers]:
    with SaltMatchers(stock_python()) as matchers:
        found = matchers.ask("grain", "loc:ro*", {"a": {"loc": {"room": "x"}}})
        assert found["a"], "Salt has matched the keys of mappings since its issue 35567"
        yield matchers


ids = st.sampled_from(["cam-1", "cam-2", "cam-10", "CAM-1", "gate.lisbon", "a", "ab", "edge_2", "x@y"])
keys = st.sampled_from(["os", "roles", "loc", "site", "a", "b", "Ab", "0", "1"])
words = st.sampled_from(["Debian", "debian", "Alpine", "a", "ab", "b", "camera", "edge", "10", "1", "0", "a:b", ""])
values = st.recursive(
    words | st.booleans() | st.none() | st.integers(-2, 12) | st.sampled_from([1.5, 0.0]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
ipv4 = st.sampled_from(["127.0.0.1", "10.0.0.1", "10.1.2.3", "192.0.2.9", "172.16.0.255"])
ipv6 = st.sampled_from(["::1", "fe80::1", "2001:db8::9", "2001:db8:1::9"])
grains = st.tuples(
    st.dictionaries(keys, values, max_size=5),
    st.fixed_dictionaries({}, optional={"ipv4": st.lists(ipv4, max_size=3), "ipv6": st.lists(ipv6, max_size=3)}),
).map(lambda both: {**both[0], **both[1]})
fleets = st.dictionaries(ids, grains, min_size=1, max_size=4)

id_globs = ids | st.text("camCAM-12*?[]!.", min_size=1, max_size=6)
id_lists = st.lists(ids | st.just("nobody"), min_size=1, max_size=4).map(",".join)
patterns = st.sampled_from(["cam", "cam-1$", "cam-(1|2)", "^c.m-[0-9]+$", ".*", "a?b", "(?i)CAM", r"\w+-\d$", "a|b"])
patterns |= st.sampled_from(["(c|ca|cam)+-(1|10|0)*$", ".*a.*m.*-.*1", r"^\D*$", "[a-z]{1,3}.(1|[^1])$", "(a*)*b"])
value_globs = words | st.sampled_from(["*", "d*", "?", "1*", "[a-c]*", "*e*", "none", "true", "fals?"])
value_patterns = words | st.sampled_from(
    [".*", "deb", "a|b", r"\d+$", "(debian|alpine)$", "[a-c]+", "1.?", ".*e.*i.*a"]
)
paths = st.lists(keys | st.just("*"), min_size=1, max_size=3)
grain_globs = st.tuples(paths, value_globs).map(lambda both: ":".join([*both[0], both[1]]))
grain_patterns = st.tuples(paths, value_patterns).map(lambda both: ":".join([*both[0], both[1]]))
subnets = (
    ipv4 | ipv6 | st.sampled_from(["10.0.0.0/8", "0.0.0.0/0", "192.0.2.0/24", "::/0", "2001:db8::/32", "fe80::/10"])
)


def check(
    salt: SaltMatchers, kind: TargetType, tgt: str, fleet: dict[str, dict[str, Any]], *, asked: str | None = None
) -> None:
    """Ours and Salt's are the same; where ours refuses a target, Salt's means nobody, or raises."""
    theirs = salt.ask(kind, asked or tgt, fleet)
    try:
        target = compile_target(tgt, kind)
    except UsageInvalid:
        target = None
    if target is None:
        assert True not in theirs.values(), "refused here, meant there"
        return
    ours = {device: target.matches(device, told) for device, told in fleet.items()}
    assert ours == theirs
    for device, meant in ours.items():
        assert not meant or target.why(device, fleet[device])


@drawn
@given(fleet=fleets, data=st.data())
def test_a_term_means_what_it_means_in_salt(salt: SaltMatchers, fleet: dict[str, Any], data: st.DataObject) -> None:
    kinds: dict[TargetType, st.SearchStrategy[str]] = {
        "glob": id_globs,
        "list": id_lists,
        "pcre": patterns,
        "grain": grain_globs,
        "grain_pcre": grain_patterns,
        "ipcidr": subnets,
    }
    kind = data.draw(st.sampled_from(list(kinds)))
    check(salt, kind, data.draw(kinds[kind]), fleet)


def prefixed(letter: str, inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return inner.map(lambda text: f"{letter}@{text}")


def barred(letter: str, value: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Another delimiter; Salt forgets it below a mapping, so no ':' and no '*' for a key."""
    plain = value.filter(lambda text: ":" not in text and "|" not in text)
    return st.tuples(st.lists(keys, min_size=1, max_size=2), plain).map(
        lambda both: f"{letter}|@{'|'.join([*both[0], both[1]])}"
    )


terms = (
    ids.filter(lambda name: "@" not in name)
    | st.sampled_from(["*", "cam-*", "?", "nobody"])
    | prefixed("G", grain_globs)
    | prefixed("P", grain_patterns)
    | prefixed("E", patterns)
    | prefixed("L", id_lists)
    | prefixed("S", subnets)
    | barred("G", value_globs)
    | barred("P", value_patterns)
)
expressions = st.recursive(
    terms,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["and", "or", "and not", "or not", "not"]), inner).map(" ".join)
        | inner.map(lambda text: f"( {text} )")
        | inner.map(lambda text: f"not ( {text} )")
    ),
    max_leaves=6,
)


@drawn
@given(fleet=fleets, tgt=expressions)
def test_a_compound_means_what_it_means_in_salt(salt: SaltMatchers, fleet: dict[str, Any], tgt: str) -> None:
    check(salt, "compound", tgt, fleet)


@drawn
@given(fleet=fleets, parts=st.lists(terms | st.sampled_from(["and", "or", "not", "(", ")"]), min_size=1, max_size=9))
def test_words_in_any_order_mean_what_they_mean_in_salt_or_nobody(
    salt: SaltMatchers, fleet: dict[str, Any], parts: list[str]
) -> None:
    tgt = " ".join(parts)
    if "( )" not in tgt:
        check(salt, "compound", tgt, fleet)


group_words = expressions.filter(lambda text: not text.startswith(("G|@", "P|@")) or " " in text)
group_words |= st.lists(ids, min_size=1, max_size=3).map(" ".join)


@drawn
@given(fleet=fleets, first=group_words, second=terms, third=terms)
def test_nodegroups_mean_what_they_mean_in_salt(
    salt: SaltMatchers, fleet: dict[str, Any], first: str, second: str, third: str
) -> None:
    groups: dict[str, Any] = {"g": first, "h": ["N@g", "and", "not", second], "i": f"N@h or N@g and {third}"}
    for tgt in ("( N@g ) and not ( N@h )", "( N@i )", "cam-1 or ( N@g )", "not ( N@h )"):
        theirs = salt.ask("compound", tgt, fleet, groups)
        try:
            target = compile_target(*Nodegroups(groups).signed(tgt, "compound"))
        except UsageInvalid:
            continue
        assert {device: target.matches(device, told) for device, told in fleet.items()} == theirs
