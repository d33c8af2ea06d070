"""The error tree: every error an operator can meet has an id, what was found, what is allowed and what to do next.

OutstationError
├── UsageInvalid        exit 2   the command line was wrong
├── ConfigInvalid       exit 6   a settings file was wrong; the unit does not restart
│   └── StartDeferred   exit 1   what the settings name is not there yet; the unit restarts
├── NotRunning          exit 7   no station answers at the socket
├── NotFound            exit 2   no such job, device, site or key
├── PolicyRefused       exit 8   refused by policy
├── StationFailed       exit 1   a station could not do what was asked of it
└── Refused             (none)   something from a network was not a message; counted, never fatal
"""

from __future__ import annotations

from typing import ClassVar

EXIT_OK = 0
EXIT_NOT_ALL_OK = 1
EXIT_USAGE = 2
EXIT_CONFIG = 6
EXIT_NOT_RUNNING = 7
EXIT_REFUSED = 8


class OutstationError(Exception):
    """An error with everything needed to mend it.

    ``what`` is the fact; ``where`` a file:line or a field; ``found`` and ``allowed`` the offending and the legal
    values; ``hint`` the next command to type.
    """

    exit_status: ClassVar[int] = EXIT_NOT_ALL_OK
    default_id: ClassVar[str] = "outstation.failed"

    def __init__(
        self,
        what: str,
        *,
        error_id: str | None = None,
        where: str | None = None,
        found: str | None = None,
        allowed: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(what)
        self.error_id = error_id or self.default_id
        self.what = what
        self.where = where
        self.found = found
        self.allowed = allowed
        self.hint = hint

    def __str__(self) -> str:
        """The whole error in lines, as the command line prints it."""
        lines = [f"{self.what} ({self.where})" if self.where else self.what]
        if self.found is not None:
            lines.append(f"  found:   {self.found}")
        if self.allowed is not None:
            lines.append(f"  allowed: {self.allowed}")
        if self.hint is not None:
            lines.append(f"  try:     {self.hint}")
        return "\n".join(lines)

    def fields(self) -> dict[str, str]:
        """The same facts by name, for JSON."""
        facts = {
            "id": self.error_id,
            "what": self.what,
            "where": self.where,
            "found": self.found,
            "allowed": self.allowed,
            "hint": self.hint,
        }
        return {key: value for key, value in facts.items() if value is not None}


class UsageInvalid(OutstationError):
    """The request itself was wrong: a target that does not parse, an argument of the wrong kind."""

    exit_status = EXIT_USAGE
    default_id = "usage.invalid"


class NotFound(UsageInvalid):
    """There is no such job, device, site or key."""

    default_id = "usage.not_found"


class ConfigInvalid(OutstationError):
    """A settings file cannot be used."""

    exit_status = EXIT_CONFIG
    default_id = "config.invalid"


class StartDeferred(ConfigInvalid):
    """What the settings name cannot be used now, and may be without any change of them: the unit starts again.

    Handlers of ``ConfigInvalid`` handle it as well; only the exit status differs.
    """

    exit_status = EXIT_NOT_ALL_OK
    default_id = "start.deferred"


class NotRunning(OutstationError):
    """No station answers at the socket that was tried."""

    exit_status = EXIT_NOT_RUNNING
    default_id = "station.not_running"


class PolicyRefused(OutstationError):
    """The station understood and will not do it."""

    exit_status = EXIT_REFUSED
    default_id = "policy.refused"


class StationFailed(OutstationError):
    """The station could not do what was asked of it, and says why."""

    default_id = "station.failed"


class Refused(OutstationError):
    """Bytes from a network that are not an acceptable message; ``reason`` is the name it is counted under."""

    default_id = "network.refused"

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason, error_id=f"network.{reason}")
        self.reason = reason
        self.detail = detail
