"""device_agent/crontab.py: nothing is lost, and what is written is read as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from device_agent import crontab
from device_agent.crontab import Crontab, Entry, Setting

WORDS = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=8)
COMMENTS = st.none() | st.lists(WORDS, min_size=1, max_size=3).map("\n".join)
JOBS = st.builds(
    Entry,
    cmd=st.lists(WORDS, min_size=1, max_size=3).map("  ".join),
    times=st.tuples(*[st.sampled_from(["*", "*/5", "1-3", "7"])] * 5),
    identifier=st.none() | WORDS,
    comment=COMMENTS,
    commented=st.booleans(),
)
SPECIAL = st.builds(
    Entry, cmd=WORDS, spec=st.sampled_from(["@daily", "@reboot"]), identifier=st.none() | WORDS, comment=COMMENTS
)
TABLES = st.builds(
    Crontab,
    before=st.lists(WORDS | st.just(""), max_size=3).map(tuple),
    settings=st.lists(st.builds(Setting, WORDS.map("A{}".format), WORDS), max_size=2).map(tuple),
    entries=st.tuples(st.lists(JOBS, max_size=3), st.lists(SPECIAL, max_size=3)).map(lambda two: (*two[0], *two[1])),
)


@given(TABLES)
def test_what_is_written_is_read_as_it_was(table: Crontab) -> None:
    once = crontab.parse(table.text())
    assert once.text() == table.text()
    assert once.before == table.before
    assert once.settings == table.settings
    assert [(entry.cmd, entry.times, entry.spec, entry.commented) for entry in once.entries] == [
        (entry.cmd, entry.times, entry.spec, entry.commented) for entry in table.entries
    ]


@given(st.lists(st.text(st.sampled_from("ab1 *#@=/%\t\"'"), max_size=30)))
def test_no_line_of_anybody_is_lost(lines: list[str]) -> None:
    text = "\n".join([crontab.MARK, *lines]) + "\n"
    once = crontab.parse(text).text()
    assert crontab.parse(once).text() == once
    kept = " ".join(once.split())
    for line in lines:
        if line.strip() and not line.startswith("#") and line != crontab.MARK:
            assert all(word in kept for word in line.split())


def test_random_is_drawn_once_and_a_range_of_times_is_one_of_them() -> None:
    drawn = crontab.settled(("random", "2:5", "*", "RANDOM", "*"))
    assert 0 <= int(drawn[0]) <= 59
    assert 2 <= int(drawn[1]) <= 5
    assert crontab.settled(("random", "2:5", "*", "random", "*"), drawn) == drawn


def test_only_the_blanks_of_cron_part_a_line() -> None:
    odd = "5\u00a04 * * * /bin/true"
    text = f"{crontab.MARK}\n0 4 * * * /bin/echo a\u2028b\r\n\u00a0\n{odd}\n"
    table = crontab.parse(text)
    assert [(entry.times, entry.cmd) for entry in table.entries] == [
        (("0", "4", "*", "*", "*"), "/bin/echo a\u2028b\r"),
    ]
    assert table.before == ("\u00a0", odd)
    assert crontab.parse(table.text()) == table
