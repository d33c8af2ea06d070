"""Target: the messages inside a session, jobs, items of a spool, and values: all that is msgpack on the device link.

What was accepted can be written again and is accepted again; a return that a station accepts makes an item that a
master accepts.
"""

from __future__ import annotations

from device_agent.protocol.messages import (
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


READERS: dict[str, Reader] = {
    "job": _job,
    "downward": _downward,
    "upward": _upward,
    "item": _item,
    "value": _value,
}


def read(body: bytes) -> object:
    """Any bytes."""
    return chosen(READERS, body)
