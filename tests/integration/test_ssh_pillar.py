"""Pillar of devices without an agent: asked for in their stead, each its own, and targets by it."""

from __future__ import annotations

from pathlib import Path

from gateway.devices.ssh_secrets import Secret
from tests.peers.pillar_site import write_tree
from tests.peers.ssh_played import PASSWORD, played_device
from tests.peers.ssh_site import ssh_site

LOGIN = Secret(password=PASSWORD)
FILES = {
    "top.sls": "base:\n  '*': [all]\n  'cam-1': [one]\n",
    "all.sls": "x: 1\n",
    "one.sls": "secret: of cam-1\n",
}


async def test_each_is_given_its_own(tmp_path: Path) -> None:
    roots = write_tree(tmp_path / "roots", FILES)
    async with (
        played_device() as camera,
        played_device() as other,
        ssh_site(tmp_path / "site", pillar_roots={"base": [str(roots)]}) as site,
    ):
        await site.add("cam-1", camera.port, camera.host_keys, LOGIN)
        await site.add("cam-2", other.port, other.host_keys, LOGIN)
        await site.here("cam-1")
        await site.here("cam-2")
        ended = await site.run("pillar.ls", "cam-1", "cam-2")
        assert {name: outcome.value for name, outcome in ended.items()} == {"cam-1": ["x", "secret"], "cam-2": ["x"]}
        ended = await site.run("pillar.get", "cam-1", "cam-2", arg=["secret"], kwarg={"unmask": True})
        assert {name: outcome.value for name, outcome in ended.items()} == {"cam-1": "of cam-1", "cam-2": ""}
        jid = await site.start("test.ping", tgt="secret:of*", tgt_type="pillar")
        assert {name: outcome.outcome for name, outcome in (await site.outcomes(jid)).items()} == {"cam-1": "ok"}
