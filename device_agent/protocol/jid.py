"""Salt's job id: the local time of issue as 20 digits, microseconds included, so that ids sort by time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class JidMaker:
    """Makes jids that only rise, also when two jobs come in one microsecond or the clock steps back."""

    def __init__(self, newest: str = "") -> None:
        self._newest = newest

    def after(self, jid: str) -> None:
        """Make none that is not higher than this one, which was made by an earlier run."""
        self._newest = max(self._newest, jid)

    def next(self, wall_seconds: float) -> str:
        """The jid for a job issued now. Uses UTC, which Salt does too when ``utc_jid`` is set."""
        jid = datetime.fromtimestamp(wall_seconds, UTC).strftime("%Y%m%d%H%M%S%f")
        if jid <= self._newest:
            moment = datetime.strptime(self._newest, "%Y%m%d%H%M%S%f").replace(tzinfo=UTC)
            jid = (moment + timedelta(microseconds=1)).strftime("%Y%m%d%H%M%S%f")
        self._newest = jid
        return jid
