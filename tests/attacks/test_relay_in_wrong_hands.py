"""A relay in wrong hands: it makes up, changes, moves and repeats what sites behind it say, or withholds their proofs.

The attacker has the relay's own key, its store and its link to the master. The test is the attacker: it takes what the
relay would send, and sends something else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from device_agent.protocol import limits
from device_agent.protocol.messages import (
    AuditRecord,
    Close,
    Event,
    Item,
    JobDefinition,
    Manifest,
    OutcomeRecord,
    decode_item,
    encode,
    encode_value,
)
from device_agent.protocol.outcomes import Outcome
from device_agent.protocol.proven import split_proof, with_proof
from device_agent.trust.batches import read_proof
from gateway.devices.site_prover import SiteProver
from gateway.jobs.expect import pages
from tests.peers.central import EPOCH, answer, record
from tests.peers.database import FIRST_JID, a_job
from tests.peers.relayed import LEAF, RELAY, Numbered, Relayed, outcomes_in, relayed_stations


@pytest.fixture
async def stations(tmp_path: Path) -> AsyncIterator[Relayed]:
    async with relayed_stations(tmp_path) as made:
        yield made


def changed(items: Numbered, place: int, **fields: Any) -> Numbered:
    """The same items, with one changed and its proof kept."""
    sequence, raw = items[place]
    body, proof = split_proof(raw)
    assert proof
    item: Any = decode_item(body)
    other: Item = replace(item, **fields)
    return [*items[:place], (sequence, with_proof(encode(other), proof)), *items[place + 1 :]]


def stripped(items: Numbered) -> Numbered:
    """The same items without any proof."""
    return [(sequence, split_proof(raw)[0]) for sequence, raw in items]


def an_event(number: int) -> Event:
    return Event(tag=f"door/{number}", data={"open": True}, stamp=1.0, site=LEAF)


async def test_what_the_site_signed_is_taken_and_nothing_is_refused(stations: Relayed) -> None:
    await stations.trusted()
    jid = (await stations.issued()).job.jid
    await stations.arrives(await stations.says(*answer(jid, "a", "b")))
    assert stations.outcome(jid, "a")[0] == stations.outcome(jid, "b")[0] == "ok"
    assert stations.top.open_jobs.get(jid) is None
    assert stations.refused() == {}
    assert (await stations.finding()).severity == "ok"


async def test_a_return_that_the_relay_made_up_is_refused_and_the_device_has_a_named_outcome(stations: Relayed) -> None:
    await stations.trusted()
    opened = await stations.issued()
    jid = opened.job.jid
    await stations.arrives(await stations.says(*pages(jid, LEAF, ["a"], 1, final=True)))
    forged = record(jid, "a", value="made up", site=LEAF)
    await stations.arrives([(500, encode(forged))])
    assert stations.outcome(jid, "a") == ("", "")
    assert stations.refused() == {"unproven": 1}
    finding = await stations.finding()
    assert (finding.severity, finding.about) == ("error", LEAF)
    assert RELAY in finding.finding

    # Its last word, as if that had been all.
    last_word: list[Item] = [pages(jid, RELAY, [], 0, final=True)[0], Close(jid=jid, site=RELAY, counts={})]
    await stations.arrives([(501 + place, encode(item)) for place, item in enumerate(last_word)])
    await stations.look(opened)
    outcome, why = stations.outcome(jid, "a")
    assert outcome == "unknown"
    assert "did not sign" in why
    assert stations.top.open_jobs.get(jid) is None


@pytest.mark.parametrize(
    "bent",
    [{"value": "another"}, {"outcome": Outcome.FAILED}, {"id": "b"}, {"retcode": 7}, {"ended": 5.0}],
    ids=["value", "outcome", "device", "retcode", "time"],
)
async def test_a_return_that_the_relay_changed_is_refused(stations: Relayed, bent: dict[str, Any]) -> None:
    jid = (await stations.issued()).job.jid
    items = await stations.says(*answer(jid, "a", "b"))
    place = outcomes_in(items)[0]
    await stations.arrives(changed(items, place, **bent))
    # Also before the site has proven anything here: a proof that does not hold is none.
    assert stations.refused()["not_in_batch"] == 1
    assert stations.outcome(jid, "b")[0] == "ok"
    assert stations.outcome(jid, "a")[0] != "ok"


async def test_a_return_that_the_relay_moved_to_another_job_is_refused(stations: Relayed) -> None:
    first, second = (await stations.issued()).job.jid, (await stations.issued()).job.jid
    items = await stations.says(*answer(first, "a"))
    await stations.arrives(await stations.says(*pages(second, LEAF, ["a"], 1, final=True)))
    (place,) = outcomes_in(items)
    await stations.arrives(changed([(900 + items[place][0], items[place][1])], 0, jid=second))
    assert stations.refused() == {"not_in_batch": 1}
    assert stations.outcome(second, "a") == ("", "")


async def test_a_proof_under_another_place_in_the_store_is_refused(stations: Relayed) -> None:
    items = await stations.says(an_event(1), an_event(2), stream="events")
    (_, first), (number, second) = items
    swapped = with_proof(split_proof(first)[0], split_proof(second)[1])
    await stations.arrives([(number, swapped)], "events")
    assert stations.refused() == {"not_in_batch": 1}


async def test_the_relays_own_key_proves_nothing_for_a_site_behind_it(stations: Relayed) -> None:
    await stations.trusted()
    of_the_relay = stations.relay.authority.certificate
    assert of_the_relay is not None
    stations.top.authority.anchor.take_site_certificate(of_the_relay.body, stations.clock.wall())
    jid = (await stations.issued()).job.jid
    await stations.arrives(await stations.says(*pages(jid, LEAF, ["a"], 1, final=True)))
    forged = [(600, encode(record(jid, "a", value="made up", site=LEAF)))]
    in_its_own_name = SiteProver(RELAY, stations.relay.authority).items(EPOCH, "returns", forged)
    in_the_sites = SiteProver(LEAF, stations.relay.authority).items(EPOCH, "returns", [(601, forged[0][1])])
    await stations.arrives([*in_its_own_name, *in_the_sites])
    assert stations.refused() == {"unproven": 1, "wrong_site": 1}
    assert stations.outcome(jid, "a") == ("", "")


async def test_an_event_that_is_repeated_is_recognised_whatever_the_relay_calls_it(stations: Relayed) -> None:
    items = await stations.says(an_event(1), stream="events")
    await stations.arrives(items, "events")
    before = stations.top.metrics.refusals.copy()
    assert before == {}
    again = [(items[0][0] + 100, items[0][1])]
    await stations.arrives(again, "events")
    await stations.arrives([(items[0][0] + 101, items[0][1])], "urgent")
    # Also under another store of its own.
    await stations.top.inbox.position(RELAY, "f" * 16)
    await stations.arrives([(1, items[0][1]), (2, items[0][1])], "events", epoch="f" * 16)
    assert stations.refused() == {"repeated": 4}
    rows = await stations.top.reader.rows("SELECT count(*) FROM events WHERE tag = 'door/1'")
    assert rows == [(1,)]
    # What is new is still taken.
    await stations.arrives([(700, (await stations.says(an_event(2), stream="events"))[0][1])], "events", epoch="f" * 16)
    assert stations.refused() == {"repeated": 4}


async def test_a_site_whose_proofs_are_withheld_is_shown_and_later_refused(stations: Relayed) -> None:
    jid = (await stations.issued()).job.jid
    await stations.arrives(stripped(await stations.says(*answer(jid, "a"))))
    # It looks like a site of release 0.1: taken, and shown.
    assert stations.outcome(jid, "a")[0] == "ok"
    finding = await stations.finding()
    assert (finding.severity, finding.about) == ("warning", LEAF)

    await stations.trusted()
    assert (await stations.finding()).severity == "ok"
    opened = await stations.issued()
    await stations.arrives(stripped(await stations.says(*answer(opened.job.jid, "a"))))
    await stations.look(opened)
    assert stations.outcome(opened.job.jid, "a")[0] == "unknown"
    assert stations.refused()["unproven"] == 1
    assert (await stations.finding()).severity == "error"


async def test_a_master_that_requires_proofs_takes_nothing_without_one(stations: Relayed) -> None:
    stations.top.inbox.evidences._require = True
    jid = (await stations.issued()).job.jid
    await stations.arrives(stripped(await stations.says(*answer(jid, "a"))))
    await stations.arrives(stripped(await stations.says(an_event(1), stream="events")), "events")
    assert stations.outcome(jid, "a") == ("", "")
    assert set(stations.refused()) == {"unproven"}
    assert await stations.top.reader.rows("SELECT count(*) FROM events WHERE tag = 'door/1'") == [(0,)]


async def test_events_audit_rows_and_jobs_that_the_relay_made_up_are_refused(stations: Relayed) -> None:
    await stations.trusted()
    job = a_job(7)
    audit = AuditRecord(
        mark="0123456789abcdef-1",
        site=LEAF,
        at=1.0,
        user="eve",
        door="local",
        action="run",
        subject="*",
        verdict="allow",
    )
    made_up: list[Item] = [an_event(1), audit, JobDefinition(encode(job), LEAF)]
    await stations.arrives([(800 + place, encode(item)) for place, item in enumerate(made_up)])
    assert stations.refused() == {"unproven": 3}
    assert stations.top.open_jobs.get(job.jid) is None


async def test_a_job_of_the_site_that_the_master_let_go_does_not_come_back(stations: Relayed) -> None:
    job = a_job(9, issued=stations.clock.wall(), expires=stations.clock.wall() + 60)
    told = [JobDefinition(encode(job), LEAF), *answer(job.jid, "a")]
    items = await stations.says(*told)
    await stations.arrives(items)
    assert stations.outcome(job.jid, "a")[0] == "ok"
    for table in ("jobs", "outcomes", "manifests", "job_sites"):
        await stations.top.writer.commit([(f"DELETE FROM {table} WHERE jid = ?", [(job.jid,)])])
    stations.top.open_jobs.remove(job.jid)
    await stations.arrives([(sequence + 1000, body) for sequence, body in items])
    assert stations.refused()["repeated"] == 1
    assert stations.outcome(job.jid, "a") == ("", "")


async def test_the_relays_word_for_a_dark_site_names_the_relay_and_gives_way_to_the_sites(stations: Relayed) -> None:
    await stations.trusted()
    opened = await stations.issued()
    jid = opened.job.jid
    honest = await stations.says(*answer(jid, "a"))
    page = pages(jid, LEAF, ["a", "ghost"], 1, final=False)[0]
    lie = OutcomeRecord(
        jid=jid, site=LEAF, id="a", fun="test.ping", outcome=Outcome.EXPIRED, retcode=1, why="never sent", ended=1.0
    )
    await stations.arrives([(900, encode(page)), (901, encode(lie))])
    outcome, why = stations.outcome(jid, "a")
    assert outcome == "site_dark"
    assert why == f"{RELAY} says of its site {LEAF}: expired: never sent"
    # A device that the site never told of is not expected for it.
    assert opened.branches[RELAY].expected == 1
    await stations.arrives([(sequence + 1000, body) for sequence, body in honest])
    assert stations.outcome(jid, "a")[0] == "ok"


async def test_what_a_device_reports_is_what_its_site_signed(stations: Relayed) -> None:
    (old,) = await stations.tells_row("a", grains=encode_value({"role": "old"}))
    (row,) = await stations.tells_row("a", grains=encode_value({"role": "door"}))
    await stations.row_arrives([row])
    assert stations.known("a") == {"role": "door"}
    stations.clock.move(3600.0)

    lies = [
        replace(row, grains=encode_value({"role": "safe"}), revision=50, proven=b""),
        replace(row, id="ghost", revision=51),
        replace(row, id="ghost", revision=52, proven=b""),
        replace(old, revision=53),
        replace(row, revision=54, proven=row.proven[:-1] + bytes((row.proven[-1] ^ 1,))),
    ]
    for lie in lies:
        await stations.row_arrives([lie])
    assert stations.refused() == {"unproven": 2, "not_in_batch": 2, "repeated": 1}
    assert (stations.known("a"), stations.known("ghost")) == ({"role": "door"}, {})
    # Fields beside the signed row count for nothing, and that it is away may be said: it is withholding.
    await stations.row_arrives([replace(row, revision=55, agent="9.9.9", present=False)])
    device = stations.top.registry.known(LEAF, "a")
    assert device is not None
    assert (device.agent, device.present) == ("0.1.0", False)


async def test_the_story_of_a_job_comes_with_the_proofs_of_the_site(stations: Relayed) -> None:
    await stations.trusted()
    jid = (await stations.issued()).job.jid
    await stations.says(*answer(jid, "a", "b"))
    story = await stations.story(jid)
    await stations.top.inbox.commit_story(RELAY, story)
    assert stations.outcome(jid, "a")[0] == stations.outcome(jid, "b")[0] == "ok"
    assert stations.refused() == {}
    assert stations.top.open_jobs.get(jid) is None


async def test_a_story_that_the_site_told_the_relay_is_proven_too(stations: Relayed) -> None:
    await stations.trusted()
    jid = (await stations.issued()).job.jid
    told = stations.prover.told(EPOCH, [encode(item) for item in answer(jid, "a")])
    assert [read_proof(split_proof(body)[1]).sequence for body in told] == sorted(
        read_proof(split_proof(body)[1]).sequence for body in told
    )
    await stations.relay.inbox.commit_story(LEAF, told)
    await stations.arrives(await stations.passed_on())
    assert stations.outcome(jid, "a")[0] == "ok"
    assert stations.refused() == {}


async def test_a_site_of_release_0_1_keeps_working_and_is_shown(stations: Relayed) -> None:
    jid = (await stations.issued()).job.jid
    await stations.arrives(await stations.says(*answer(jid, "a"), signs=False))
    await stations.row_arrives(await stations.tells_row("a", signs=False))
    assert stations.outcome(jid, "a")[0] == "ok"
    assert stations.known("a") == {"site": LEAF}
    assert stations.refused() == {}
    finding = await stations.finding()
    assert (finding.severity, finding.about) == ("warning", LEAF)


async def test_a_site_that_went_back_to_release_0_1_is_taken_when_the_settings_name_it(stations: Relayed) -> None:
    await stations.trusted()
    stations.top.inbox.evidences._exempt = frozenset({LEAF})
    jid = (await stations.issued()).job.jid
    await stations.arrives(await stations.says(*answer(jid, "a"), signs=False))
    assert stations.outcome(jid, "a")[0] == "ok"
    assert (await stations.finding()).severity == "warning"


async def test_a_master_of_release_0_1_understands_what_comes_with_proofs(stations: Relayed) -> None:
    jid = str(FIRST_JID)
    items = await stations.says(an_event(1), stream="events")
    assert [decode_item(body) for _, body in items] == [an_event(1)]
    page = Manifest(jid=jid, site=LEAF, ids=[], count=0, digest=b"", revision=0, final=True)
    ((_, body),) = stations.prover.items(EPOCH, "returns", [(1, encode(page))])
    assert decode_item(body) == page


async def test_made_up_sites_do_not_keep_a_real_one_from_being_remembered(stations: Relayed) -> None:
    evidences = stations.top.inbox.evidences
    await evidences.load()
    for number in range(limits.LEAF_SITES + 5):
        evidences.unproven(f"ghost-{number}", RELAY)
    await stations.trusted()
    known = {site.site: site for site in await evidences.sites()}
    assert len(known) == limits.LEAF_SITES
    assert known[LEAF].first
    assert evidences.must_prove(LEAF)
    rows = await stations.top.reader.rows("SELECT count(*), sum(site = ?) FROM relayed_sites", (LEAF,))
    assert rows == [(limits.LEAF_SITES, 1)]
