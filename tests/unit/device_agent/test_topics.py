"""device_agent/protocol/topics.py."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.protocol import topics
from device_agent.trust.keys import DID_PATTERN, did_text

DID = did_text(bytes(range(16)))
dids = st.binary(min_size=16, max_size=16).map(did_text)


@given(device=dids, kind=st.sampled_from(["ses", "f", "bye"]))
def test_the_sender_is_who_published(device: str, kind: str) -> None:
    assert topics.sender(topics.device_up("lisbon", device, kind)) == device


@given(topic=st.text(max_size=300))
def test_any_topic_has_a_sender_or_is_refused(topic: str) -> None:
    try:
        sender = topics.sender(topic)
    except Refused as refused:
        assert (refused.reason, refused.detail) == ("bad_topic", topic[:200])  # noqa: PT017 - it may be one or not
    else:
        assert re.match(DID_PATTERN, sender)


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "os/lisbon/d",
        f"os/lisbon/d/{DID}",
        "os/lisbon/d//up/f",
        "os/lisbon/d/cam-1/up/f",
        f"os/lisbon/d/{DID.upper()}/up/f",
        f"os/l/d/{DID[:-1]}+/up/x",
        f"os/l/d/{DID}\n/up/x",
    ],
)
def test_a_topic_without_a_device_is_refused(topic: str) -> None:
    with pytest.raises(Refused, match="bad_topic"):
        topics.sender(topic)


def test_a_station_hears_what_devices_say_and_not_what_they_are_told() -> None:
    heard = re.compile(topics.station_filter("lisbon").replace("+", "[^/]+") + "$")
    assert heard.match(topics.device_up("lisbon", DID, "f"))
    told = [each("lisbon", DID) for each in (topics.device_job, topics.device_sok, topics.device_ep)]
    told += [each("lisbon") for each in (topics.group_job, topics.group_ack, topics.trust)]
    told += [topics.enrol_response("lisbon", DID)]
    assert not any(heard.match(topic) for topic in told)
    assert not heard.match(topics.device_up("porto", DID, "f"))


def test_no_two_things_are_said_on_one_topic() -> None:
    by_site = (topics.enrol_request, topics.group_job, topics.group_ack, topics.trust)
    by_device = (topics.enrol_response, topics.device_job, topics.device_sok, topics.device_ep)
    said = [each("lisbon") for each in by_site] + [each("lisbon", DID) for each in by_device]
    said += [topics.device_up("lisbon", DID, kind) for kind in ("ses", "f", "bye")]
    assert len(set(said)) == len(said)
