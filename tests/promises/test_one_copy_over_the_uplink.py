"""However many devices of a site fetch a file, the uplink carries it once; a cut resumes; the cache stays without it.

``OUTSTATION_FILES=long`` has 500 devices fetch 20 MB through 2 Mbit/s.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.network import Network, available
from tests.peers.file_server import sha256
from tests.peers.uplink_line import LINK, MASTER, SITE, UplinkLine

LONG = os.environ.get("OUTSTATION_FILES") == "long"
DEVICES = 500 if LONG else 20
BYTES = 20_000_000 if LONG else 2_500_000
KBIT = 2000
SECONDS = 3000.0 if LONG else 300.0
MOST = 1.05
"""Of the file's size on the uplink."""

pytestmark = [
    pytest.mark.timeout(SECONDS + 600.0),
    pytest.mark.skipif(not available(), reason="only root can make a network namespace"),
]


class Patient(UplinkLine):
    def until(self, probe: object, what: str) -> None:
        assert callable(probe)
        self.wait_until(lambda: bool(probe()), SECONDS, what)


@pytest.fixture
def line() -> Iterator[Patient]:
    with Network() as network, Patient(network) as system:
        yield system


def fetched(line: Patient) -> int:
    """Bytes of the file that the gateway has."""
    (fetch,) = line.view(SITE, "/files/cache")["fetches"] or [{"here": BYTES}]
    assert not fetch.get("error")
    return int(fetch["here"])


def up(line: Patient) -> bool:
    """Whether the gateway has its master."""
    return bool(line.view(SITE)["uplink"]["state"] == "connected")


def test_a_file_goes_over_the_uplink_once_whoever_wants_it_and_whatever_breaks(line: Patient) -> None:
    line.establish(["cp.cache_file", "looks"])
    data = os.urandom(BYTES)
    (line.folder / "srv/fw.bin").write_bytes(data)
    kept = line.folder / "kept"
    line.devices(DEVICES, str(kept))
    line.network.slow(LINK, KBIT)
    before = line.carried()
    jid = line.issue(MASTER, "*", "cp.cache_file", "salt://fw.bin", run_limit=SECONDS, expires_seconds=SECONDS)
    line.until(lambda: line.view(SITE, "/files/cache")["fetches"] and fetched(line) > BYTES * 0.3, "a third is there")
    line.network.down(LINK)
    line.until(lambda: not up(line), "the uplink is lost")
    middle = fetched(line)
    assert BYTES * 0.3 < middle < BYTES * 0.9
    line.network.up(LINK)
    ended = line.ended(SITE, jid)
    line.until(lambda: line.counts(MASTER, jid) == {"ok": DEVICES}, "the master has every outcome")
    carried = line.carried() - before
    print(f"{DEVICES} devices, {BYTES} bytes, {KBIT} kbit/s: {carried} bytes, {carried / BYTES:.4f} of the file")  # noqa: T201 - the long form is run for this number
    assert ended.words() == {f"cam-{number:05d}": "ok" for number in range(DEVICES)}
    places = [Path(outcome.value) for outcome in ended.outcomes]
    assert len(set(places)) == DEVICES
    wanted = sha256(data)
    assert {sha256(place.read_bytes()) for place in places} == {wanted}
    assert carried <= MOST * BYTES
    # Nothing but the file is left in any of the folders.
    assert all([path.name for path in place.parent.iterdir()] == ["fw.bin"] for place in places)

    line.network.down(LINK)
    line.until(lambda: not up(line), "the uplink is lost again")
    line.add_agent("late", SITE)
    line.present(DEVICES + 1, SITE)
    late = line.ended(SITE, line.issue(SITE, "late", "cp.cache_file", "salt://fw.bin"))
    assert late.words() == {"late": "ok"}
    assert sha256(Path(late.outcomes[0].value).read_bytes()) == wanted
    assert fetched(line) == BYTES
