"""Globs that limit what an argument may be, over values that another layer normalises: paths, URLs, names of units.

``*`` crosses every character, as in Salt. As plain text ``/var/log/*`` would match ``/var/log/../../etc/shadow``, and
``https://*.example.org/*`` would match ``https://attacker.net/x.example.org/``. So a value fits only when it means what
it spells:

- It has no ``.``, ``..`` or empty path part that the glob does not spell (POSIX.1-2017, 4.13 pathname resolution).
- Of a URL, scheme, authority and the rest fit one by one (RFC 3986, 3.2). White space does not fit. User information, a
  backslash, and percent-encoded dots and slashes fit only a glob that spells them.
- A ``salt://`` URL names another environment (``?saltenv=``) only where the glob spells ``saltenv=``.

A glob of ``*`` alone limits nothing, and takes every value. Links on the device are not known here:
``limiting_folder`` is the folder that the device must not leave.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from device_agent.protocol.globs import WILDCARDS, compile_glob

GLOBS_CACHED: Final = 4096
"""Compiled globs that are kept; they come from policy files and site certificates, which are few."""

_first_wildcard = re.compile(r"[*?[]")
_url = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(.*)", re.DOTALL)
_url_glob = re.compile(r"([A-Za-z*?][A-Za-z0-9+.*?-]*)://([^/]*)(.*)", re.DOTALL)
_encoded = re.compile(r"%(?:2e|2f|5c|00)", re.IGNORECASE)
_white = re.compile(r"[\s\x00-\x1f\x7f]")
_NO_PATH_PARTS: Final = frozenset({"", ".", ".."})
_PATH_SCHEMES: Final = frozenset({"salt", "file"})
"""Schemes without a host: what follows is a path."""


@lru_cache(maxsize=GLOBS_CACHED)
def compile_argument_glob(glob: str) -> Callable[[str], bool]:
    """Compile a glob of a policy rule or of a site grant into a test for one argument's text."""
    matches = compile_glob(glob)
    if not WILDCARDS.intersection(glob) or not glob.strip("*"):
        return matches
    spelled = _odd_parts(glob)
    in_url = _url_glob.fullmatch(glob)
    matches_url = _url_test(glob, in_url) if in_url else None

    def fits(text: str) -> bool:
        if _odd_parts(text) != spelled:
            return False
        url = _url.fullmatch(text)
        if url is None:
            return matches(text)
        if not _is_plain_url(url, glob):
            return False
        return matches(text) if matches_url is None else matches_url(url)

    return fits


def limiting_folder(glob: str) -> str:
    """Return the absolute folder that values of this glob lie in, and that links must not lead out of.

    Empty where the glob names one path, limits nothing, is relative, or starts in the root folder.
    """
    wildcard = _first_wildcard.search(glob)
    if wildcard is None or not glob.startswith("/") or _odd_parts(glob):
        return ""
    return glob[: wildcard.start()].rpartition("/")[0]


def _odd_parts(text: str) -> int:
    """Count the parts of a path that resolve to something else than they spell; a trailing slash is none."""
    first, *others = text.replace("://", ":/").split("/")
    if others and not others[-1]:
        others.pop()
    return int(first in {".", ".."}) + sum(part in _NO_PATH_PARTS for part in others)


def _is_plain_url(url: re.Match[str], glob: str) -> bool:
    """Whether every reader of this URL takes it apart in the same way."""
    scheme, authority, _ = url.groups()
    text = url.group()
    if _white.search(text) or ("\\" in text and "\\" not in glob) or (_encoded.search(text) and "%" not in glob):
        return False
    if scheme.lower() in _PATH_SCHEMES:
        return "?" not in text or "saltenv=" in glob
    return "@" not in authority or "@" in glob


def _url_test(glob: str, parts: re.Match[str]) -> Callable[[re.Match[str]], bool]:
    """Compile a glob that is a URL: none of its wildcards crosses from the host into the path, or back."""
    scheme, authority, rest = parts.groups()
    if scheme in _PATH_SCHEMES:
        whole = compile_glob(glob)
        return lambda url: whole(url.group())
    if not rest and authority.endswith("*"):
        rest = "*"
    tests = [compile_glob(part) for part in (scheme, authority, rest)]
    return lambda url: all(test(part) for test, part in zip(tests, url.groups(), strict=True))
