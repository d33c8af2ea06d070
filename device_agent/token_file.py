"""The join token of a machine that nobody types at: laid into its image, or copied to it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from device_agent.config import AgentSettings
from device_agent.durable import open_regular
from device_agent.errors import ConfigInvalid, Refused, UsageInvalid
from device_agent.start_errors import start_error
from device_agent.trust.token import TEXT_MAX, JoinToken

FILE: Final = "token"
"""Name of the file in the state directory."""


class TokenMissing(ConfigInvalid):
    """The file that the settings name has no token yet; a unit waits for it, as it does where they name none."""

    default_id = "config.no_token"


def find_token(table: AgentSettings) -> JoinToken | None:
    """The token in ``token_file``, or in the state directory; None without either. Raises ``ConfigInvalid``."""
    path = Path(table.token_file) if table.token_file is not None else Path(table.state_dir) / FILE
    try:
        return read_token(path)
    except FileNotFoundError:
        if table.token_file is None:
            return None
        raise TokenMissing(
            "the file with the token is not there",
            where="token_file",
            found=str(path),
            hint=f"put the token into {path}",
        ) from None
    except UsageInvalid as error:
        raise ConfigInvalid(error.what, where=str(path), hint=error.hint) from error
    except OSError as error:
        what = f"the token cannot be read: {error.strerror or error}"
        raise start_error(error, what, path, where=str(path)) from error


def forget_token(table: AgentSettings) -> None:
    """Remove a token that was used from the state directory. One that the settings name may be part of an image."""
    if table.token_file is None:
        with contextlib.suppress(OSError):
            (Path(table.state_dir) / FILE).unlink()


def read_token(path: Path, *, piped: bool = False) -> JoinToken:
    """The token in a file, which may be a pipe if ``piped``. Raises ``OSError`` and ``UsageInvalid``."""
    with path.open("rb") if piped else open_regular(path) as file:
        return parse_token(file.read(2 * TEXT_MAX).decode("ascii", "replace"))


def parse_token(text: str) -> JoinToken:
    """The token in a text. Raises ``UsageInvalid``."""
    try:
        return JoinToken.from_text(text)
    except Refused as refused:
        raise UsageInvalid(
            refused.detail or refused.reason,
            where="the token",
            hint="in a shell it stands between single quotes: outstation-agent join 'TOKEN'",
        ) from None
