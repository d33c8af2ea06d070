"""Makes the seeds: one real object, or one real message, for each reader.

    .venv/bin/python -m tests.fuzz.corpus

Keys are the same each time; what is sealed to a key is not, so only what readers no longer take is written anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from device_agent import lean_mqtt
from device_agent.errors import Refused
from device_agent.protocol.links import Sealed
from device_agent.protocol.messages import (
    AuditRecord,
    Beat,
    Cancel,
    Certificate,
    Close,
    Confirm,
    Downward,
    EpochWanted,
    Event,
    Gone,
    Hello,
    Item,
    Job,
    JobDefinition,
    Manifest,
    OutcomeRecord,
    Reseal,
    Return,
    Running,
    Upward,
    Welcome,
    encode,
    encode_value,
)
from device_agent.protocol.outcomes import Outcome
from device_agent.protocol.questions import Answer, Question
from device_agent.trust import codec, cose, cose_sign, deliveries, epochs, hpke, join, join_answer, notices, sessions
from device_agent.trust.codec import encode as cbor
from device_agent.trust.keys import SigningKey
from device_agent.trust.policy import SitePolicy
from device_agent.trust.root_list import sign_root_list
from device_agent.trust.signed_job import ALL, JobHeader, Order, seal_for_device, seal_for_group
from device_agent.trust.site_request import sign_site_request
from device_agent.trust.token import JoinToken, SiteToken
from tests.fuzz import batch_seeds, envelopes, file_questions, messages, proofs, salt, signed_claims, uplink, world
from tests.fuzz.asked_seeds import ASKED
from tests.fuzz.choosing import Reader, for_reader, reader_of
from tests.fuzz.files import SEEDS, seeds
from tests.fuzz.world import CAMERA, DID, FLEET, JID, NOW
from tests.peers.fleet import SITE
from upstream import frames
from upstream.story_frames import AskJob, Story, StoryTaken, UnknownJob

GATEWAY: SigningKey = FLEET.site.key
ORDER = Order(fun="state.apply", arg=["site/base", 1, None, 2.5, b"\1"], kwarg={"test": True}, user="ana", why="audit")
BITS = b"\xff\x01"
RETURN = Return(
    jid=JID,
    fun="test.ping",
    outcome="ok",
    value={"a": [1, 2.5, None, "b", b"c"]},
    executions=1,
    outbox=b"8 bytes.",
    sequence=7,
)
EPOCH_OF_STORE = "0123456789abcdef"

Made = Mapping[str, bytes]


def header(sub: str, epoch: int | None, seq: int) -> JobHeader:
    return JobHeader(
        sub=sub, site=SITE, issued=NOW, expires=NOW + 300, jid=JID, seq=seq, tgt="cam-*", late="run", epoch=epoch
    )


def certificates() -> Made:
    """Of parties, and what asks for them."""
    policy = SitePolicy(
        fun=("test.*", "state.apply"), arg={"state.apply": ("site/*", "test=*")}, org={"salt": ("a.*",)}
    )
    site_request = sign_site_request(
        GATEWAY, site=SITE, kem=FLEET.site.kem.public, curve=FLEET.site.curve, nonce=world.NONCE, issued=NOW
    )
    return {
        "site_certificate": FLEET.certify_site(policy=policy),
        "site_request": site_request,
        "device_certificate": CAMERA.certificate,
        **world.SIGNED,
        "revocations": FLEET.revoke(FLEET.site, bytes(8), b"\1" * 8, site=SITE),
        "revocations_of_a_master": FLEET.revoke(FLEET.a, bytes(8)),
    }


def joining() -> Made:
    """Requests, answers, confirmations."""
    refused = join_answer.refuse(
        GATEWAY,
        request_body=world.REQUEST.body,
        device=DID,
        site=SITE,
        issued=NOW,
        state="pending",
        text="wait",
        root_lists=FLEET.chain,
        site_certificate=FLEET.site_certificate,
    )
    with_token = join.request(
        CAMERA.key, CAMERA.kem.public, nonce=world.NONCE, serial="SN-1", model="P3245", token=world.TOKEN
    )
    return {
        "request": with_token.payload,
        "confirm": join.confirm(CAMERA.key, site=SITE, request_body=world.REQUEST.body),
        "answer": world.sealed_answer(cbor(world.answer_content())),
        "refusal": refused,
    }


def sealed_things() -> Made:
    """Jobs, sessions, group keys."""
    opening = sessions.open_session(
        CAMERA.key,
        world.prekey(),
        nonce=world.NONCE,
        secret=b"\2" * 32,
        version=1,
        epoch=world.EPOCH,
        marks=[(FLEET.a.kid, 7)],
        now=world.MONOTONIC,
    )
    word = sessions.SessionOk(issued=NOW, epoch=world.EPOCH, version=1, index=7)
    return {
        "job": seal_for_group(FLEET.a.key, header(ALL, world.EPOCH, 1), ORDER, world.GROUP_KEY, world.SALT),
        "job_single": seal_for_device(FLEET.a.key, header(DID, None, 2), ORDER, CAMERA.kem.public),
        "prekey": world.PREKEY_BODY,
        "opening": opening.body,
        "session_ok": sessions.sign_session_ok(GATEWAY, device=DID, site=SITE, nonce=world.NONCE, word=word),
        "roll_call": sessions.sign_roll_call(GATEWAY, device=DID, site=SITE, sid=world.SID, issued=NOW),
        "bye": sessions.sign_bye(CAMERA.key, site=SITE, nonce=world.NONCE),
        "frame": world.session(device=True).seal(encode(RETURN), world.TOPIC, world.MONOTONIC),
        "epoch": epochs.seal_epoch(
            GATEWAY,
            device=DID,
            site=SITE,
            issued=NOW,
            epoch=world.EPOCH,
            revocation=True,
            group_key=world.GROUP_KEY,
            kem_public=CAMERA.kem.public,
        ),
        "cancel": notices.sign_cancel(GATEWAY, site=SITE, jid=JID, issued=NOW),
        "ack": notices.sign_ack(GATEWAY, site=SITE, jids=[JID, JID], bitmap=BITS, issued=NOW),
        "batch": batch_seeds.BATCH,
    }


def certified(real: Made) -> Made:
    """What stands inside of other objects."""
    content = world.answer_content()
    return {
        "root_list": FLEET.chain[0],
        "next_root_list": sign_root_list(replace(FLEET.root, version=2), FLEET.roots[:2]),
        "answer_content": cbor(content),
        "word": content[3],
        "refusing_word": codec.decode(real["refusal"])[3],
    }


def of_proofs(real: Made) -> Made:
    """As they come from others."""
    anchor = world.anchor()
    anchor.take_revocations(real["revocations"])
    token = JoinToken(FLEET.fingerprint, *world.TOKEN, SITE, "[2001:db8::1]:8884", tls=True)
    site_token = SiteToken(FLEET.fingerprint, FLEET.a.curve, ("tcp://a.example:4510", "tcp://b.example:4510"))
    made = {
        **dict(real) | {"item_proof": batch_seeds.PROOF},
        "kind": real["cancel"],
        "one_more_signature": real["root_list"],
        "bundle": notices.bundle(FLEET.chain, [FLEET.site_certificate], world.PREKEY_BODY, [real["revocations"]]),
        "delivery": deliveries.job_delivery(real["job"], 299.5, BITS),
        "delivery_of_a_cancel": deliveries.cancel_delivery(real["cancel"], None),
        "anchor": anchor.export(),
        "releases": world.releases(),
        "join_token": token.text().encode(),
        "site_token": site_token.text().encode(),
        "identity": DID.encode(),
        "kem_key": CAMERA.kem.public,
        "sealed": hpke.seal(CAMERA.kem.public, b"info", b"plaintext"),
    }
    others = {
        "job_single": "job",
        "revocations_of_a_master": "revocations",
        "refusal": "answer",
        "delivery_of_a_cancel": "delivery",
    }
    return _for_readers(proofs.READERS, made, others)


def of_signed_claims(real: Made) -> Made:
    """The claims alone, or the plaintext alone."""
    made = {name: cose.read(body, cose.kind(body)).payload for name, body in real.items() if _is_proof(body)}
    made |= {name: cose_sign.read(real[name], "os-root").payload for name in ("root_list", "next_root_list")}
    made["request"] = cose.read(world.REQUEST.body, "os-enr").payload
    made["answer"], made["refusal"] = made.pop("word"), made.pop("refusing_word")
    made["answer_device"], made["answer_site"] = made["device_certificate"], made["site_certificate"]
    made["order"] = cbor([ORDER.fun, ORDER.arg, ORDER.kwarg, {"user": ORDER.user, "why": ORDER.why}])
    made["revocations_of_a_site"] = made.pop("revocations")
    return _for_readers(signed_claims.READERS, made, {"job_single": "job"})


def of_envelopes(real: Made) -> Made:
    """Plain values, proofs, and the claims in them."""
    payload = cose.read(real["job"], "os-job").payload
    policy = SitePolicy(
        fun=("test.*", "state.*"), arg={"state.apply": ("a*", "null", "test=*")}, org={"salt": ("a.*",)}
    )
    made = {
        "codec": cbor({1: [0, 23, 24, 2**32, -1, 2**64 - 1], 2: b"bytes", "three": {"x": None, "y": [True, 1.5]}}),
        "arguments": cbor([[[[[[[[["deep"]]]]]]]]]),
        "cose": real["job"],
        "kind": real["cancel"],
        "cose_sign": real["root_list"],
        "claims": payload,
        "claims_with_a_key": cose.read(real["device_certificate"], "os-dev").payload,
        "policy": cbor(policy.to_claims()),
        "roles": cbor(["job", "enrol"]),
    }
    return _for_readers(envelopes.READERS, made, {"claims_with_a_key": "claims"})


def of_messages() -> Made:
    """One of each kind."""
    hello = Hello("0123456789abcdef", "0.1.0", {"os": "Debian", "cpus": 4, "ip": ["192.0.2.1"]}, b"8 bytes.", 7)
    upward: list[Upward] = [
        Question(1, "mine.get", b"body"),
        hello,
        Beat(EPOCH_OF_STORE, [JID]),
        Gone(EPOCH_OF_STORE),
        Running(JID),
        RETURN,
        Reseal(JID, "stale_epoch"),
        EpochWanted(),
    ]
    items: list[Item] = [
        Manifest(jid=JID, site=SITE, ids=["cam-1"], count=1, digest=bytes(32), revision=1, final=True),
        OutcomeRecord(jid=JID, site=SITE, id="cam-1", fun="test.ping", outcome=Outcome("ok"), value=[1], ended=1.5),
        Close(jid=JID, site=SITE, counts={"ok": 1}),
        Event(tag="salt/job/1/new", data={"a": [1, {"b": None}]}, stamp=1.5, site=SITE),
        JobDefinition(b"job", SITE),
        AuditRecord(
            mark=f"{EPOCH_OF_STORE}-1", site=SITE, at=1.5, user="a", door="b", action="c", subject="d", verdict="allow"
        ),
    ]
    job = Job(jid=JID, tgt="*", fun="test.echo", arg=[1, "a"], kwarg={"b": None}, user="ana", issued=1.5, expires=9.5)
    downward: list[Downward] = [Welcome(EPOCH_OF_STORE, 7), Confirm([JID]), Certificate(CAMERA.certificate)]
    downward += [Answer(1, b"body"), Answer(2, refused="not_found", why="no such thing")]
    made = ASKED | {"job": encode(job), "value": encode_value({"a": [1, -1, 2.5, None, True, "text", b"bytes"]})}
    others: dict[str, str] = {}
    kinds: dict[str, Sequence[Upward | Downward | Item]] = {"upward": upward, "downward": downward, "item": items}
    for reader, listed in kinds.items():
        for message in listed:
            name = f"{reader}_{type(message).__name__.lower()}"
            made[name], others[name] = encode(message), reader
    return _for_readers(messages.READERS, made, others)


def of_uplink(real: Made) -> Made:
    """One of each kind."""
    record = frames.DeviceRecord(
        id="cam-1",
        site=SITE,
        link="mqtt",
        agent="0.1.0",
        grains=encode_value({"os": "Debian"}),
        present=True,
        first_seen=1.0,
        last_seen=2.0,
        revision=7,
        state="accepted",
    )
    keys = frames.GroupKeys(site=SITE, certificate=b"c", epoch=1, keys=[(bytes(8), b"sealed")], signature=b"s")
    tells = frames.SiteTells(
        [
            keys,
            frames.LeafRequest(SITE, b"request"),
            frames.SiteRevocations(SITE, real["revocations"]),
            frames.MasterRevocations(bytes(8), real["revocations"]),
        ]
    )
    from_site: list[frames.FromSite] = [
        frames.SiteHello(protocol=2, site=SITE, epoch=EPOCH_OF_STORE, release="0.1.0", request=b"r", certificate=b"c"),
        frames.Batch(EPOCH_OF_STORE, "returns", 4, [(5, b"item"), (9, b"")]),
        frames.LedgerReport(
            [
                frames.LedgerRow(
                    name="events", accepted=9, delivered=5, pending=3, pending_bytes=700, dropped={"budget": 1}
                )
            ]
        ),
        frames.DeviceRecords(EPOCH_OF_STORE, [record]),
        tells,
        frames.Reseal(jid=JID, site=SITE, reason="stale_epoch"),
        Story(JID, [b"item"], final=True),
        UnknownJob(JID),
        frames.Echo(3),
        Question(1, "file.find", b"body"),
        frames.Bye(),
    ]
    from_master: list[frames.FromMaster] = [
        frames.SiteWelcome("central", {"returns": 12}, 3),
        frames.SiteRefused("pending", "accept it"),
        frames.HelloAgain(),
        frames.Confirmed(EPOCH_OF_STORE, "returns", 9),
        frames.RecordsConfirmed(8),
        frames.EchoReply(3),
        Answer(1, b"body"),
        frames.SiteTrust(root_lists=[b"1", b"2"], certificate=b"c", revocations=[b"r"], leaves=[("porto", b"c")]),
        frames.SiteJob(b"job", 299.5, [Sealed(SITE, "", b"sealed")]),
        Cancel(JID),
        AskJob(JID, anew=True),
        StoryTaken(JID),
    ]
    made, others = {"group_keys": frames.encode(keys)}, dict[str, str]()
    both = [*(("from_site", each) for each in from_site), *(("from_master", each) for each in from_master)]
    for reader, frame in both:
        name = f"{reader}_{type(frame).__name__.lower()}"
        made[name], others[name] = frames.encode(frame), reader
    return _for_readers(uplink.READERS, made, others)


def of_mqtt() -> Made:
    """What a broker sends, in pieces of three bytes."""
    packets = {
        "connack": b"\x20\x02\x00\x00",
        "suback": b"\x90\x05\x00\x01\x00\x00\x80",
        "pingresp": b"\xd0\x00",
        "publish": lean_mqtt.encode_publish("os/lisbon/g/all/job", b"payload"),
        "publish_of_200_bytes": lean_mqtt.encode_publish("t", bytes(200)),
    }
    streams = {**packets, "all": b"".join(packets.values())}
    return {name: b"\x03" + stream for name, stream in streams.items()}


def _for_readers(readers: Mapping[str, Reader], made: Made, others: Mapping[str, str]) -> Made:
    """The inputs by which readers get these; ``others`` says whose those are that are not named for their reader."""
    return {
        name: for_reader(readers, others.get(name, name), body)
        for name, body in made.items()
        if others.get(name, name) in readers
    }


def _is_proof(body: bytes) -> bool:
    return body.startswith(cose.SIGN1_TAG)


def all_seeds() -> dict[str, Made]:
    """Of each target."""
    real = {**certificates(), **joining(), **sealed_things()}
    real |= certified(real)
    return {
        "envelopes": of_envelopes(real),
        "proofs": of_proofs(real),
        "signed_claims": of_signed_claims(real),
        "messages": of_messages(),
        "uplink": of_uplink(real),
        "mqtt": of_mqtt(),
        "file_questions": file_questions.made(),
        "salt": salt.made(),
    }


def main() -> None:
    """Write what is missing or is no longer taken, and remove what is no longer made."""
    for target, made in all_seeds().items():
        known = seeds(target)
        (SEEDS / target).mkdir(parents=True, exist_ok=True)
        for name in known.keys() - made.keys():
            (SEEDS / target / name).unlink()
        for name, body in made.items():
            if name not in known or not _is_taken(target, known[name]):
                (SEEDS / target / name).write_bytes(body)


def _is_taken(target: str, body: bytes) -> bool:
    try:
        reader_of(target)(body)
    except Refused:
        return False
    return True


if __name__ == "__main__":
    main()
