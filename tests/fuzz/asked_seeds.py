"""Questions about the mine, events of devices, and an item with its proof as seeds: one of each."""

from __future__ import annotations

from device_agent.protocol import device_events, mine
from device_agent.protocol.messages import encode_value
from gateway.mine import words_up
from tests.fuzz import batch_seeds
from tests.peers.fleet import SITE

LINE = words_up.Line("test.ping", 1.5, encode_value(1), "", "glob")
EVENT = device_events.Fired(7, "site/door/opened", {"door": "north", "badges": [4711, None, 1.5]}, 1.5)
ASKED = {
    "mine-keep": mine.encode(mine.Keep([mine.Entry("test.ping", encode_value(True), "cam-*")], clear=True)),
    "mine-get": mine.encode(mine.Get("G@os:Debian", ["test.ping"], "compound")),
    "mine-told": words_up.encode(words_up.Page("0123456789abcdef", 1, 2, [words_up.DeviceMine(SITE, "cam-1", [LINE])])),
    "event-page": device_events.encode(device_events.Page(events=[EVENT], outbox=b"8 bytes.", lost=2)),
    "proven": batch_seeds.PROVEN,
    "event-heard": device_events.encode(device_events.Heard(7, {"event_own_tag": 1})),
}
