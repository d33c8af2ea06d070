"""A stock Salt minion on loopback: the peer of a stock master with which a test shows that the master itself works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.peers.salt_daemon import SaltDaemon
from tests.peers.salt_master import SaltMaster


class SaltMinion(SaltDaemon):
    """A minion of one master, whose key that has to accept."""

    def __init__(self, programs: Path, name: str, master: SaltMaster, **settings: Any) -> None:
        self.name = name
        self._master = master
        places: dict[str, Any] = {
            "id": name,
            "master": "127.0.0.1",
            "master_port": master.ret_port,
            "publish_port": master.publish_port,
            "acceptance_wait_time": 1,
            "random_reauth_delay": 1,
            "mine_enabled": False,
            "enable_fqdns_grains": False,
        }
        super().__init__(programs, "minion", {**places, **settings})

    def answers(self) -> bool:
        """It has shown its key."""
        return any(self.name in names for names in self._master.keys().values())

    def ready(self) -> None:
        """Wait until it takes what its master publishes."""
        self.until(lambda: "Minion is ready to receive requests!" in self.log(), "the minion is ready")
