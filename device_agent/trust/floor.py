"""Time on a machine without a clock: a floor that only rises, and what the site says now, which is never stored.

Root lists raise the floor. What a master signed raises it too, but never above the newest root list and 400 days:
otherwise one stolen master key could push every device past all expiries for good. Who has been told the time by its
site is moved by a master to no time that is still to come. A site never moves it.
"""

from __future__ import annotations

from typing import Final

MASTER_LIMIT_SECONDS: Final = 400 * 86_400
AHEAD_SECONDS: Final = 86_400
"""How far what a master signs may be ahead of the time that the site has told."""

MOVED_SECONDS: Final = 300
"""How far it may be ahead and still move the floor: a master whose clock was a day ahead for a while is set right, and
the floor of a device never is."""

WRITE_SECONDS: Final = 3600.0
"""The floor goes to flash at most this often."""


class Floor:
    """The floor and the time. ``stored`` is what flash had, ``built`` when the image was made."""

    __slots__ = ("_root", "_said", "_told", "_written", "_written_at", "value")

    def __init__(self, stored: int = 0, built: int = 0) -> None:
        self.value = max(stored, built)
        self._root: int | None = None
        self._said: tuple[float, float] | None = None
        self._told: tuple[float, float] | None = None
        self._written = stored
        self._written_at: float | None = None

    @property
    def has_time(self) -> bool:
        """Whether the site has said what time it is since we started."""
        return self._told is not None

    @property
    def dirty(self) -> bool:
        """Whether the floor is above what flash has."""
        return self.value > self._written

    def root_signed(self, issued: int) -> None:
        """A root list that was verified was issued then."""
        self._root = issued if self._root is None else max(self._root, issued)
        self.value = max(self.value, issued)

    def master_signed(self, issued: int, monotonic: float | None = None) -> None:
        """Something that a master signed, and that was verified, was issued then.

        With ``monotonic``, the present, what is ahead of the site's time does not count.
        """
        if monotonic is not None and self.is_ahead(issued, monotonic, MOVED_SECONDS):
            return
        if self._root is not None:
            self.value = max(self.value, min(issued, self._root + MASTER_LIMIT_SECONDS))

    def is_ahead(self, issued: int, monotonic: float, seconds: int = AHEAD_SECONDS) -> bool:
        """Whether this is still to come by what the site has told; nothing is while it has told nothing."""
        if self._said is None:
            return False
        time, at = self._said
        return issued > time + (monotonic - at) + seconds

    def told(self, site_time: float, monotonic: float) -> None:
        """The site says, bound to our nonce, that it is this time now."""
        self._said = site_time, monotonic
        self._told = max(float(self.value), site_time), monotonic

    def now(self, monotonic: float) -> float:
        """The time, or the floor alone as long as nobody told it (``has_time``)."""
        if self._told is None:
            return float(self.value)
        time, at = self._told
        return max(float(self.value), time + (monotonic - at))

    def write_due(self, monotonic: float) -> bool:
        """Whether to write it to flash now."""
        return self.dirty and (self._written_at is None or monotonic - self._written_at >= WRITE_SECONDS)

    def written(self, monotonic: float) -> None:
        """It is on flash."""
        self._written, self._written_at = self.value, monotonic
