"""Takes the alerts of Prometheus' Alertmanager, and fires an event for each: what reacts to events reacts to alerts.

It is a receiver with ``webhook_configs`` (https://prometheus.io/docs/alerting/latest/configuration/#webhook_config).
"""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct, field

from device_agent.errors import UsageInvalid
from device_agent.protocol.limits import EVENTS_AT_ONCE
from gateway.cli import views
from gateway.engines.context import current
from gateway.engines.listening import Came, Door, Turned, listen

NAME_CHARACTERS: Final = 128

Words = dict[str, str]
Text = Annotated[str, Meta(max_length=4096)]

_odd = re.compile(r"[^\w.:-]+")


class Alert(Struct, frozen=True, rename="camel"):
    """One alert, as version 4 of the webhook has it."""

    status: Annotated[str, Meta(pattern=r"^(firing|resolved)$")]
    labels: Words = {}
    annotations: Words = {}
    starts_at: Text = ""
    ends_at: Text = ""
    generator_url: Text = field(default="", name="generatorURL")
    fingerprint: Text = ""


class Alerts(Struct, frozen=True, rename="camel"):
    """What is posted."""

    version: Annotated[str, Meta(pattern=r"^4$")]
    alerts: Annotated[list[Alert], Meta(min_length=1, max_length=EVENTS_AT_ONCE)]
    receiver: Text = ""
    group_key: Text = ""
    external_url: Text = field(default="", name="externalURL")
    truncated_alerts: int = 0


_alerts: Final = msgspec.json.Decoder(Alerts)


def start(
    token: str = "",
    address: str = "127.0.0.1",
    port: int = 9094,
    certificate: str = "",
    key: str = "",
    tag_prefix: str = "salt/engines/hook/alertmanager",
) -> None:
    """Listen for ever. A tag is the prefix, the status and the alert's name. Raises ``ValueError`` and ``OSError``."""
    context = current()

    async def take(came: Came) -> str:
        try:
            posted = _alerts.decode(came.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Turned("body", f"no alerts of version 4: {error}"[:300]) from None
        if posted.truncated_alerts > 0:
            context.report.add("truncated_by_alertmanager", posted.truncated_alerts)
        events = [_event(alert, posted, tag_prefix) for alert in posted.alerts]
        try:
            # All of them are on the disk of the station, or none is, and Alertmanager sends them again.
            await asyncio.to_thread(context.client().ask, "POST", "/events", views.FiredList, body={"events": events})
        except UsageInvalid as error:
            raise Turned("event", f"{error.what}: {error.found}"[:300]) from None
        context.report.add("fired", len(events))
        return f"{len(events)} events\n"

    door = Door(address=address, port=port, token=token, certificate=certificate, key=key)
    asyncio.run(listen(context, door, take))


def _event(alert: Alert, posted: Alerts, prefix: str) -> dict[str, Any]:
    name = alert.labels.get("alertname", "")
    data = {
        "alertname": name,
        "receiver": posted.receiver,
        "groupKey": posted.group_key,
        "externalURL": posted.external_url,
        **msgspec.to_builtins(alert),
    }
    return {"tag": f"{prefix}/{alert.status}/{_odd.sub('_', name)[:NAME_CHARACTERS] or 'alert'}", "data": data}
