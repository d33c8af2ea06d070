"""The commands of a device: what each takes, and what its help says."""

from __future__ import annotations

from dataclasses import dataclass

from device_agent.command_line.help_text import HelpText
from device_agent.errors import EXIT_CONFIG, EXIT_NOT_ALL_OK, EXIT_OK, EXIT_REFUSED, EXIT_USAGE
from device_agent.places import AGENT_CONFIG

PROGRAM = "outstation-agent"
VERBS = ("run", "join", "show", "status", "check")
"""In the order of the help."""

JOIN_WAIT = "10m"


@dataclass(frozen=True)
class Typed:
    """An argument or an option: how it is shown, and what it is."""

    metavar: str
    words: str


TOKEN = Typed("TOKEN", "the token; - reads it from stdin")
TOKEN_FILE = Typed("FILE", "read the token from a file (default: that of the settings)")
WAIT = Typed("TIME", "how long to wait for the gateway")
VERSION = Typed("", "say the version and stop")
CONFIG = Typed("FILE", "settings file")
JSON_STATUS = Typed("", "one JSON object")
JSON_CHECK = Typed("", "one JSON object per finding")

_WRONG = {EXIT_USAGE: "the command line is wrong", EXIT_CONFIG: "the settings are wrong, or the identity is damaged"}


def noun(program: str) -> HelpText:
    """The help of the program as a whole; ``program`` is how it is typed."""
    return HelpText(
        purpose="The agent of a device: it joins a site and runs the jobs that come.",
        order=VERBS,
        examples=[
            (f"{program} join 'TOKEN'", "become a device of a site, with a token from its gateway"),
            (f"{program} check", "is this device healthy, and if not, what to do"),
        ],
        exits={EXIT_OK: "done", EXIT_NOT_ALL_OK: "something is not as it should be", **_WRONG},
    )


def text(verb: str, program: str) -> HelpText:
    """The help of one of ``VERBS``."""
    return _TEXTS[verb](program)


def _run(program: str) -> HelpText:
    return HelpText(
        purpose="Run the agent of a device.",
        details="It stays in the foreground and logs to stderr; under systemd that is the journal.",
        examples=[
            (f"{program} run", f"with {AGENT_CONFIG}"),
            (f"{program} run --config ./agent.yaml", "with settings of your own"),
        ],
        exits={
            EXIT_OK: "stopped by SIGTERM or Ctrl-C, in order",
            EXIT_NOT_ALL_OK: "a part of it failed; it may be started again",
            EXIT_USAGE: "the command line is wrong",
            EXIT_CONFIG: "the settings file is wrong; starting it again does not help",
        },
    )


def _join(program: str) -> HelpText:
    return HelpText(
        purpose="Join a site with a token, and wait until the site has this device.",
        details=(
            "The token comes from `outstation keys token new` on the gateway; it has letters that a shell takes for "
            "its own, so it stands between single quotes. With a token no one has to accept the device. Without one, "
            "by root: and broker: in the settings, it waits for who compares its fingerprint: `outstation keys accept`."
        ),
        examples=[
            (f"{program} join 'TOKEN'", "and then start the agent"),
            (f"{program} join --wait 1h", "without a token, until somebody accepts this device"),
        ],
        exits={
            EXIT_OK: "this device belongs to the site",
            EXIT_NOT_ALL_OK: "nobody accepted it in time",
            EXIT_USAGE: "the command line or the token is wrong",
            EXIT_CONFIG: "the settings are wrong",
            EXIT_REFUSED: "the gateway refuses it, or its token",
        },
    )


def _show(program: str) -> HelpText:
    return HelpText(
        purpose="Say who this device is: its name, its site and its fingerprint.",
        examples=[
            (f"{program} show", "what to compare before it is accepted"),
            (f"{program} show --config ./agent.yaml", "with settings of your own"),
        ],
        exits={EXIT_OK: "shown", EXIT_NOT_ALL_OK: "this machine has no identity yet", **_WRONG},
    )


def _status(program: str) -> HelpText:
    return HelpText(
        purpose="Say whether the agent runs here and whether it is connected to its site.",
        examples=[
            (f"{program} status", "in words"),
            (f"{program} status --json", "for monitoring"),
        ],
        exits={EXIT_OK: "it runs and is connected", EXIT_NOT_ALL_OK: "it is not running, or not connected", **_WRONG},
    )


def _check(program: str) -> HelpText:
    return HelpText(
        purpose="Check whether this device is healthy, and say what to do where it is not.",
        explained={
            "Columns": {
                "severity": "ok, info, warning (it works, not for long), error (something does not work)",
                "check": "what was looked at",
                "finding": "what was found; below it what that means and how to mend it",
            }
        },
        examples=[
            (f"{program} check", "everything, in words"),
            (f"{program} check --json", "one object per finding, for monitoring"),
        ],
        exits={EXIT_OK: "no check found an error", EXIT_NOT_ALL_OK: "a check found an error", **_WRONG},
    )


_TEXTS = {"run": _run, "join": _join, "show": _show, "status": _status, "check": _check}
