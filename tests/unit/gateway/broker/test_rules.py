"""gateway/broker/rules.py: who may say and hear what, and the files; a real mosquitto reads them in integration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device_agent.protocol import limits, topics
from device_agent.trust.keys import did_text
from gateway.broker.passwords import hash_password
from gateway.broker.rules import BrokerRules, Role, Users, is_did, may_read, may_write

DID, OTHER = did_text(bytes(16)), did_text(bytes(15) + b"\1")
HASH = hash_password("secret")


def rules(**given: Any) -> BrokerRules:
    fields = {"host": "192.0.2.1", "port": 1884, "enroll_port": 1885, "station_user": "station-1", **given}
    return BrokerRules(site="lisbon", folder=Path("/run/rules"), **fields)


def doors(text: str) -> dict[str, list[str]]:
    """The lines of each listener by its first line; what stands before them under the empty name."""
    found: dict[str, list[str]] = {"": []}
    for line in text.splitlines():
        if line.startswith("listener"):
            found[line] = []
        else:
            found[list(found)[-1]].append(line)
    return found


def device(judge: Any, topic: str) -> bool:
    allowed: bool = judge(Role.DEVICE, topic, site="lisbon", user=DID, client=DID)
    return allowed


# --- settings --------------------------------------------------------------------------------------------------------


def test_it_listens_where_it_is_told_and_nowhere_else() -> None:
    assert list(doors(rules(tls_port=8883).settings()))[1:] == [
        "listener 0 /run/rules/station",
        "listener 1884 192.0.2.1",
        "listener 1885 192.0.2.1",
        "listener 8883 192.0.2.1",
    ]
    assert list(doors(rules(host=None, station_door=False).settings()))[1:] == ["listener 1884", "listener 1885"]


def test_every_door_refuses_who_has_no_name_and_has_its_own_users_and_rules() -> None:
    listeners = doors(rules(tls_port=8883).settings())
    assert listeners.pop("")[1] == "per_listener_settings true"
    for lines in listeners.values():
        assert "allow_anonymous false" in lines
        assert sum(line.startswith(("password_file /run/rules/", "acl_file /run/rules/")) for line in lines) == 2
    bound = {name: "use_username_as_clientid true" in lines for name, lines in listeners.items()}
    # Whoever asks to join needs a client id of his own, to hear his own answer.
    assert [name for name, is_bound in bound.items() if not is_bound] == ["listener 1885 192.0.2.1"]
    assert listeners["listener 8883 192.0.2.1"][:4] == listeners["listener 1884 192.0.2.1"]


def test_the_canary_is_read_first_and_written_last() -> None:
    """So it can only be found changed when every other file has been read as it is now."""
    given = Users(devices={DID: HASH}, enrolling={}, station={"station-1": HASH, "rules": HASH})
    assert list(rules().password_files(given))[-1] == "station.passwords"
    first = list(doors(rules().settings()).items())[1][1]
    assert "password_file /run/rules/station.passwords" in first


def test_the_limits_that_drop_answers_are_lifted_and_nothing_is_kept_on_disk() -> None:
    """mosquitto.conf(5): 0 is without a limit for both."""
    settings = dict(line.split(" ", 1) for line in doors(rules().settings())[""])
    assert settings["max_queued_messages"] == "0"
    assert settings["max_inflight_messages"] == "0"
    assert settings["set_tcp_nodelay"] == "true"
    assert settings["persistence"] == "false"


def test_the_largest_message_of_ours_passes_with_its_topic_and_a_larger_one_does_not() -> None:
    settings = dict(line.split(" ", 1) for line in doors(rules().settings())[""])
    longest_topic = len(f"os/{'s' * 64}/d/{DID}/up/ses")
    assert limits.MESSAGE_BYTES + longest_topic < int(settings["max_packet_size"]) < 2 * limits.MESSAGE_BYTES


# --- access ----------------------------------------------------------------------------------------------------------


def test_the_access_lists_say_what_is_meant_and_not_a_line_more() -> None:
    assert rules().access(Role.DEVICE).splitlines() == [
        "pattern read os/lisbon/d/%u/+",
        "pattern read os/lisbon/g/all/+",
        "pattern read os/lisbon/trust",
        "pattern write os/lisbon/d/%u/up/ses",
        "pattern write os/lisbon/d/%u/up/f",
        "pattern write os/lisbon/d/%u/up/bye",
    ]
    assert rules().access(Role.ENROLLING).splitlines() == [
        "user enroll",
        "pattern read os/lisbon/enr/rsp/%c",
        "topic write os/lisbon/enr/req",
    ]
    assert rules().access(Role.STATION).splitlines() == [
        "user station-1",
        "topic read os/lisbon/#",
        "topic write os/lisbon/#",
    ]


def test_at_a_broker_of_somebody_else_the_station_comes_through_the_devices_door() -> None:
    external = rules(station_door=False)
    assert external.access(Role.DEVICE).splitlines()[-2:] == ["user station-1", "topic readwrite os/lisbon/#"]
    files = external.password_files(Users(devices={DID: HASH}, enrolling={}, station={"station-1": HASH}))
    assert files["devices.passwords"] == f"{DID}:{HASH}\nstation-1:{HASH}\n"
    assert not [name for name in {**files, **external.fixed_files()} if name.startswith("station")]


@pytest.mark.parametrize(
    "topic", [topics.device_job("lisbon", DID), topics.group_job("lisbon"), topics.group_ack("lisbon")]
)
def test_a_device_may_hear_the_topics_it_is_spoken_to_on(topic: str) -> None:
    assert device(may_read, topic)
    assert not device(may_write, topic)


@pytest.mark.parametrize("kind", ["ses", "f", "bye"])
def test_a_device_may_speak_on_its_upward_topics(kind: str) -> None:
    assert device(may_write, topics.device_up("lisbon", DID, kind))
    assert not device(may_write, topics.device_up("lisbon", OTHER, kind))
    assert not device(may_write, topics.device_up("porto", DID, kind))


@pytest.mark.parametrize(
    "topic",
    [
        "#",
        "+/#",
        "os/#",
        "os/lisbon/#",
        "os/+/trust",
        f"os/lisbon/d/{DID}/#",
        f"os/lisbon/d/{DID}/up/f",
        f"os/lisbon/d/{OTHER}/job",
        "os/lisbon/d/+/job",
        f"os/lisbon/d/{DID}",
        "os/lisbon/g/all/job/more",
        "os/lisbon/g/+/job",
        "os/lisbon/trust/more",
        "os/porto/trust",
        "",
    ],
)
def test_a_device_may_hear_nothing_else_nor_ask_for_it(topic: str) -> None:
    assert not device(may_read, topic)


def test_a_filter_that_stands_for_nothing_more_may_be_asked_for() -> None:
    assert device(may_read, f"os/lisbon/d/{DID}/+")
    assert device(may_read, "os/lisbon/g/all/+")
    assert may_read(Role.STATION, "os/lisbon/d/+/up/+", site="lisbon", user="s", client="s")
    assert not may_read(Role.STATION, "os/+/trust", site="lisbon", user="s", client="s")


# --- users -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a:b", "a\nb", "a\n", "a b", "+", "#", "a/b", "x" * 65])
def test_a_name_that_would_be_more_than_a_name_cannot_be_written(name: str) -> None:
    with pytest.raises(ValueError, match="password file"):
        Users(devices={name: HASH}, enrolling={}, station={})


@pytest.mark.parametrize("password_hash", ["", "plain", f"{HASH}\nx:{HASH}", f"{HASH}\n", HASH.replace("$7$", "$6$")])
def test_a_hash_that_is_none_cannot_be_written(password_hash: str) -> None:
    with pytest.raises(ValueError, match="password file"):
        Users(devices={}, enrolling={}, station={"station": password_hash})


@pytest.mark.parametrize("text", ["", DID.upper(), DID + "\n", DID[:-1], DID + "a", "+" * 26])
def test_what_has_not_the_form_of_a_did_is_none(text: str) -> None:
    assert is_did(DID)
    assert not is_did(text)
