"""Whether a job may start on an SSH device: the journal is in the store of the gateway, which may be a copy.

The gateway starts no job that another gateway may have run (``gateway.store.doubt``). A job that changes something on
the device has a marker there as well (``ssh_marker``), which tells what no store and no master can tell.
"""

from __future__ import annotations

from collections.abc import Callable

from device_agent.clock import Clock
from device_agent.host import Host
from device_agent.own import Custom
from device_agent.protocol.messages import Job
from gateway.downlinks.ssh_host import SshHost
from gateway.downlinks.ssh_marker import Marker, needs_marker
from gateway.store.doubt import Doubt


class DoubtedStarts:
    """Implements ``device_agent.starts.Starts`` for a journal that is in the state folder, as the store is."""

    def __init__(self, doubt: Doubt) -> None:
        self._doubt = doubt

    def doubt(self, job: Job) -> str:
        """Why the job may have run already. Empty when it may start."""
        return self._doubt.of_job(job.jid)

    def host(self, host: Host, job: Job) -> Host:  # noqa: ARG002 - the signature is its port's
        """The machine itself."""
        return host


class SshStarts(DoubtedStarts):
    """The same for an SSH device, which holds a marker.

    Args:
        device: What tells this device from others that may share a home.
        recovered: Whether the gateway had this job (its jid) before it started.
    """

    def __init__(
        self, doubt: Doubt, *, device: str, recovered: Callable[[str], bool], custom: Callable[[], Custom], clock: Clock
    ) -> None:
        super().__init__(doubt)
        self._device = device
        self._recovered = recovered
        self._custom = custom
        self._clock = clock

    def host(self, host: Host, job: Job) -> Host:
        """The machine, where the first command of the job makes the marker."""
        if not isinstance(host, SshHost) or not needs_marker(job, self._custom()):
            return host
        # A copy of the store has the job as well. Without a master that tells them apart, the device must.
        strict = self._recovered(job.jid) and not self._doubt.heard
        return host.marked(Marker(job.jid, self._device, self._clock.wall(), strict=strict))
