"""What the pages rotate is what the pages have engines and returners write."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from tests.house.tree import ROOT

FILE = re.compile(r"/var/log/outstation/[\w.-]+\w")


def test_every_file_that_a_page_writes_into_the_log_folder_is_rotated() -> None:
    pages = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))]
    rotated = re.findall(r"^    (/var/log/outstation/.*) \{$", "\n".join(pages), re.MULTILINE)
    (patterns,) = [line.split() for line in rotated]
    written = {name for page in pages for name in FILE.findall(page)}
    assert written >= {"/var/log/outstation/events.jsonl", "/var/log/outstation/returns.json"}
    assert not {name for name in written if not any(fnmatchcase(name, each) for each in patterns)}
