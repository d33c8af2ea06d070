"""``uptime``: that the device has started again, and that it has not for too long. Not one of Salt's."""

from __future__ import annotations

import logging
from typing import Final

from device_agent.beacons.aside import Aside
from device_agent.beacons.given import INTERVAL_MOST, Given
from device_agent.beacons.port import Around, Found, Looking
from device_agent.durable import replace_private

log = logging.getLogger(__name__)

FILE: Final = "beacons.boot"
WORD_BYTES: Final = 128


class Uptime(Looking):
    """``reboot``: tell that the device has started again; ``max``: seconds from which on it is up for too long."""

    def __init__(self, given: Given) -> None:
        given.only("reboot", "max")
        self._reboot = given.typed("reboot", given.values.get("reboot", True), bool, "a boolean")
        most = given.values.get("max")
        self._most = None if most is None else given.number("max", most, 1.0, 100 * INTERVAL_MOST)
        self._known: str | None = None
        self._aside = Aside()

    async def look(self, around: Around) -> list[Found]:
        """That it has started again is told once, by the first agent that runs since."""
        up = float((await around.host.read(str(around.proc / "uptime"))).split()[0])
        boot = (await around.host.read(str(around.proc / "sys/kernel/random/boot_id"))).decode(errors="replace").strip()
        found = []
        if self._known is None:
            before = await self._aside.call(lambda: _before(around))
            self._known = boot
            if before and before != boot and self._reboot:
                found.append(Found({"uptime": up, "boot_id": boot, "before": before}, tag="reboot"))
            if before != boot:
                await self._remember(around, boot)
        if self._most is not None and up >= self._most:
            found.append(Found({"uptime": up, "limit": self._most}, tag="max"))
        return found

    async def _remember(self, around: Around, boot: str) -> None:
        try:
            await self._aside.call(lambda: replace_private(around.folder / FILE, boot.encode()))
        except OSError as error:
            # It is told again after the next start of the agent.
            log.warning("this start of the device cannot be remembered folder=%s error=%s", around.folder, error)


def _before(around: Around) -> str:
    """Which start of the device was known; nothing of the first."""
    try:
        with (around.folder / FILE).open("rb") as file:
            return file.read(WORD_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""
