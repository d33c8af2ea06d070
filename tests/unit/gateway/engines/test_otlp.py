"""gateway/engines/builtin/otlp.py: events as the JSON of OTLP."""

from __future__ import annotations

from gateway.engines.builtin.otlp import logs
from gateway.engines.feed import Heard


def test_an_event_is_a_log_record_with_its_values_typed() -> None:
    data = {"id": "cam-1", "n": 3, "x": 0.5, "yes": True, "list": ["a", None], "success": False, "large": 2**70}
    told = logs([Heard("e-7", "site/door", data, "2026-11-23T08:00:00.000001", "lisbon")], "lisbon", "outstation")
    (resource,) = told["resourceLogs"]
    assert {"key": "service.instance.id", "value": {"stringValue": "lisbon"}} in resource["resource"]["attributes"]
    (record,) = resource["scopeLogs"][0]["logRecords"]
    assert (record["timeUnixNano"], record["eventName"]) == ("1795420800000001000", "site/door")
    assert (record["severityNumber"], record["severityText"]) == (17, "ERROR")
    values = {each["key"]: each["value"] for each in record["body"]["kvlistValue"]["values"]}
    assert values == {
        "id": {"stringValue": "cam-1"},
        "n": {"intValue": "3"},
        "x": {"doubleValue": 0.5},
        "yes": {"boolValue": True},
        "list": {"arrayValue": {"values": [{"stringValue": "a"}, {}]}},
        "success": {"boolValue": False},
        "large": {"stringValue": str(2**70)},
    }
    named = {each["key"]: each["value"]["stringValue"] for each in record["attributes"]}
    assert named["outstation.event.id"] == "e-7"


def test_a_stamp_that_is_none_does_no_harm() -> None:
    (resource,) = logs([Heard("", "a", {}, "", "")], "lisbon", "x")["resourceLogs"]
    assert resource["scopeLogs"][0]["logRecords"][0]["timeUnixNano"] == "0"
