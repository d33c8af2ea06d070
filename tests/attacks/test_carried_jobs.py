"""A job on its way is in the hands of whoever carries it, and of every other master: neither makes another job of it.

The carrier changes what the header says and cannot sign; another master signs whatever it likes, and did not seal.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from device_agent.protocol import topics
from device_agent.protocol.messages import Reseal, Return
from device_agent.trust import claims as c
from device_agent.trust import codec, cose
from device_agent.trust.deliveries import job_delivery
from device_agent.trust.keys import SigningKey
from device_agent.trust.root_list import MASTER_ROLES
from device_agent.trust.signed_job import TYP
from tests.peers.agent_process import NAME, AgentProcess
from tests.peers.broker import running_broker
from tests.peers.fleet import Fleet
from tests.peers.played_station import PlayedStation, a_job, played_station
from tests.peers.trusted_site import TrustedSite
from tests.peers.waiting import until

EVERYTHING = (*MASTER_ROLES, "root-shell")


@pytest.fixture
async def station(tmp_path: Path) -> AsyncIterator[PlayedStation]:
    fleet = Fleet("lisbon")
    # Both masters may order what leaves a trace: what stops the other one is not its roles.
    fleet.next_root(masters=(fleet.a.as_master(EVERYTHING), fleet.b.as_master(EVERYTHING)))
    async with running_broker(tmp_path) as broker, played_station(broker.address, TrustedSite(fleet)) as made:
        yield made


@pytest.fixture
async def agent(station: PlayedStation, tmp_path: Path) -> AsyncIterator[AgentProcess]:
    made = AgentProcess(station, tmp_path)
    await made.start()
    await station.joined([NAME])
    yield made
    await made.end(signal.SIGKILL)


def marking(path: Path, number: int, **fields: Any) -> Any:
    return a_job(number, fun="cmd.run", arg=[f"/bin/sh -c 'echo {number} >> {path}'"], **fields)


def with_header(body: bytes, **changes: Any) -> bytes:
    """The same job under another protected header, or with other claims; the signature is the one it had."""
    protected, unprotected, payload, signature = codec.decode(body[len(cose.SIGN1_TAG) :])
    header, claims = codec.decode(protected), codec.decode(payload)
    labels = {name: label for label, name in c.NAMES.items()}
    for name, value in changes.items():
        if name == "kid":
            header[cose.HEADER_KID] = value
        else:
            claims[labels[name]] = value
    parts = [codec.encode(header), unprotected, codec.encode(claims), signature]
    return cose.SIGN1_TAG + codec.encode(parts)


def signed_again(key: SigningKey, body: bytes, **changes: Any) -> bytes:
    """The same seal under a signature that holds."""
    return cose.sign(key, TYP, cose.read(with_header(body, **changes), TYP).claims)


async def say(station: PlayedStation, body: bytes) -> None:
    await station.link.publish(topics.group_job("lisbon"), job_delivery(body, 300.0, None))


async def outcome(station: PlayedStation, number: int) -> Return:
    return (await station.returned(a_job(number).jid, NAME))[-1]


async def test_whoever_carries_a_job_makes_it_no_other_job(
    station: PlayedStation, agent: AgentProcess, tmp_path: Path
) -> None:
    marks, site = tmp_path / "marks", station.site
    now, master_b = site.now(), site.fleet.b.key
    expired = station.sealed(marking(marks, 1), issued=now - 3600, expires=now - 3300)
    for_another = station.sealed(marking(marks, 2, tgt="cam-8"))
    for_today = station.sealed(marking(marks, 3))
    changed = [
        with_header(expired, exp=now + 300),
        with_header(expired, iat=now, exp=now + 300, seq=now * 1000),
        with_header(for_another, tgt="*"),
        with_header(for_another, tgt=NAME, tgt_type="list"),
        with_header(for_today, cti=a_job(4).jid.encode()),
        with_header(for_today, late="run"),
        with_header(for_today, kid=master_b.kid),
    ]
    for body in changed:
        assert cose.read(body, TYP).claims, "it can still be read"
        await say(station, body)
    # As it was signed it runs, under its own number and once.
    await say(station, for_today)
    assert (await outcome(station, 3)).outcome == "ok"
    assert marks.read_text() == "3\n"
    # Nobody was answered who had not signed: the carrier cannot make a device refuse what it was never asked.
    for number in (1, 2, 4):
        assert station.returns[a_job(number).jid][NAME] == []
    assert "refused reason=bad_signature " in agent.log
    assert agent.log.count("refused reason=") == 1


async def test_another_master_makes_no_seal_its_own_and_nobody_has_one_signed_under_another_header(
    station: PlayedStation, agent: AgentProcess, tmp_path: Path
) -> None:
    """It hears every job, may order everything itself, and has not sealed this one.

    The key of the master itself may be used by somebody as well who cannot read: it may be in a machine that signs.
    """
    marks, site = tmp_path / "marks", station.site
    later, fleet = site.now() + 300, site.fleet
    taken = [station.sealed(marking(marks, number)) for number in range(1, 6)]
    stolen = [
        signed_again(fleet.b.key, taken[0]),
        signed_again(fleet.b.key, taken[1], tgt="cam-*", exp=later + 60),
        signed_again(fleet.a.key, taken[2], tgt="cam-*"),
        signed_again(fleet.a.key, taken[3], late="run"),
        signed_again(site.key, taken[4]),
    ]
    for number, body in enumerate(stolen, start=1):
        await say(station, body)
        jid = a_job(number).jid
        await until(lambda: (NAME, Reseal(jid, "not_sealed_to_us")) in station.reseals, what=f"word of {number}")  # noqa: B023 - called at once
    # Nor does it use up the number of what it took: signed by whoever sealed it, the job runs.
    await say(station, taken[1])
    assert (await outcome(station, 2)).outcome == "ok"
    assert [number for number in (1, 3, 4, 5) if station.returns[a_job(number).jid][NAME]] == []
    # Either master is obeyed in what it sealed itself.
    for number, key in ((11, fleet.a.key), (12, fleet.b.key)):
        await say(station, station.sealed(marking(marks, number), key))
        assert (await outcome(station, number)).outcome == "ok"
    assert marks.read_text() == "2\n11\n12\n"
    assert "refused reason=not_sealed_to_us " in agent.log
