"""file.find: the paths below a place that match, and what is to be shown of them or done with them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from device_agent.commands import do, present
from device_agent.ended import Ended, FunctionFailed
from device_agent.expressions import Expression, NoExpression
from device_agent.functions.file._paths import BITS
from device_agent.functions.file.standing import group_to_gid, user_to_uid
from device_agent.host import Host
from device_agent.protocol import limits
from device_agent.shell_paths import argument, globbed

WALK_BYTES = 16 * 1024 * 1024
"""The names of about 200,000 files."""

ENTRY_BYTES = 8
"""What a return needs for one more entry of a list, beside what is in it."""

LETTERS = {0x6000: "b", 0x2000: "c", 0x4000: "d", 0x8000: "f", 0xA000: "l", 0x1000: "p", 0xC000: "s"}
SIZES = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
SECONDS = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}
INTERVAL = re.compile(
    r"\s*([+-]?)\s*(?:([\d.]+)\s*[wW])?\s*(?:([\d.]+)\s*[dD])?\s*(?:([\d.]+)\s*[hH])?\s*"
    r"(?:([\d.]+)\s*[mM])?\s*(?:([\d.]+)\s*[sS])?\s*"
)
SHOWN = ("path", "name", "size", "type", "mode", "mtime", "user", "group", "md5")
OPTIONS = (
    "name",
    "iname",
    "regex",
    "iregex",
    "type",
    "owner",
    "group",
    "size",
    "mtime",
    "grep",
    "print",
    "delete",
    "exec",
)

LOOK = r"""
for path; do
  stat -L -c '%f %u %g %s %Y %U %G' "$path" 2>/dev/null || stat -c '%f %u %g %s %Y %U %G' "$path" || continue
  printf '%s\0' "$path"
