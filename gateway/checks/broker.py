"""Does the site's broker answer?"""

from __future__ import annotations

from gateway.broker.embedded import COMFORTABLE_DEVICES
from gateway.checks.finding import Facts, Finding


async def check(facts: Facts) -> list[Finding]:
    """One finding about the broker; none on a station without one."""
    view = await facts.station_view()
    broker = view["broker"]
    if broker is None:
        return []
    where = f"{broker['mode']} broker at {broker['host']}:{broker['port']}"
    if not broker["connected"]:
        return [
            Finding(
                check="broker",
                severity="error",
                finding=f"not connected to the {where}: {broker['last_error']}",
                meaning="no device with an agent can be reached; jobs wait until they expire",
                fix="start the broker, or correct broker.host and broker.port in the settings",
            )
        ]
    if broker["mode"] == "embedded" and view["devices"] > COMFORTABLE_DEVICES:
        return [
            Finding(
                check="broker",
                severity="warning",
                finding=f"{view['devices']} devices on the embedded broker",
                meaning=f"it is fine for about {COMFORTABLE_DEVICES}; beyond that answers come late",
                fix="apt install mosquitto, then set broker.mode to managed",
            )
        ]
    return [Finding(check="broker", severity="ok", finding=f"connected to the {where}")]
