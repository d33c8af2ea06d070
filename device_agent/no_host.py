"""No machine: what a function gets that only asks for the device's own jobs, while the machine may be busy or gone."""

from __future__ import annotations

from typing import Any, NoReturn, cast

from device_agent.host import Host, HostLost


class _Nowhere:
    """A host without a machine. Whatever is asked of it is lost before it starts."""

    grains: dict[str, Any] = {}  # noqa: RUF012 - a host's grains are a mapping, and nobody writes into these

    def __getattr__(self, name: str) -> NoReturn:
        raise HostLost(f"this function has no machine to {name.replace('_', ' ')} on", started=False)


NOWHERE = cast("Host", _Nowhere())
