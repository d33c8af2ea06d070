"""Who may find devices by their pillar: who may read it, in jobs and where targets are looked up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from device_agent.errors import PolicyRefused
from device_agent.protocol.target_terms import Known
from device_agent.protocol.targeting import compile_target
from gateway.api.match import MatchRequest
from gateway.api.operation import Asked
from gateway.devices.policy import Operator, Role
from tests.peers.office import an_office

POLICY = """\
tokens:
  anna: operator
  fred: operator
rules:
  operator:
    - functions: [test.ping]
      targets: [cam-*]
      tokens: [anna]
    - functions: [test.version]
      targets: [cam-*]
      tokens: [fred]
    - functions: [pillar.*]
      targets: [cam-*]
      tokens: [dora]
    - functions: [reads]
      tokens: [fred]
"""


@pytest.mark.parametrize("tgt", ["I@password:a*", "J@password:a.*", "* and not I@password:a*"])
async def test_only_who_may_read_pillars_finds_devices_by_them(tgt: str, tmp_path: Path) -> None:
    async with an_office(tmp_path, POLICY) as office:
        office.here("cam-1")
        looks = {operation.path: operation.handler for operation in office.rooms.operations(asyncio.Event())}
        query = {"tgt": tgt, "tgt_type": "compound"}
        for user, role, may in (
            ("eve", "viewer", False),
            ("carol", "approver", False),
            ("anna", "operator", False),
            ("dora", "operator", False),
            ("fred", "operator", True),
            ("ada", "admin", True),
        ):
            asker = Operator(user, frozenset({cast("Role", role)}), "api")
            for path, asked in (
                ("/devices", Asked({}, query, None, asker)),
                ("/match", Asked({}, {}, MatchRequest(tgt=tgt, tgt_type="compound"), asker)),
            ):
                if may:
                    await looks[path](asked)
                else:
                    with pytest.raises(PolicyRefused):
                        await looks[path](asked)
            await looks["/devices"](Asked({}, {"tgt": "cam-*"}, None, asker))


@pytest.mark.parametrize(
    ("tgt", "kind", "meant"),
    [
        ("a:b*", "pillar", True),
        ("a:b.*", "pillar_pcre", True),
        ("a:x", "pillar", False),
        ("a:bc", "pillar_exact", None),
    ],
)
async def test_a_job_by_pillar_is_narrowed_as_any_other(
    tgt: str, kind: str, meant: bool | None, tmp_path: Path
) -> None:
    async with an_office(tmp_path, POLICY) as office:
        heard = await office.run("fred", "test.version", tgt=tgt, tgt_type=kind)
        if meant is None:
            assert (heard.status, "cannot be limited" in heard.error["what"]) == (403, True)
            return
        assert heard.status == 201, heard.body
        view = heard.json()
        target = compile_target(view["tgt"], view["tgt_type"])
        assert target.matches("cam-1", Known({}, {"a": "bc"})) is meant
        assert not target.matches("ups-1", Known({}, {"a": "bc"}))
