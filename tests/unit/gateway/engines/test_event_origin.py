"""Engines pass the origin of an event of a site on, so that a receiver of two masters can drop a repeat."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.engines.builtin.nats import _body
from gateway.engines.builtin.otlp import logs
from gateway.engines.builtin.webhook_out import _shown
from gateway.engines.feed import Heard

ORIGIN = "lisbon/0123456789abcdef/events/7"


def heard(origin: str) -> Heard:
    return Heard("e-7", "site/door", {"door": "north"}, "2026-11-23T08:00:00.000001", "lisbon", origin)


def attributes(event: Heard) -> dict[str, Any]:
    record = logs([event], "lisbon", "outstation")["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]
    return {each["key"]: each["value"]["stringValue"] for each in record["attributes"]}


@pytest.mark.parametrize("station", ["north", "south"])
def test_a_webhook_has_the_origin_whatever_station_posts(station: str) -> None:
    assert _shown(heard(ORIGIN), station)["origin"] == ORIGIN
    assert "origin" not in _shown(heard(""), station)


def test_nats_has_the_origin() -> None:
    assert json.loads(_body(heard(ORIGIN)))["origin"] == ORIGIN
    assert "origin" not in json.loads(_body(heard("")))


def test_otlp_has_the_origin() -> None:
    assert attributes(heard(ORIGIN))["outstation.origin"] == ORIGIN
    assert "outstation.origin" not in attributes(heard(""))
