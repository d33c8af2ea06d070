"""``manage``: who is there.

``up``, ``down`` and ``status`` ask the devices with a job, as Salt's do; all the others say what the station knows.
"""

from __future__ import annotations

from typing import Any, Final

from device_agent.protocol.stations import devices_alone
from gateway.calls.functions import Function, Run
from gateway.calls.running import Running
from gateway.devices.device import Device
from gateway.devices.registry import Registry
from gateway.jobs.nodegroups import TypedKind
from gateway.jobs.request import JobRequest

TIMEOUT_SECONDS: Final = 60.0
BEHIND_SECONDS: Final = 5.0
"""A job that has expired has its outcomes so much later at most."""

PING: Final = "test.ping"


class ManageRunner:
    """The runner."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def functions(self) -> list[Function]:
        """What it has. The policy is asked about the job."""
        asking: dict[str, Run] = {"up": self.up, "down": self.down, "status": self.status}
        there: dict[str, Run] = {
            "present": self.present,
            "alived": self.present,
            "joined": self.present,
            "allowed": self.present,
        }
        away: dict[str, Run] = {
            "not_present": self.not_present,
            "not_alived": self.not_present,
            "not_joined": self.not_present,
        }
        looking: dict[str, Run] = {
            **there,
            **away,
            "list_state": self.present,
            "not_allowed": self.not_present,
            "list_not_state": self.not_present,
            "versions": self.versions,
        }
        return [
            *(Function(f"manage.{name}", run, ruled=False) for name, run in asking.items()),
            *(Function(f"manage.{name}", run, need="view") for name, run in looking.items()),
        ]

    async def status(
        self,
        running: Running,
        output: bool = True,  # noqa: ARG002 - Salt's argument, which prints there as it goes
        tgt: str = "*",
        tgt_type: TypedKind = "glob",
        timeout: float | None = None,
        gather_job_timeout: float | None = None,
    ) -> dict[str, list[str]]:
        """Ask the devices whether they answer: those that do are up, the others down.

        CLI example: ``outstation runner manage.status``
        """
        seconds = max(1.0, timeout or gather_job_timeout or TIMEOUT_SECONDS)
        request = JobRequest(tgt=tgt, tgt_type=tgt_type, fun=PING, expires_seconds=seconds)
        ended = await running.job(request, seconds + BEHIND_SECONDS)
        up = sorted(device for device, outcome in ended.outcomes.items() if outcome["outcome"] == "ok")
        down = sorted(ended.outcomes.keys() - set(up))
        return {"up": up, "down": down}

    async def up(
        self,
        running: Running,
        tgt: str = "*",
        tgt_type: TypedKind = "glob",
        timeout: float | None = None,
        gather_job_timeout: float | None = None,
    ) -> list[str]:
        """List the devices that answer.

        CLI example: ``outstation runner manage.up``
        """
        return (await self.status(running, True, tgt, tgt_type, timeout, gather_job_timeout))["up"]

    async def down(
        self,
        running: Running,
        tgt: str = "*",
        tgt_type: TypedKind = "glob",
        timeout: float | None = None,
        gather_job_timeout: float | None = None,
    ) -> list[str]:
        """List the devices that do not answer.

        CLI example: ``outstation runner manage.down``
        """
        return (await self.status(running, True, tgt, tgt_type, timeout, gather_job_timeout))["down"]

    async def present(
        self,
        _: Running,
        subset: list[str] | None = None,
        show_ip: bool = False,
    ) -> list[str] | dict[str, str]:
        """List the devices that are connected, as the station knows them; nobody is asked.

        CLI example: ``outstation runner manage.present``
        """
        found = {device.id: device for device in self._devices(subset) if device.present}
        return {name: _address(found[name]) for name in sorted(found)} if show_ip else sorted(found)

    async def not_present(
        self,
        _: Running,
        subset: list[str] | None = None,
    ) -> list[str]:
        """List the devices that belong here and are not connected, as the station knows them.

        CLI example: ``outstation runner manage.not_present``
        """
        return sorted({device.id for device in self._devices(subset) if not device.present})

    async def versions(self, _: Running) -> dict[str, dict[str, str]]:
        """List which release of the agent each device has.

        CLI example: ``outstation runner manage.versions``
        """
        found: dict[str, dict[str, str]] = {}
        for device in self._devices(None):
            found.setdefault(device.agent or "unknown", {})[device.id] = device.agent
        return found

    def _devices(self, subset: list[str] | None) -> list[Device]:
        known = devices_alone(self._registry.everything())
        return [device for device in known if subset is None or device.id in subset]


def _address(device: Device) -> str:
    """What Salt shows of a device's address: the first that is not the machine's own."""
    listed: Any = device.grains.get("ipv4")
    # It is what the device says of itself, which may be anything.
    found = listed if isinstance(listed, (list, tuple)) else []
    return next((each for each in found if isinstance(each, str) and not each.startswith("127.")), "")
