"""A device is asked for its grains: whether it answers in time, and whether what it says can be taken."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from device_agent.ended import FunctionFailed
from device_agent.errors import Refused
from device_agent.host import HostLost
from device_agent.own import Custom, NoCustom
from device_agent.protocol import limits
from device_agent.protocol.messages import check_plain, encode_value
from gateway.downlinks.ssh_command import NoShell, no_shell
from gateway.downlinks.ssh_host import SshHost
from gateway.downlinks.ssh_line import Line
from gateway.downlinks.ssh_reasons import Unreached
from gateway.metrics import Metrics

NOTHING: Final = NoCustom()


class NotTold(FunctionFailed):
    """It did not tell its grains, and what works over its connection goes on."""


async def ask_facts(line: Line, host: SshHost, seconds: float, metrics: Metrics, custom: Custom = NOTHING) -> None:
    """Its grains anew, or as they were when they cannot be taken, over a line that the caller was lent.

    Raises ``HostLost`` when there is no answer, so that the connection is of no use; ``NotTold`` where others use it:
    under them it is not closed, and its keepalive says whether the device is there.
    """
    try:
        async with asyncio.timeout(seconds):
            told = await host.facts()
        _check(told)
        told = await custom.told(host, {**told, "id": line.device.name})
    except (TimeoutError, HostLost) as error:
        why = Unreached("timed_out", f"it did not tell its grains within {seconds:g} s")
        if host.record.said and not host.record.finished:
            why = Unreached("no_shell", no_shell(host.record.said))
        elif isinstance(error, NoShell):
            why = Unreached("no_shell", no_shell(""))
        elif isinstance(error, HostLost):
            why = Unreached("connection_lost", error.what)
        if line.users > 1 and line.connected:
            raise NotTold(why.what) from None
        line.failed(why)
        raise HostLost(line.breaker.why) from None
    except Exception as error:  # noqa: BLE001 - it is there; whatever its words lead to must not end the station
        metrics.refused("ssh", "bad_facts", line.device.name, f"{type(error).__name__}: {error}")
        return
    line.grains.clear()
    line.grains.update(told, id=line.device.name)


def _check(grains: dict[str, Any]) -> None:
    """Refuse grains that an agent could not tell either. Raises ``Refused``."""
    check_plain(grains)
    size = len(encode_value(grains))
    if size > limits.GRAINS_BYTES:
        raise Refused("grains_too_large", f"{size} bytes, at most {limits.GRAINS_BYTES}")
