"""A reaction as a site tells of it to the stations above: the data of the event ``outstation/reaction/<key>``."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct, to_builtins

from device_agent.errors import Refused
from device_agent.protocol.messages import Event

DATA_BYTES: Final = 1024
"""Data of an event that goes along; the event itself mostly goes up as well."""

ARGUMENT_BYTES: Final = 4096
VALUE_CHARACTERS: Final = 2000

Name = Annotated[str, Meta(max_length=4096)]
Words = Annotated[str, Meta(max_length=4096)]


class ReportedCall(Struct, frozen=True, kw_only=True):
    """What was called, and the file and rule that say so."""

    id: Name
    file: Name
    rule: Name
    said: Name
    kind: Name
    fun: Name
    tgt: Annotated[str, Meta(max_length=65_536)] = ""
    tgt_type: Name = "glob"
    arg: list[Any] = []
    kwarg: dict[str, Any] = {}


class Report(Struct, frozen=True, kw_only=True):
    """One reaction, when all is known of it that the station itself does. A job's outcomes go up by themselves.

    ``number`` is the event's on the site, ``place`` the reaction's among those to it; ``outcome``, ``value`` and
    ``failed`` are of a runner or a wheel.
    """

    key: Annotated[str, Meta(min_length=1, max_length=64)]
    number: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    place: Annotated[int, Meta(ge=0, le=2**31)]
    tag: Annotated[str, Meta(max_length=512)]
    data: dict[str, Any]
    stamp: float
    site: Name
    depth: Annotated[int, Meta(ge=0, le=2**31)]
    call: ReportedCall
    state: Annotated[str, Meta(max_length=32)]
    jid: Annotated[str, Meta(max_length=64)] = ""
    why: Words = ""
    left_out: Annotated[list[Annotated[str, Meta(max_length=32)]], Meta(max_length=4)] = []
    outcome: Annotated[str, Meta(max_length=32)] = ""
    value: Any = None
    failed: Words = ""


def data_of(report: Report) -> dict[str, Any]:
    """The data of its event. The job is named as events of functions name theirs, so that chains are counted on."""
    told: dict[str, Any] = to_builtins(report)
    return {**told, "__pub_jid": report.jid} if report.jid else told


def report_of(event: Event) -> Report:
    """The report in an event. Raises ``Refused`` (``bad_reaction``)."""
    try:
        return msgspec.convert(event.data, Report)
    except msgspec.ValidationError as error:
        raise Refused("bad_reaction", f"{event.tag}: {error}") from None
