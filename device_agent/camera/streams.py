"""The streams in a session description, SDP of RFC 8866."""

from __future__ import annotations

import re
from typing import Any

STREAMS = 16
LINES = 1000
WORD_CHARACTERS = 256
STATIC = {0: "PCMU", 3: "GSM", 8: "PCMA", 9: "G722", 14: "MPA", 26: "JPEG", 31: "H261", 32: "MPV", 33: "MP2T"}
"""Payload types whose codec is fixed, RFC 3551."""

# A password may have a slash in it, as no address should; a port and a slash before the mark are no password.
_LOGIN = re.compile(r"^([a-z][a-z0-9+.-]*://)(?:[^/@]*|(?![^/@]*:\d+/)[^/@:\[]*:.*)@", re.IGNORECASE)
_SIZE = re.compile(r"(\d{2,5})\s*[-,xX]\s*(\d{2,5})")


def streams(text: str) -> list[dict[str, Any]]:
    """Each stream with its kind, codec, clock rate and control address, as far as they are told."""
    found: list[dict[str, Any]] = []
    for line in text.splitlines()[:LINES]:
        key, mark, value = line.strip().partition("=")
        if not mark:
            continue
        value = value[:WORD_CHARACTERS]
        if key == "m" and len(found) < STREAMS:
            found.append(_begun(value))
        elif key == "m":
            break
        elif key == "b" and found:
            kind, _, rate = value.partition(":")
            if kind == "AS" and rate.strip().isdecimal():
                found[-1]["kbit_per_second"] = int(rate)
        elif key == "a" and found:
            _attribute(found[-1], value)
    return found


def session_name(text: str) -> str:
    """What the description calls itself."""
    named = re.search(r"^s=(.+)$", text, re.MULTILINE)
    return named[1].strip()[:WORD_CHARACTERS] if named and named[1].strip() != "-" else ""


def without_login(address: str) -> str:
    """An address without the name and password that some cameras write into it."""
    return _LOGIN.sub(r"\1", address, count=1)


def _begun(value: str) -> dict[str, Any]:
    words = value.split()
    stream: dict[str, Any] = {"media": words[0] if words else ""}
    payload = words[3] if len(words) > 3 else ""
    if payload.isdecimal():
        stream["payload"] = int(payload)
        if int(payload) in STATIC:
            stream["codec"] = STATIC[int(payload)]
    if len(words) > 2:
        stream["transport"] = words[2]
    return stream


def _attribute(stream: dict[str, Any], value: str) -> None:
    name, _, rest = value.partition(":")
    if name == "rtpmap":
        number, _, coding = rest.partition(" ")
        if number != str(stream.get("payload", number)):
            return  # Another payload of the same stream; the first is the one that is sent.
        codec, *figures = coding.strip().split("/")
        stream["codec"] = codec
        numbers = [int(figure) for figure in figures if figure.isdecimal()]
        stream |= dict(zip(("clock_rate", "channels"), numbers, strict=False))
    elif name == "control":
        stream["control"] = without_login(rest.strip())
    elif name == "framerate":
        stream["frames_per_second"] = _number(rest)
    elif name in {"framesize", "x-dimensions", "cliprect"}:
        size = _SIZE.search(rest.partition(" ")[2] if name == "framesize" else rest)
        if size is not None:
            stream |= {"width": int(size[1]), "height": int(size[2])}
    elif name == "fmtp":
        profile = re.search(r"profile-level-id=([0-9A-Fa-f]+)", rest)
        if profile is not None:
            stream["profile"] = profile[1].lower()
    elif name in {"sendonly", "recvonly", "sendrecv", "inactive"}:
        stream["direction"] = name


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if 0 <= found <= 10_000 else None
