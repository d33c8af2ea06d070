"""Target: the messages inside a session, jobs, items of a spool, and values: all that is msgpack on the device link.

What was accepted can be written again and is accepted again; a return that a station accepts makes an item that a
master accepts.
"""

from __future__ import annotations

from device_agent.errors import Refused
from device_agent.protocol import device_events, mine, proven
from device_agent.protocol.messages import (
    Event,
    OutcomeRecord,
    Return,
    decode_downward,
    decode_item,
    decode_job,
    decode_upward,
    decode_value,
    encode,
    encode_value,
)
from device_agent.protocol.outcomes import Outcome
from gateway.devices.device_events import shape
from gateway.mine import words_up
from tests.fuzz.choosing import Reader, accepted_again, chosen
from tests.fuzz.world import NOW
from tests.peers.fleet import SITE


def _job(body: bytes) -> object:
    job = decode_job(body)
    accepted_again(decode_job, encode(job))
    return job


def _downward(body: bytes) -> object:
    message = decode_downward(body)
    accepted_again(decode_downward, encode(message))
    return message


def _upward(body: bytes) -> object:
    message = decode_upward(body)
    accepted_again(decode_upward, encode(message))
    if isinstance(message, Return):
        record = OutcomeRecord(
            jid=message.jid,
            site=SITE,
            id="cam-1",
            fun=message.fun,
            outcome=Outcome(message.outcome),
            retcode=message.retcode,
            value=message.value,
            why=message.why,
            ended=float(NOW),
            duration=message.duration,
            executions=message.executions,
        )
        accepted_again(decode_item, encode(record), most=None)
    return message


def _item(body: bytes) -> object:
    item = decode_item(body)
    accepted_again(decode_item, encode(item))
    return item


def _value(body: bytes) -> object:
    value = decode_value(body)
    accepted_again(decode_value, encode_value(value))
    return value


def _kept_in_the_mine(body: bytes) -> object:
    asked = mine.decode_keep(body)
    for entry in asked.entries:
        decode_value(entry.value)
    accepted_again(mine.decode_keep, mine.encode(asked))
    return asked


def _read_in_the_mine(body: bytes) -> object:
    asked = mine.decode_get(body)
    accepted_again(mine.decode_get, mine.encode(asked))
    return asked


def _told_of_the_mine(body: bytes) -> object:
    page = words_up.decode_page(body)
    accepted_again(words_up.decode_page, words_up.encode(page))
    return page


def _page_of_events(body: bytes) -> object:
    page = device_events.decode_page(body)
    accepted_again(device_events.decode_page, device_events.encode(page))
    for fired in page.events:
        try:
            device_events.check("cam-1", fired.tag, fired.data)
        except Refused:
            continue
        event = Event(tag=fired.tag, data=shape("cam-1", fired), stamp=float(NOW), site=SITE)
        accepted_again(decode_item, encode(event), most=None)
    return page


def _heard_events(body: bytes) -> object:
    heard = device_events.decode_heard(body)
    accepted_again(device_events.decode_heard, device_events.encode(heard))
    return heard


def _proven(body: bytes) -> object:
    rest, proof = proven.split_proof(body)
    if proof:
        assert proven.split_proof(proven.with_proof(rest, proof)) == (rest, proof)
    proven.signed_form(rest)
    return rest, proof


READERS: dict[str, Reader] = {
    "job": _job,
    "downward": _downward,
    "upward": _upward,
    "item": _item,
    "value": _value,
    "mine-keep": _kept_in_the_mine,
    "mine-get": _read_in_the_mine,
    "mine-told": _told_of_the_mine,
    "event-page": _page_of_events,
    "event-heard": _heard_events,
    "proven": _proven,
}


def read(body: bytes) -> object:
    """Any bytes."""
    return chosen(READERS, body)
