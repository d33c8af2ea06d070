"""Every setting of a stock Salt master has a verdict in `outstation gateway import-salt`, and a reason of its own."""

from __future__ import annotations

import json

from gateway.salt.import_keys import SAME, UNKNOWN, UPSTREAM, no_meaning, not_carried
from gateway.salt.import_settings import HANDLERS
from gateway.salt.import_upstream import UPSTREAM_KEYS
from tests.peers.salt_master import SaltMaster

TYPED = {"arg", "args_stdin", "async", "caller", "doc", "fun", "jid", "local", "mktoken", "no_parse"}
"""What stands among them and comes from the command line that asks."""


def test_every_setting_that_a_stock_master_has_is_known(master: SaltMaster) -> None:
    done = master.run("salt-run", "salt.cmd", "test.get_opts", "--out=json")
    assert done.status == 0, done
    settings = {key for key in json.loads(done.out) if not key.startswith("__")} - TYPED
    assert len(settings) > 200
    known = {*SAME, *UPSTREAM, *HANDLERS, *UPSTREAM_KEYS}
    assert [key for key in sorted(settings - known) if no_meaning(key) is None and not_carried(key) == UNKNOWN] == []
