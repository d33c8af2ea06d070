"""Files of rules that come from the station above."""

from __future__ import annotations

from pathlib import Path

from tests.peers.file_server import server, settled, sha256
from tests.peers.reacting import reacting


async def test_a_file_of_the_station_above_does_not_give_way_to_what_devices_fetch(tmp_path: Path) -> None:
    content = settled(tmp_path / "srv/r/a.sls", b"a: {local.test.ping: [{tgt: x}]}\n")
    async with (
        server(tmp_path / "up", {"base": [tmp_path / "srv"]}) as above,
        reacting(tmp_path / "site", [{"site/*": "salt://r/a.sls"}]) as station,
        station.kept.files.fetches,
    ):
        station.kept.files.above = above.above()
        await station.fire("site/a")
        assert [each["id"] for each in (await station.event("site/a"))["reactions"]] == ["a"]
        assert sha256(content) in station.kept.files.store.needed()
