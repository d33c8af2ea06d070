"""The broker as a second wall: who comes in, and what each may say and hear. The same for our mosquitto and for the
embedded one, except where mosquitto 2.0 cannot say it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from device_agent.protocol import limits
from device_agent.trust.keys import did_text
from gateway.broker.embedded import EmbeddedBroker
from gateway.broker.part import BrokerPart
from gateway.broker.passwords import hash_password
from gateway.broker.rules import ENROLL_PASSWORD, ENROLL_USER, PACKET_BYTES
from tests.peers.visitor import visit
from tests.peers.waiting import until
from tests.peers.walled import (
    ACK,
    ADA,
    BEN,
    JOB,
    NOT_AUTHORISED,
    REQUEST,
    TOPIC_ADA,
    TOPIC_BEN,
    TRUST,
    ada,
    ben,
    device,
    embedded,
    joining,
    knowing_two,
    managed,
    station,
)


@pytest.fixture(params=[managed, embedded])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BrokerPart]:
    """A broker that knows two devices."""
    make: Callable[[Path], BrokerPart] = request.param
    async with make(tmp_path) as made:
        await knowing_two(made)
        yield made


# --- who comes in ----------------------------------------------------------------------------------------------------


async def test_nobody_comes_in_without_a_name_a_place_and_the_right_password(broker: BrokerPart) -> None:
    carl = did_text(bytes(16))
    own = broker.station_address()
    strangers = [
        device(broker, None, None),
        device(broker, ADA, None),
        device(broker, ADA, "ben"),
        device(broker, carl, "ada"),
        device(broker, ENROLL_USER, ENROLL_PASSWORD),
        replace(own, username=ADA, password="ada") if own.unix_socket else device(broker, own.username, "guessed"),
        joining(broker),
        replace(joining(broker), username=None, password=None),
    ]
    for address in strangers:
        visitor = await visit(address, ADA)
        assert visitor.code == NOT_AUTHORISED, address.username
    assert (await ada(broker)).inside
    assert (await station(broker)).inside


async def test_nobody_takes_the_place_of_another_by_its_client_id(broker: BrokerPart) -> None:
    first = await ada(broker)
    master = await visit(broker.station_address(), "station")
    await broker.set_enrollment(True)
    intruders = [
        (device(broker, BEN, "ben"), ADA),
        (device(broker, BEN, "ben"), "station"),
        (device(broker, BEN, "ben"), broker.station_address().username or ""),
        (joining(broker), "station"),
    ]
    if isinstance(broker, EmbeddedBroker):
        # mosquitto has one space of client ids for all its doors.
        intruders.append((joining(broker), ADA))
    for address, client_id in intruders:
        await visit(address, client_id)
        await first.settled()
        await master.settled()
        assert first.inside
        assert master.inside


async def test_a_device_that_comes_again_takes_its_own_place(broker: BrokerPart) -> None:
    first = await ada(broker)
    assert (await ada(broker)).inside
    await until(lambda: first.gone, what="the end of the first connection")


async def test_a_removed_device_is_thrown_out_and_cannot_return_and_the_other_stays(broker: BrokerPart) -> None:
    gone, stays = await ada(broker), await ben(broker)
    await broker.remove_user(ADA)
    await until(lambda: gone.gone, what="the end of the connection")
    assert (await ada(broker)).code == NOT_AUTHORISED
    await stays.settled()
    assert stays.inside
    await broker.add_user(ADA, hash_password("new"))
    assert (await ada(broker)).code == NOT_AUTHORISED
    assert (await visit(device(broker, ADA, "new"), ADA)).inside


async def test_the_enrollment_door_is_closed_until_it_is_opened_and_throws_out_who_is_inside_when_it_closes(
    broker: BrokerPart,
) -> None:
    newcomer = did_text(bytes(16))
    assert (await visit(joining(broker), newcomer)).code == NOT_AUTHORISED
    await broker.set_enrollment(True)
    inside = await visit(joining(broker), newcomer)
    assert inside.inside
    assert broker.status()["enrollment"] is True
    await broker.set_enrollment(False)
    await until(lambda: inside.gone, what="the end of the connection")
    assert (await visit(joining(broker), newcomer)).code == NOT_AUTHORISED


async def test_what_was_told_before_it_opened_is_in_force_when_it_has(tmp_path: Path) -> None:
    for make in (managed, embedded):
        broker: BrokerPart = make(tmp_path)
        await knowing_two(broker)
        await broker.set_enrollment(True)
        async with broker:
            assert (await ada(broker)).inside
            assert (await visit(joining(broker), did_text(bytes(16)))).inside


# --- what they may say and hear --------------------------------------------------------------------------------------


async def test_a_device_hears_its_own_topics_the_group_and_the_trust_topic_and_nothing_else(broker: BrokerPart) -> None:
    listener = await ada(broker)
    for each in ("#", "os/#", f"{TOPIC_BEN}/job", f"{TOPIC_BEN}/+", "os/lisbon/d/+/up/f", "os/lisbon/enr/#", "$SYS/#"):
        await listener.subscribe(each)
    assert await listener.subscribe(f"{TOPIC_ADA}/job", JOB, ACK, TRUST, f"{TOPIC_ADA}/sok") == bytes(5)
    master = await station(broker)
    await (await ben(broker)).publish(f"{TOPIC_BEN}/up/f", b"not for her")
    for topic in (f"{TOPIC_BEN}/job", f"{TOPIC_BEN}/sok", "os/lisbon/enr/rsp/x", "os/lisbon/else", f"{TOPIC_ADA}/up/f"):
        await master.publish(topic, b"not for her")
    hers = [f"{TOPIC_ADA}/job", f"{TOPIC_ADA}/sok", JOB, ACK, TRUST]
    for topic in hers:
        await master.publish(topic, b"for her")
    await until(lambda: (TRUST, b"for her") in listener.heard, what="the last of hers")
    assert sorted(set(listener.heard)) == sorted((topic, b"for her") for topic in hers)


async def test_a_device_speaks_on_its_own_upward_topics_and_nowhere_else(broker: BrokerPart) -> None:
    master = await station(broker, "os/lisbon/#")
    other = await ben(broker)
    await other.subscribe(f"{TOPIC_BEN}/job", JOB, ACK, TRUST)
    forbidden = [TRUST, JOB, ACK, REQUEST, f"{TOPIC_ADA}/job", f"{TOPIC_BEN}/up/f", f"{TOPIC_BEN}/job"]
    for topic in [*forbidden, f"{TOPIC_ADA}/up/else", f"{TOPIC_ADA}/up/f/more", f"{TOPIC_ADA}/up"]:
        for retain in (False, True):
            # One connection for each: mosquitto ends one that says what it may not.
            await (await ada(broker)).publish(topic, b"forged", retain=retain)
    speaker = await ada(broker)
    for kind in ("ses", "f", "bye"):
        await speaker.publish(f"{TOPIC_ADA}/up/{kind}", b"said")
    await until(lambda: len(master.heard) >= 3, what="what may be said")
    await other.settled()
    assert master.heard == [(f"{TOPIC_ADA}/up/{kind}", b"said") for kind in ("ses", "f", "bye")]
    assert other.heard == []
    late = await station(broker, "os/lisbon/#")
    await late.settled()
    assert late.heard == []


async def test_a_last_will_goes_where_its_device_may_speak_and_nowhere_else(broker: BrokerPart) -> None:
    master = await station(broker, "os/lisbon/#")
    for topic in (TRUST, f"{TOPIC_BEN}/up/bye", JOB):
        (await ada(broker, will=(topic, b"forged"))).leave(politely=False)
        (await ada(broker, will=(topic, b"forged"), keep_will=True)).leave(politely=False)
    visitor = await ada(broker, will=(f"{TOPIC_ADA}/up/bye", b"bye"))
    assert visitor.inside
    visitor.leave(politely=False)
    await until(lambda: master.heard, what="the last will")
    assert master.heard == [(f"{TOPIC_ADA}/up/bye", b"bye")]


async def test_who_asks_to_join_can_ask_and_hear_his_own_answer_and_nothing_else(broker: BrokerPart) -> None:
    await broker.set_enrollment(True)
    newcomer, another = did_text(bytes(16)), did_text(bytes(15) + b"\1")
    master = await station(broker, "os/lisbon/#")
    listener = await visit(joining(broker), newcomer)
    await master.publish(TRUST, b"kept", retain=True)
    for each in ("#", "os/lisbon/#", JOB, TRUST, f"{TOPIC_ADA}/job", "os/lisbon/enr/rsp/+"):
        await listener.subscribe(each)
    assert await listener.subscribe(f"os/lisbon/enr/rsp/{newcomer}") == b"\0"
    for topic in (JOB, f"{TOPIC_ADA}/job", f"os/lisbon/enr/rsp/{another}", TRUST, REQUEST):
        await master.publish(topic, b"not for him")
    for topic in (JOB, f"{TOPIC_ADA}/up/f", f"os/lisbon/enr/rsp/{another}", TRUST, "os/lisbon/enr/else"):
        await (await visit(joining(broker), another)).publish(topic, b"forged")
    await (await visit(joining(broker), another)).publish(REQUEST, b"let me in")
    await until(lambda: (REQUEST, b"let me in") in master.heard, what="the request")
    assert not [topic for topic, payload in master.heard if payload == b"forged"]
    await master.publish(f"os/lisbon/enr/rsp/{newcomer}", b"come in")
    await until(lambda: listener.heard, what="the answer")
    assert listener.heard == [(f"os/lisbon/enr/rsp/{newcomer}", b"come in")]


@pytest.mark.parametrize("client_id", ["+", "#", "a/b", "a/+"])
async def test_a_client_id_that_is_a_wildcard_hears_nobodys_answer(broker: BrokerPart, client_id: str) -> None:
    await broker.set_enrollment(True)
    visitor = await visit(joining(broker), client_id)
    if not visitor.inside:
        return
    await visitor.subscribe("os/lisbon/enr/rsp/#")
    master = await station(broker)
    for name in (did_text(bytes(16)), "a/c"):
        await master.publish(f"os/lisbon/enr/rsp/{name}", b"sealed")
    await visitor.settled()
    assert visitor.heard == []


async def test_what_a_device_leaves_behind_is_heard_by_no_later_subscriber(broker: BrokerPart) -> None:
    """The station may hear it at mosquitto, and ignores what is marked as kept."""
    await (await ada(broker)).publish(f"{TOPIC_ADA}/up/f", b"left", retain=True)
    await broker.set_enrollment(True)
    late = [await ada(broker), await ben(broker), await visit(joining(broker), did_text(bytes(16)))]
    if isinstance(broker, EmbeddedBroker):
        late.append(await station(broker))
    for visitor in late:
        for each in ("#", f"{TOPIC_ADA}/up/f", f"{TOPIC_ADA}/#"):
            await visitor.subscribe(each)
        await visitor.settled()
        assert visitor.heard == []


async def test_what_the_station_keeps_on_the_trust_topic_reaches_a_device_that_comes_later(broker: BrokerPart) -> None:
    await (await station(broker)).publish(TRUST, b"bundle", retain=True)
    visitor = await ada(broker)
    await visitor.subscribe(TRUST)
    await until(lambda: visitor.heard == [(TRUST, b"bundle")], what="the trust topic")


async def test_the_largest_message_passes_and_a_larger_one_ends_its_connection(broker: BrokerPart) -> None:
    master = await station(broker, "os/lisbon/#")
    visitor = await ada(broker)
    topic = f"{TOPIC_ADA}/up/f"
    largest = bytes(limits.MESSAGE_BYTES)
    await visitor.publish(topic, largest)
    await until(lambda: master.heard == [(topic, largest)], what="the largest message")
    await visitor.publish(topic, bytes(PACKET_BYTES + 1))
    assert visitor.gone
    assert len(master.heard) == 1
