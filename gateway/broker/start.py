"""mosquitto's program: where it is, and how ``outstation-broker.service`` comes to run it.

The unit's process waits until the gateway has written the broker's settings, looks whether what they ask for is there,
and then becomes mosquitto, which has no words of its own for the service manager when it cannot start. It loads next to
nothing, since it may wait for long.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from device_agent import next_start
from device_agent.errors import EXIT_CONFIG, EXIT_NOT_ALL_OK, EXIT_USAGE
from device_agent.notify import Notifier
from gateway.fleet.join_words import JOIN

SETTINGS: Final = Path("/var/lib/outstation/broker/mosquitto.conf")
RUNTIME: Final = Path("/run/outstation-broker")
"""Where the broker of the unit has its socket and its process id."""

LOOK_SECONDS: Final = 1.0
WAITING: Final = f"waits for the settings that the gateway writes when it has a site: {JOIN}"

_listener = re.compile(r"^listener ([1-9][0-9]{0,4})(?: (\S+))?$", re.MULTILINE)


def find_mosquitto() -> str | None:
    """Where mosquitto is; Debian installs it outside an ordinary user's PATH."""
    return shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def main(settings: Path = SETTINGS) -> int:  # noqa: RET503 - what follows execv is another program
    """Become the broker of these settings. Returns, with the exit status, only when that cannot be."""
    # A copy: mosquitto says for itself when it is ready, and needs the way to say it.
    notifier = Notifier(dict(os.environ))
    # Counted as started meanwhile: the gateway is ordered after it.
    next_start.wait("outstation-broker", notifier, ready=True, sleep=lambda seconds: rest(settings, seconds))
    program = find_mosquitto()
    if program is None:
        return _refuse(notifier, EXIT_CONFIG, "mosquitto is not installed; try: apt install mosquitto")
    try:
        text = _written(settings, notifier)
    except OSError as error:
        unread = (
            f"its settings cannot be read ({settings}: {error.strerror}); try: chown -R outstation: {settings.parent}"
        )
        # A disk that fails or is not there yet may work at the next start.
        return _refuse(notifier, EXIT_CONFIG if isinstance(error, PermissionError) else EXIT_NOT_ALL_OK, unread)
    ports = list(_doors(text))
    for host, port in ports:
        if why := _unusable(host, port):
            return _refuse(notifier, EXIT_NOT_ALL_OK, why)
    numbers = " and ".join(str(port) for _, port in ports)
    notifier.status(f"the broker of this site, on port {numbers}")
    os.execv(program, [program, "-c", str(settings)])  # noqa: S606 - with no shell between


def rest(settings: Path, seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
    """Wait so long after failures, or until other settings are there: what was wrong may be mended with them."""
    before = _bytes(settings)
    while seconds > 0 and _bytes(settings) == before:
        sleep(min(seconds, LOOK_SECONDS))
        seconds -= LOOK_SECONDS


def _bytes(settings: Path) -> bytes:
    try:
        return settings.read_bytes()
    except OSError:
        return b""


def _written(settings: Path, notifier: Notifier) -> str:
    """The settings, once they are there; the unit counts as started while it waits."""
    while True:
        try:
            return settings.read_text(encoding="utf-8")
        except FileNotFoundError:
            notifier.ready(WAITING)
        time.sleep(LOOK_SECONDS)


def _doors(text: str) -> Iterator[tuple[str, int]]:
    for port, host in _listener.findall(text):
        yield host, int(port)


def _unusable(host: str, port: int) -> str | None:
    """Why a port cannot be had now. It may be later: whoever has it may end, an address may still come."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        with socket.socket(found[0][0], socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(found[0][4])
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return f"port {port} is taken, tried again; see what has it: ss -ltnp 'sport = :{port}'"
        return f"broker.host {host} cannot be used ({error.strerror or error}), tried again; see: ip address"
    return None


def _refuse(notifier: Notifier, status: int, why: str) -> int:
    if status == EXIT_CONFIG:
        # Its unit starts nothing again that ended so, and the gateway may not.
        why += "; then systemctl restart outstation-broker"
    notifier.status(f"the broker does not start: {why}")
    sys.stderr.write(f"error: the broker does not start: {why}\n")
    return status


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.stderr.write("usage: python3 -m gateway.broker.start [FILE]\n")
        sys.exit(EXIT_USAGE)
    sys.exit(main(*map(Path, sys.argv[1:])))
