"""Stock Salt's own way to answer for many devices: a deltaproxy, with proxies of the kind that Salt calls dummy."""

from __future__ import annotations

import json
from pathlib import Path

from tests.peers.salt_daemon import SaltDaemon
from tests.peers.salt_master import SaltMaster

CONTROL = "control"
PREFIX = "dummy-"


class DeltaProxy(SaltDaemon):
    """One process that controls so many dummy devices. The master has to accept their keys by itself."""

    words = ("--proxyid", CONTROL)

    def __init__(self, programs: Path, master: SaltMaster, devices: int) -> None:
        self.devices = devices
        self._master = master
        settings = {
            "master": "127.0.0.1",
            "master_port": master.ret_port,
            "publish_port": master.publish_port,
            "metaproxy": "deltaproxy",
            "acceptance_wait_time": 1,
            "random_reauth_delay": 1,
            "mine_enabled": False,
            "enable_fqdns_grains": False,
            # Else it asks the master for modules at its start, and does not hear the answers while it waits for them:
            # three minutes for each kind of module. Its pillar comes from the master all the same.
            "file_client": "local",
            "use_master_when_local": True,
        }
        super().__init__(programs, "proxy", settings)
        self._write_pillar()

    def answers(self) -> bool:
        """Every device has shown its key."""
        accepted = self._master.folder / "pki" / "minions"
        return len(list(accepted.glob(f"{PREFIX}*"))) >= self.devices

    def _write_pillar(self) -> None:
        ids = [f"{PREFIX}{number:05d}" for number in range(self.devices)]
        control = {"proxy": {"proxytype": "deltaproxy", "ids": ids}}
        for name, content in (
            ("top", {"base": {CONTROL: ["control"], f"{PREFIX}*": ["device"]}}),
            ("control", control),
            ("device", {"proxy": {"proxytype": "dummy"}}),
        ):
            (self._master.pillar / f"{name}.sls").write_text(json.dumps(content))
