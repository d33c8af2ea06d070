"""gateway/cli/progress.py."""

from __future__ import annotations

import pytest

from gateway.cli.progress import BAR_CELLS, awaited, progress_parts
from gateway.cli.views import SiteProgress

SINCE = 1_795_230_900.0


def site(
    name: str, state: str = "answering", *, connected: bool = True, last_seen: float | None = SINCE
) -> SiteProgress:
    return SiteProgress(site=name, state=state, connected=connected, last_seen=last_seen)


@pytest.mark.parametrize(
    ("done", "expected", "filled"), [(0, 0, 0), (0, 9, 0), (1, 2, 10), (3, 2, 20), (9, 9, 20), (1, 0, 0)]
)
def test_the_bar_is_as_full_as_the_job(done: int, expected: int, filled: int) -> None:
    parts = progress_parts(expected, {"ok": done}, {}, [])
    assert (len(parts[0][0]), len(parts[1][0])) == (filled, BAR_CELLS - filled)


def test_the_line_counts_each_outcome_and_says_what_is_awaited() -> None:
    parts = progress_parts(
        1003, {"unreachable": 1, "ok": 810, "failed": 0, "new\x1b": 1}, {"running": 3, "queued": 188}, [site("lisbon")]
    )
    words = "".join(text for text, _ in parts[2:])
    assert words == " 812/1,003  810 ok  1 unreachable  1 new\\x1b  waiting: 188 queued, 3 running"


@pytest.mark.parametrize(
    ("sites", "words"),
    [
        ([], ""),
        ([site("a", "closed")], ""),
        ([site("a", "waiting")], "waiting for site a"),
        ([site(name, "waiting") for name in "abcde"], "waiting for sites a and b and c and 2 more"),
        ([site("a"), site("lisbon", "dark")], "waiting for site lisbon, dark since 2026-11-21T03:15:00Z"),
        ([site("a", "waiting", connected=False, last_seen=None)], "waiting for site a, never heard"),
        ([site("a", "closed", connected=False)], ""),
        (
            [site(name, "dark") for name in "abc"],
            "waiting for sites a, dark since 2026-11-21T03:15:00Z and b, dark since 2026-11-21T03:15:00Z and 1 more",
        ),
        ([site("\x1b[2J", "dark", last_seen=None)], r"waiting for site \x1b[2J, never heard"),
    ],
)
def test_dark_sites_come_first_then_silent_ones(sites: list[SiteProgress], words: str) -> None:
    assert awaited({}, sites) == words


def test_devices_are_what_is_awaited_when_every_site_has_answered() -> None:
    assert awaited({"running": 1, "queued": 0, "delivered": 2000}, [site("a")]) == "waiting: 2,000 delivered, 1 running"
