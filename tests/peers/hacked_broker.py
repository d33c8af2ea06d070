"""A site's own broker in the hands of somebody else: the station starts it as ever, and it has one door more.

Behind that door nobody is asked for a name, and everything may be heard and said. Rules, users and reloads are those of
the product: the program that the station finds writes itself the station's settings with one listener more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from tests.peers.broker import free_port, mosquitto
from tests.peers.tap import Tap

PROGRAM = """\
#!/bin/sh
for settings; do :; done
{{ cat "$settings"; printf 'listener {port} 127.0.0.1\\nallow_anonymous true\\n'; }} > "$settings.hacked"
exec {mosquitto} -c "$settings.hacked"
"""


@contextmanager
def hacked_broker(folder: Path) -> Iterator[int]:
    """Who starts mosquitto inside this block starts the attacker's; the port of his door."""
    port = free_port()
    place = folder / f"hacked-{port}"
    place.mkdir(mode=0o755)
    program = place / "mosquitto"
    program.write_text(PROGRAM.format(port=port, mosquitto=mosquitto()))
    program.chmod(0o755)
    with patch.dict(os.environ, PATH=f"{place}:{os.environ['PATH']}"):
        yield port


def tapped(port: int, *filters: str) -> Tap:
    """A tap at the attacker's door, which hears these; everything of every site if none is named."""
    return Tap(port, *(filters or ("os/#",)))
