"""Text from standard input, which may come from a file in another encoding."""

from __future__ import annotations

from device_agent.errors import UsageInvalid
from device_agent.utf8_text import NotUtf8, utf8_text


def typed_text(body: bytes) -> str:
    """What was written to standard input. Raises ``UsageInvalid``, which shows no byte of it."""
    try:
        return utf8_text(body)
    except NotUtf8 as error:
        raise UsageInvalid(
            f"line {error.line} of standard input is not UTF-8: convert it with iconv -f {error.encoding} -t UTF-8",
            allowed="text in UTF-8",
        ) from None
