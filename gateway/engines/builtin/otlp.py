"""Sends each event of the station to an OpenTelemetry collector as a log record, at least once: OTLP over HTTP in JSON.

As https://opentelemetry.io/docs/specs/otlp/ says it, with the fields of ``opentelemetry/proto/logs/v1/logs.proto``.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any, Final

from device_agent import __version__
from gateway.engines.carry import carry
from gateway.engines.context import current
from gateway.engines.feed import Feed, Heard
from gateway.engines.posting import check_url, post

INFO: Final = 9
WARNING: Final = 13
ERROR: Final = 17
"""Severity numbers of the data model of logs."""

NANO: Final = 1_000_000_000
EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def start(
    endpoint: str,
    tag: str = "*",
    headers: dict[str, str] | None = None,
    batch: int = 100,
    timeout: float = 10.0,
    give_up_hours: float = 24.0,
    service: str = "outstation",
) -> None:
    """Send for ever. ``endpoint``: of the collector, without ``/v1/logs``. Raises ``ValueError``."""
    check_url(endpoint, "endpoint")
    station = str(current().opts["id"])
    url = f"{endpoint.rstrip('/')}/v1/logs"

    def send(events: list[Heard]) -> None:
        body = json.dumps(logs(events, station, service)).encode()
        post(url, body, {"Content-Type": "application/json", **(headers or {})}, timeout)

    carry(Feed(current(), tag), send, current().report, batch=batch, give_up_hours=give_up_hours)


def logs(events: list[Heard], station: str, service: str) -> dict[str, Any]:
    """The events as ``ExportLogsServiceRequest`` in JSON."""
    resource = {"service.name": service, "service.version": __version__, "service.instance.id": station}
    return {
        "resourceLogs": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeLogs": [
                    {"scope": {"name": "outstation.events"}, "logRecords": [_record(each) for each in events]}
                ],
            }
        ]
    }


def _record(event: Heard) -> dict[str, Any]:
    number, text = _severity(event)
    known = {
        "outstation.event.id": event.key,
        "outstation.tag": event.tag,
        "outstation.site": event.site,
        **({"outstation.origin": event.origin} if event.origin else {}),
        **{
            f"outstation.{name}": str(event.data[name])
            for name in ("id", "jid", "fun", "outcome")
            if name in event.data
        },
    }
    return {
        # 64-bit numbers are texts in the JSON of protocol buffers.
        "timeUnixNano": str(_nanoseconds(event.stamp)),
        "severityNumber": number,
        "severityText": text,
        "eventName": event.tag,
        "body": _value(event.data),
        "attributes": _attributes(known),
    }


def _severity(event: Heard) -> tuple[int, str]:
    if event.data.get("success") is False or event.data.get("outcome") in {"failed", "timed_out"}:
        return ERROR, "ERROR"
    if event.tag.endswith(("/lost", "/events_lost", "/cloned", "/twin", "/damaged")):
        return WARNING, "WARN"
    return INFO, "INFO"


def _attributes(values: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]


def _value(value: Any) -> dict[str, Any]:
    """As ``AnyValue``."""
    match value:
        case bool():
            return {"boolValue": value}
        case int() if -(2**63) <= value < 2**63:
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case dict():
            return {
                "kvlistValue": {"values": [{"key": str(key), "value": _value(each)} for key, each in value.items()]}
            }
        case list() | tuple():
            return {"arrayValue": {"values": [_value(each) for each in value]}}
        case None:
            return {}
        case _:
            return {"stringValue": str(value)}


def _nanoseconds(stamp: str) -> int:
    try:
        at = dt.datetime.fromisoformat(stamp).replace(tzinfo=dt.UTC)
    except ValueError:
        return 0
    since = at - EPOCH
    return (since.days * 86_400 + since.seconds) * NANO + since.microseconds * 1000
