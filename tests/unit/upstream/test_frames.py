"""upstream/frames.py."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from device_agent.errors import Refused
from device_agent.protocol import limits
from device_agent.protocol.links import Parcel, Sealed
from device_agent.protocol.messages import Cancel, encode_value
from upstream import frames, paging
from upstream.fault_frames import DETAIL_CHARACTERS, FAULTS, SiteFault
from upstream.frames import FromMaster, FromSite, decode_from_master, decode_from_site, encode
from upstream.story_frames import AskJob, Story, StoryTaken, UnknownJob

EPOCH = "0123456789abcdef"
JID = "20261121031500000000"


def record(**changed: Any) -> frames.DeviceRecord:
    """A device of lisbon."""
    given: dict[str, Any] = {
        "id": "cam-1",
        "site": "lisbon",
        "link": "mqtt",
        "agent": "0.1.0",
        "grains": encode_value({"os": "Debian"}),
        "present": True,
        "first_seen": 1.0,
        "last_seen": 2.0,
        "revision": 7,
        **changed,
    }
    return frames.DeviceRecord(**given)


FROM_SITE: list[FromSite] = [
    frames.SiteHello(protocol=2, site="lisbon", epoch=EPOCH, release="0.1.0", request=b"request", certificate=b"c"),
    frames.Batch(EPOCH, "returns", 4, [(5, b"item"), (9, b"")]),
    frames.LedgerReport(
        [frames.LedgerRow(name="events", accepted=9, delivered=5, pending=3, pending_bytes=700, dropped={"budget": 1})]
    ),
    frames.DeviceRecords(EPOCH, [record(), record(id="cam-2", revision=8)]),
    frames.SiteTells(
        [
            frames.GroupKeys(site="lisbon", certificate=b"c", epoch=1, keys=[(bytes(8), b"sealed")], signature=b"s"),
            frames.LeafRequest("porto", b"request", b"certificate"),
            frames.SiteRevocations("porto", b"list"),
            frames.MasterRevocations(bytes(8), b"list"),
        ]
    ),
    frames.Reseal(jid=JID, site="lisbon", reason="stale_epoch"),
    Story(JID, [b"item", b""], final=True),
    UnknownJob(JID),
    frames.Echo(3),
    frames.SiteRole(True, [SiteFault("store_failed", 1_795_230_900.0, "disk I/O error")]),
    frames.Bye(),
]
FROM_MASTER: list[FromMaster] = [
    frames.SiteWelcome("central", {"returns": 12}, 3),
    frames.SiteRefused("pending", "accept it"),
    frames.HelloAgain(),
    frames.Confirmed(EPOCH, "returns", 9),
    frames.RecordsConfirmed(8),
    frames.EchoReply(3),
    frames.SiteTrust(root_lists=[b"1", b"2"], certificate=b"c", revocations=[b"r"], leaves=[("porto", b"c")]),
    frames.SiteJob(b"job", 299.5, [Sealed("lisbon", "", b"sealed")]),
    Cancel(JID),
    AskJob(JID, anew=True),
    StoryTaken(JID),
]


def refused_by(decoder: Any, body: bytes) -> str:
    """The reason for which this decoder refuses these bytes."""
    with pytest.raises(Refused) as refusal:
        decoder(body)
    return refusal.value.reason


def packed(kind: str, *values: Any, **fields: Any) -> bytes:
    """A frame as anybody could write it, in the order of its fields."""
    names = {
        "batch": ["epoch", "stream", "after", "items"],
        "device_records": ["epoch", "records"],
        "echo": ["nonce"],
        "site_job": ["job", "remaining"],
    }.get(kind, [])
    return msgspec.msgpack.encode({"type": kind, **dict(zip(names, values, strict=False)), **fields})


@pytest.mark.parametrize("frame", FROM_SITE, ids=lambda frame: type(frame).__name__)
def test_what_a_site_says_is_read_as_it_was_written(frame: FromSite) -> None:
    assert decode_from_site(encode(frame)) == frame


@pytest.mark.parametrize("frame", FROM_MASTER, ids=lambda frame: type(frame).__name__)
def test_what_a_master_says_is_read_as_it_was_written(frame: FromMaster) -> None:
    assert decode_from_master(encode(frame)) == frame


@pytest.mark.parametrize("frame", FROM_MASTER, ids=lambda frame: type(frame).__name__)
def test_a_site_may_not_speak_as_a_master(frame: FromMaster) -> None:
    assert refused_by(decode_from_site, encode(frame)) == "wrong_type"


@pytest.mark.parametrize("frame", FROM_SITE, ids=lambda frame: type(frame).__name__)
def test_a_master_may_not_speak_as_a_site(frame: FromSite) -> None:
    assert refused_by(decode_from_master, encode(frame)) == "wrong_type"


def read_or_refused(body: bytes) -> None:
    """Both decoders give a frame that can be written again, or refuse; nothing else happens."""
    for decoder in (decode_from_site, decode_from_master):
        try:
            frame = decoder(body)
        except Refused:
            continue
        assert decoder(encode(frame)) == frame


@given(st.binary(max_size=2000))
@example(b"")
@example(b"\xc1")
@example(b"\x81\xa4type\xa5batch")
@example(b"\x91" * 3000)
def test_any_bytes_are_a_frame_or_refused(body: bytes) -> None:
    read_or_refused(body)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=20) | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
KINDS = st.sampled_from([msgspec.inspect.type_info(type(frame)).tag for frame in [*FROM_SITE, *FROM_MASTER]])  # type: ignore[attr-defined]  # every frame is a tagged Struct
FIELDS = st.sampled_from(
    sorted({name for frame in [*FROM_SITE, *FROM_MASTER] for name in msgspec.structs.asdict(frame)})
)


@given(KINDS, st.dictionaries(FIELDS, VALUES, max_size=8))
def test_any_fields_under_a_known_name_are_a_frame_or_refused(kind: str, fields: dict[str, Any]) -> None:
    read_or_refused(msgspec.msgpack.encode({"type": kind, **fields}))


@given(st.sampled_from([*FROM_SITE, *FROM_MASTER]), st.data())
def test_a_valid_frame_with_anything_changed_is_a_frame_or_refused(
    frame: FromSite | FromMaster, data: st.DataObject
) -> None:
    body = bytearray(encode(frame))
    for _ in range(data.draw(st.integers(1, 4), label="changes")):
        place = data.draw(st.integers(0, max(len(body) - 1, 0)), label="place")
        change = data.draw(st.sampled_from(["set", "cut", "add"]), label="change")
        if change == "set" and body:
            body[place] = data.draw(st.integers(0, 255), label="byte")
        elif change == "cut":
            del body[place:]
        else:
            body[place:place] = data.draw(st.binary(max_size=5), label="bytes")
    read_or_refused(bytes(body))


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=20), st.integers(0, 2**63 - 1))
def test_a_batch_is_read_only_when_each_sequence_follows_the_one_before(sequences: list[int], after: int) -> None:
    body = encode(frames.Batch(EPOCH, "returns", after, [(sequence, b"") for sequence in sequences]))
    rises = all(first < second for first, second in zip([after, *sequences], sequences, strict=False))
    if rises:
        assert isinstance(decode_from_site(body), frames.Batch)
    else:
        assert refused_by(decode_from_site, body) == "out_of_order"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (packed("batch", EPOCH, "returns", 0, []), "wrong_type"),
        (packed("batch", EPOCH, "returns", 0, [(n + 1, b"") for n in range(limits.BATCH_ITEMS + 1)]), "wrong_type"),
        (packed("batch", EPOCH, "returns", 0, [(1, bytes(limits.ITEM_BYTES + 1))]), "wrong_type"),
        (packed("batch", EPOCH, "returns", 0, [(2**63, b"")]), "wrong_type"),
        (packed("batch", EPOCH, "returns", -1, [(1, b"")]), "wrong_type"),
        (packed("batch", "not an epoch", "returns", 0, [(1, b"")]), "wrong_type"),
        (packed("batch", EPOCH, "returns", 0, [(1, b""), (1, b"")]), "out_of_order"),
        (packed("batch", EPOCH, "other", 0, [(1, b"")]), "wrong_type"),
        (packed("device_records", EPOCH, []), "wrong_type"),
        (packed("echo", 2**64 - 1), "wrong_type"),
        (packed("echo", "1"), "wrong_type"),
        (packed("nothing of ours"), "wrong_type"),
        (packed("site_hello", protocol=0, site="lisbon", epoch=EPOCH, release="1"), "wrong_type"),
        (packed("site_hello", protocol=1, site="li/sbon", epoch=EPOCH, release="1"), "wrong_type"),
        (packed("site_hello", protocol=1, site="lisbon\n", epoch=EPOCH, release="1"), "wrong_type"),
        (packed("site_hello", protocol=1, site="lisbon", epoch=EPOCH, release="x" * 65), "wrong_type"),
        (encode(frames.Echo(1))[:-1], "malformed"),
        (encode(frames.Echo(1)) + b"\x00", "malformed"),
        (bytes(limits.UPLINK_FRAME_BYTES + 1), "oversized"),
    ],
)
def test_a_frame_out_of_bounds_is_refused_with_its_reason(body: bytes, reason: str) -> None:
    assert refused_by(decode_from_site, body) == reason


@pytest.mark.parametrize(
    "changed",
    [
        {"grains": b"\xc1"},
        {"grains": encode_value([1, 2])},
        {"grains": encode_value({"a": {"b": 1}})[:-1]},
        {"grains": msgspec.msgpack.encode({1: "a key that is no text"})},
        {"grains": msgspec.msgpack.encode({"x": bytes(limits.GRAINS_BYTES)})},
        {"first_seen": float("nan")},
        {"last_seen": float("inf")},
        {"last_seen": 1e300},
        {"site": "../etc"},
        {"id": ""},
        {"revision": -1},
    ],
    ids=str,
)
def test_one_nonsense_record_refuses_its_page(changed: dict[str, Any]) -> None:
    body = encode(frames.DeviceRecords(EPOCH, [record(), record(**changed)]))
    assert refused_by(decode_from_site, body) in {"wrong_type", "malformed"}


@pytest.mark.parametrize("remaining", [float("nan"), float("inf"), -float("inf"), 1e300])
def test_a_remaining_time_no_clock_can_show_is_refused(remaining: float) -> None:
    assert refused_by(decode_from_master, encode(frames.SiteJob(b"job", remaining))) == "wrong_type"


def test_a_parcel_goes_in_frames_that_the_rope_takes_and_nothing_of_it_is_lost() -> None:
    sealed = tuple(Sealed("lisbon", f"cam-{number}", bytes(200_000)) for number in range(30))
    sent = list(paging.job_frames(Parcel(b"definition", sealed), 5.0))
    assert [entry for frame in sent for entry in frame.sealed] == list(sealed)
    assert {(frame.job, frame.remaining) for frame in sent} == {(b"definition", 5.0)}
    assert len(sent) > 1
    assert all(len(encode(frame)) < limits.UPLINK_FRAME_BYTES // 2 for frame in sent)
    assert [frame.sealed for frame in paging.job_frames(Parcel(b"definition", ()), 5.0)] == [[]]


def test_only_what_is_new_is_told_again() -> None:
    first = frames.SiteTrust(root_lists=[b"1"], certificate=b"c", revocations=[b"r"], leaves=[("a", b"x"), ("b", b"y")])
    assert paging.trust_news(first, frames.SiteTrust()) == first
    assert paging.trust_news(first, first) is None
    second = frames.SiteTrust(
        root_lists=[b"1", b"2"],
        certificate=b"c",
        revocations=[b"r", b"s"],
        leaves=[("a", b"x"), ("b", b"z")],
        group_epoch=2,
    )
    assert paging.trust_news(second, first) == frames.SiteTrust(
        root_lists=[b"1", b"2"], revocations=[b"s"], leaves=[("b", b"z")], group_epoch=2
    )


def test_what_is_told_takes_the_place_of_what_was_told_of_the_same_site_or_the_same_master() -> None:
    entries: list[frames.Told] = [
        frames.SiteRevocations("lisbon", b"1"),
        frames.SiteRevocations("porto", b"1"),
        frames.MasterRevocations(bytes(8), b"1"),
        frames.MasterRevocations(b"8 bytes.", b"1"),
    ]
    assert len({paging.subject(entry) for entry in entries}) == len(entries)
    assert paging.subject(frames.MasterRevocations(bytes(8), b"2")) == paging.subject(entries[2])


def test_many_leaves_go_in_frames_of_a_bounded_size_and_the_sites_own_in_the_first() -> None:
    many = [(f"site-{number}", bytes(frames.CERTIFICATE_BYTES)) for number in range(limits.LEAF_SITES)]
    sent = list(paging.trust_frames(frames.SiteTrust(root_lists=[b"1"], certificate=b"c", leaves=many)))
    assert [leaf for frame in sent for leaf in frame.leaves] == many
    assert [frame.certificate for frame in sent] == [b"c", *[b""] * (len(sent) - 1)]
    assert all(len(encode(frame)) < limits.UPLINK_FRAME_BYTES // 2 for frame in sent)
    requests = [frames.LeafRequest(name, body) for name, body in many]
    told = list(paging.told_frames(requests))
    assert [entry for frame in told for entry in frame.entries] == requests
    assert len(told) == len(sent)


class SiteTrustOf010(msgspec.Struct, frozen=True, kw_only=True, tag="site_trust"):
    """``SiteTrust`` as release 0.1.0 reads it."""

    root_lists: list[bytes] = []
    certificate: bytes = b""
    revocations: list[bytes] = []
    leaves: list[tuple[str, bytes]] = []
    group_epoch: int = 0


def test_a_site_of_release_0_1_0_passes_over_time_beacons() -> None:
    now = frames.SiteTrust(certificate=b"c", time_beacons=[b"beacon"])
    assert msgspec.msgpack.decode(encode(now), type=SiteTrustOf010) == SiteTrustOf010(certificate=b"c")


def test_only_a_beacon_that_a_site_was_not_told_is_news() -> None:
    before = frames.SiteTrust(time_beacons=[b"of a", b"of b"])
    assert paging.trust_news(before, before) is None
    now = frames.SiteTrust(time_beacons=[b"of a", b"newer of b"])
    assert paging.trust_news(now, before) == frames.SiteTrust(time_beacons=[b"newer of b"])


class OldRole(msgspec.Struct, frozen=True, tag="site_role"):
    """As release 0.1.0 has it."""

    active: bool


def test_a_role_with_faults_is_read_by_an_older_master_and_one_without_by_a_newer() -> None:
    fault = SiteFault("store_failed", 1.0, "disk I/O error")
    old = msgspec.msgpack.decode(encode(frames.SiteRole(True, [fault])), type=OldRole)
    assert old == OldRole(True)
    assert decode_from_site(msgspec.msgpack.encode(OldRole(False))) == frames.SiteRole(False, [])


@pytest.mark.parametrize(
    "faults",
    [
        [SiteFault("busy", 1.0)] * (FAULTS + 1),
        [SiteFault("busy", 1.0, "x" * (DETAIL_CHARACTERS + 1))],
        [SiteFault("", 1.0)],
        [SiteFault("r" * 65, 1.0)],
        [SiteFault("busy", float("nan"))],
    ],
)
def test_what_a_site_says_of_its_faults_is_bounded(faults: list[SiteFault]) -> None:
    assert refused_by(decode_from_site, encode(frames.SiteRole(True, faults)))
