"""gateway/checks/twins.py."""

from __future__ import annotations

from gateway.checks.twins import check
from tests.unit.gateway.checks.conftest import Told


async def test_a_gateway_that_several_masters_have_fenced_is_told_once_what_to_do_on_each(facts: Told) -> None:
    fence = {"fenced": "another gateway runs", "twin": "", "seen": 1.0}
    facts.copies = [fence]
    (finding,) = await check(facts)
    assert finding.fix.endswith("on the master: outstation sites unfence lisbon")
    facts.copies = [fence, fence]
    (finding,) = await check(facts)
    assert finding.fix.endswith("on each master: outstation sites unfence lisbon")


async def test_a_copy_that_came_to_several_masters_is_one_finding_with_its_addresses(facts: Told) -> None:
    facts.copies = [{"fenced": "", "twin": address, "seen": 1.0} for address in ("192.0.2.9", "192.0.2.8", "192.0.2.9")]
    (finding,) = await check(facts)
    assert finding.finding.endswith("from 192.0.2.8, 192.0.2.9")
