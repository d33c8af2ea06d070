"""A strict reader of Prometheus' text format 0.0.4: what breaks one of its rules is an AssertionError with the line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

Sample = tuple[str, dict[str, str], float]

HEAD = re.compile(r"# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)")
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\[\\n"])*)"(?:,|$)')
ESCAPES = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}


@dataclass
class Family:
    """One name: its type, its words, and its samples."""

    type: str = ""
    help: str = ""
    samples: list[Sample] = field(default_factory=list)


def read_exposition(text: str) -> dict[str, Family]:
    """Every family of a page. Each has its type before its first sample, its samples together, none of them twice."""
    assert text == "" or text.endswith("\n"), text[-200:]
    found: dict[str, Family] = {}
    current = ""
    for line in text.split("\n")[:-1]:
        if head := HEAD.fullmatch(line):
            kind, name, words = head.groups()
            if name != current:
                assert name not in found, f"{line}: it began before"
                found[name], current = Family(), name
            assert not found[name].samples, f"{line}: after a sample"
            before = found[name].help if kind == "HELP" else found[name].type
            assert not before, f"{line}: a second one"
            if kind == "HELP":
                found[name].help = words
            else:
                assert words in {"counter", "gauge"}, line
                found[name].type = words
            continue
        sample = _sample(line)
        assert sample[0] == current, f"{line}: not below its name"
        assert found[current].type, f"{line}: before its type"
        assert sample[:2] not in [each[:2] for each in found[current].samples], f"{line}: twice"
        found[current].samples.append(sample)
    assert all(family.samples for family in found.values())
    return found


def _sample(line: str) -> Sample:
    match = SAMPLE.fullmatch(line)
    assert match is not None, line
    name, pairs, value = match.groups()
    labels: dict[str, str] = {}
    rest = pairs or ""
    while rest:
        label = LABEL.match(rest)
        assert label is not None, line
        assert label[1] not in labels, line
        labels[label[1]] = re.sub(r"\\.", lambda escape: ESCAPES[escape[0]], label[2])
        rest = rest[label.end() :]
    return name, labels, float(value)
