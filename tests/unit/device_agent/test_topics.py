"""device_agent/protocol/topics.py."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.protocol import topics
from device_agent.protocol.messages import DEVICE_ID_PATTERN

device_ids = st.from_regex(DEVICE_ID_PATTERN.removesuffix(r"$(?!\n)"), fullmatch=True)


@given(device=device_ids, kind=st.sampled_from(["hello", "beat", "gone", "running", "return"]))
def test_the_sender_is_who_published(device: str, kind: str) -> None:
    assert topics.sender(topics.device_up("lisbon", device, kind)) == device


@given(topic=st.text(max_size=300))
def test_any_topic_has_a_sender_or_is_refused(topic: str) -> None:
    try:
        sender = topics.sender(topic)
    except Refused as refused:
        assert (refused.reason, refused.detail) == ("bad_topic", topic[:200])  # noqa: PT017 - it may be one or not
    else:
        assert re.match(DEVICE_ID_PATTERN, sender)


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "os/lisbon/d",
        "os/lisbon/d/cam-1",
        "os/lisbon/d//up/beat",
        "os/lisbon/d/c m/up/beat",
        "os/l/d/+/up/x",
        "os/l/d/a\n/up/x",
    ],
)
def test_a_topic_without_a_device_is_refused(topic: str) -> None:
    with pytest.raises(Refused, match="bad_topic"):
        topics.sender(topic)


def test_a_station_hears_what_devices_say_and_not_what_they_are_told() -> None:
    heard = re.compile(topics.station_filter("lisbon").replace("+", "[^/]+") + "$")
    assert heard.match(topics.device_up("lisbon", "cam-1", "return"))
    for told in (topics.device_job("lisbon", "cam-1"), topics.group_job("lisbon"), topics.group_ack("lisbon")):
        assert not heard.match(told)
    assert not heard.match(topics.device_up("porto", "cam-1", "return"))
