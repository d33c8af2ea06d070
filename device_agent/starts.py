"""Whether a job that waits may start on this device, and on which host it then runs."""

from __future__ import annotations

from typing import Protocol

from device_agent.host import Host
from device_agent.protocol.messages import Job


class Starts(Protocol):
    """What is asked right before a job starts."""

    def doubt(self, job: Job) -> str:
        """Why the job may have run already, without this journal knowing. Empty when it may start."""

    def host(self, host: Host, job: Job) -> Host:
        """The machine as the functions of this job get it."""


class FreeStarts:
    """For a device whose journal knows all that ran: every job may start."""

    def doubt(self, job: Job) -> str:  # noqa: ARG002 - the signature is its port's
        return ""

    def host(self, host: Host, job: Job) -> Host:  # noqa: ARG002 - the signature is its port's
        return host