done
"""
HAS = r"""
for path; do [ -f "$path" ] && grep -Eq -e "$OUTSTATION_PATTERN" "$path" && printf '%s\0' "$path"; done; exit 0
"""


class _Found(Struct):
    """One path, and what is there when that was asked for."""

    path: str
    bits: int = 0
    uid: int = 0
    gid: int = 0
    size: int = 0
    mtime: int = 0
    user: str = ""
    group: str = ""

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def letter(self) -> str:
        return LETTERS.get(self.bits & 0xF000, "?")


Test = Callable[[_Found], bool]


async def find(host: Host, path: str, *args: str, **kwargs: Any) -> list[Any] | str | Ended:
    """Return the paths below a path (which may be a shell pattern) that match all of what is asked, sorted.

    ``name`` and ``iname`` are shell patterns, ``regex`` and ``iregex`` regular expressions, for the last part of the
    path; ``type`` is made of the letters b c d f l p s; ``owner``, ``group``, ``size`` (``+10M``, ``-4k``), ``mtime``
    (``3d`` is older, ``-3d`` younger than three days), ``grep`` (an extended regular expression in the file),
    ``maxdepth``, ``mindepth``. ``print`` names what is returned of each: path, name, size, type, mode, mtime, user,
    group, md5. ``delete`` removes what matches and is of these types (f when nothing is said), ``exec`` runs a command
    with ``{}`` for the path; ``test=True`` only tells what would be deleted. At most 128 KiB of
    what was done are listed.

    CLI Example:

        outstation run '*' file.find / type=f name='*.bak' size=+10m
        outstation run '*' file.find /var mtime=+30d size=+10m print=path,size,mtime
        outstation run '*' file.find /var/log name='*.[0-9]' mtime=+30d size=+10m delete=f
    """
    if "delete" in args:
        kwargs.setdefault("delete", "f")
    elif "print" in args:
        kwargs.setdefault("print", "path")
    depths: dict[str, Any] = {key: kwargs.pop(key) for key in ("mindepth", "maxdepth") if key in kwargs}
    dry = bool(kwargs.pop("test", False))
    try:
        options = _checked(kwargs)
        tests = await _tests(host, options)
    except ValueError as error:
        return f"error: {error}"
    found = [_Found(each) for top in await globbed(host, path) for each in await _walk(host, top, depths)]
    try:
        found = await _named_so(options, found)
    except NoExpression as error:
        return f"error: {error.why}"
    if tests or set(_shown(options)) - {"path", "name"} or "delete" in options:
        found = [each for each in await _looked_at(host, found) if all(test(each) for test in tests)]
    if "grep" in options:
        having = set(await _named(host, HAS, [each.path for each in found], {"OUTSTATION_PATTERN": options["grep"]}))
        found = [each for each in found if each.path in having]
    return await _done(host, options, found, dry=dry)


def _checked(kwargs: dict[str, Any]) -> dict[str, str]:
    options = {}
    for key, value in kwargs.items():
        if not value:
            raise ValueError(f'missing value for "{key}" option')
        if key not in OPTIONS:
            raise ValueError(f'invalid option "{key}"')
        options[key] = str(value)
    return options


async def _named_so(options: dict[str, str], found: list[_Found]) -> list[_Found]:
    """Those whose name is as asked for. Raises ``NoExpression`` for what is no regular expression."""
    for key in [key for key in options if key in {"name", "iname", "regex", "iregex"}]:
        pattern = options[key]
        if key.endswith("name"):
            pattern = pattern.replace(".", "\\.").replace("?", ".?").replace("*", ".*") + "$"
        try:
            hits = await Expression(pattern, re.IGNORECASE if key.startswith("i") else 0).match(
                [each.name for each in found]
            )
        except NoExpression:
            raise NoExpression(f'invalid regular expression: "{pattern}"') from None
        found = [each for each, hit in zip(found, hits, strict=True) if hit]
    return found


async def _tests(host: Host, options: dict[str, str]) -> list[Test]:
    """What must be so of what is at a path."""
    by_look: list[Test] = []
    for key, value in options.items():
        if key == "type":
            by_look.append(_of_type(value))
        elif key == "owner":
            by_look.append(_owned(await _numbers(host, value, "user", user_to_uid)))
        elif key == "group":
            by_look.append(_grouped(await _numbers(host, value, "group", group_to_gid)))
        elif key == "size":
            by_look.append(_sized(value))
        elif key == "mtime":
            by_look.append(_aged(value, int((await do(host, "date", "+%s")).out)))
        elif key == "delete":
            by_look.append(_of_type("bcdpfls" if "a" in value else value))
    return by_look


def _of_type(value: str) -> Test:
    letters = set(value.replace(",", "").replace(" ", ""))
    for letter in letters - set(LETTERS.values()):
        raise ValueError(f'invalid file type "{letter}"')
    return lambda found: found.letter in letters


def _owned(numbers: set[int]) -> Test:
    return lambda found: found.uid in numbers


def _grouped(numbers: set[int]) -> Test:
    return lambda found: found.gid in numbers


def _sized(value: str) -> Test:
    style, scalar = (value[0], value[1:]) if value[:1] in {"-", "+"} else ("=", value)
    unit = SIZES.get(scalar[-1:].lower(), 0)
    try:
        number = int(float(scalar[:-1] if unit else scalar) * (unit or 1))
    except ValueError:
        raise ValueError(f'invalid size: "{value}"') from None
    low = 0 if style == "-" else number
    high = number if style == "-" else 2**63 if style == "+" else number + (unit or 1) - 1
    return lambda found: low <= found.size <= high


def _aged(value: str, now: int) -> Test:
    match = INTERVAL.fullmatch(" ".join(value.split()))
    given = dict(zip(SECONDS, match.groups()[1:], strict=True)) if match else {}
    parts = [(float(number), SECONDS[unit]) for unit, number in given.items() if number]
    if match is None or not parts:
        raise ValueError(f"invalid time interval: '{value}'")
    smallest = parts[-1][1]
    edge = now - int(sum(number * unit for number, unit in parts) / smallest) * smallest
    if match.group(1) == "-":
        return lambda found: found.mtime >= edge
    return lambda found: found.mtime <= edge


async def _numbers(host: Host, value: str, word: str, known: Callable[[Host, str], Awaitable[str | int]]) -> set[int]:
    numbers = set()
    for name in value.replace(",", " ").split():
        number = name if name.isdecimal() else await known(host, name)
        if number == "":
            raise ValueError(f'no such {word} "{name}"')
        numbers.add(int(number))
    return numbers


async def _walk(host: Host, top: str, depths: dict[str, Any]) -> list[str]:
    words = [word for key, value in depths.items() for word in (f"-{key}", str(int(value)))]
    completed = await host.run(["find", argument(top), *words, "-print0"], output_limit=WALK_BYTES)
    if completed.truncated:
        raise FunctionFailed(f"there is too much below {top} to look at; give maxdepth, or a place further down")
    return completed.stdout.decode(errors="surrogateescape").split("\0")[:-1]


async def _looked_at(host: Host, found: list[_Found]) -> list[_Found]:
    looked = []
    if found and not await present(host, "stat"):
        return [await _looked_by_host(host, each.path) for each in found]
    for each in await _named(host, LOOK, [one.path for one in found]):
        words, _, path = each.partition("\n")
        bits, uid, gid, size, mtime, user, group = words.split(" ")
        looked.append(_Found(path, int(bits, 16), int(uid), int(gid), int(size), int(mtime), user, group))
    return looked


async def _looked_by_host(host: Host, path: str) -> _Found:
    """One look for each path, where the device has no program that takes many."""
    there = await host.stat(path) or await host.stat(path, follow=False)
    if there is None:
        return _Found(path)
    bits = BITS[there.kind] | there.mode
    return _Found(path, bits, there.uid, there.gid, there.size, int(there.mtime), there.user, there.group)


async def _named(host: Host, script: str, paths: list[str], env: dict[str, str] | None = None) -> list[str]:
    """What a script says of these paths, in parts that end with a null character."""
    if not paths:
        return []
    fed = "".join(f"{path}\0" for path in paths).encode(errors="surrogateescape")
    completed = await host.run(
        ["xargs", "-0", "/bin/sh", "-c", script, "/bin/sh"], stdin=fed, env=env, output_limit=2 * WALK_BYTES
    )
    if completed.truncated:
        raise FunctionFailed("there is too much to look at; give maxdepth, or a place further down")
    return completed.stdout.decode(errors="surrogateescape").split("\0")[:-1]


async def _done(host: Host, options: dict[str, str], found: list[_Found], *, dry: bool) -> list[Any] | Ended:
    actions = [key for key in options if key in {"print", "delete", "exec"}] or ["print"]
    results: list[Any] = []
    size = more = 0
    for each in found:
        for action in actions:
            if action == "print":
                shown = [await _told_of(host, word, each) for word in _shown(options)]
                result: Any = shown[0] if len(shown) == 1 else shown
            elif action == "delete":
                if not dry and not await _deleted(host, each):
                    continue
                result = each.path
            else:
                result = await _executed(host, options["exec"], each.path)
            size += len(str(result).encode(errors="replace")) + ENTRY_BYTES
            if size <= limits.VALUE_TEXT_BYTES:
                results.append(result)
            elif actions == ["print"]:
                raise FunctionFailed(f"{len(found)} paths match, more than a return can carry; ask for fewer")
            else:
                # It is done: what is not listed for want of room is counted.
                more += 1
    results.sort(key=_order)
    return Ended(results, why=f"{more} more were done and are not listed" if more else "")


def _order(result: Any) -> tuple[bool, int, list[str]]:
    """By number, or by text."""
    if isinstance(result, int):
        return False, result, []
    return True, 0, [str(part) for part in result] if isinstance(result, list) else [result]


def _shown(options: dict[str, str]) -> list[str]:
    return options.get("print", "path").replace(",", " ").split() or ["path"]


async def _told_of(host: Host, word: str, found: _Found) -> Any:
    facts: dict[str, Any] = {
        "path": found.path,
        "name": found.name,
        "size": found.size,
        "type": found.letter,
        "mode": found.bits & 0o777,
        "mtime": found.mtime,
        "user": found.uid if found.user in {"UNKNOWN", str(found.uid)} else found.user,
        "group": found.gid if found.group in {"UNKNOWN", str(found.gid)} else found.group,
    }
    if word == "md5":
        printed = (await do(host, "md5sum", found.path)).out if found.letter == "f" else ""
        return printed.lstrip("\\").partition(" ")[0]
    return facts.get(word, "")


async def _deleted(host: Host, found: _Found) -> bool:
    try:
        await host.remove(found.path, recursive=found.letter == "d")
    except OSError:
        return False
    return True


async def _executed(host: Host, command: str, path: str) -> str:
    words = [word.replace("{}", path) for word in shlex.split(command)]
    try:
        completed = await host.run(words)
    except (OSError, ValueError):
        return f"{path}: Failed"
    return f"{command.replace('{}', path)}:\n{completed.stdout.decode(errors='replace')}\n"
