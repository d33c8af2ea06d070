"""What a gateway must be told to become the gateway of a site: the file in which it is carried, and its reading.

One format, whoever wrote it: an installer from its answers, or a person on a USB stick. It is read as what a stranger
wrote: a plain file of bounded size, checked against a table, and with the power to join this gateway and nothing else.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, field

from device_agent.errors import ConfigInvalid, Refused
from device_agent.protocol.messages import SiteId
from device_agent.settings import load_text
from device_agent.trust.root_list import FINGERPRINT_BYTES
from device_agent.trust.token import TEXT_MAX, SiteToken
from device_agent.utf8_text import NotUtf8, utf8_text
from gateway.brackets import host_fault
from gateway.config import MasterEntry
from upstream.curve import key_bytes

FILE_NAME = "outstation-join.yaml"
FILE_BYTES = 64 * 1024
ROOT_PATTERN = rf"^[0-9a-f]{{{FINGERPRINT_BYTES * 2}}}$(?!\n)"


class JoinBroker(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The site's MQTT broker, as far as it is the site's own affair."""

    host: Annotated[
        Annotated[str, Meta(min_length=1, max_length=255)] | None,
        Meta(description="address of this machine at which devices reach it", examples=["192.0.2.10"]),
    ] = None

    def __post_init__(self) -> None:
        """An IPv6 address has no brackets here."""
        if self.host is not None and (allowed := host_fault(self.host)):
            raise ValueError(f"host is {allowed}, found {self.host!r}")


class JoinWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which site this is, and where its masters are: by a token, or by their addresses and keys."""

    site: Annotated[SiteId, Meta(description="name of the site", examples=["lisbon"])]
    token: Annotated[
        Annotated[str, Meta(min_length=1, max_length=TEXT_MAX)] | None,
        Meta(description="what `outstation sites token` prints on a master; it holds no secret"),
    ] = None
    masters: Annotated[
        list[MasterEntry], Meta(max_length=16, description="instead of a token: where masters are, best first")
    ] = []
    fleet: Annotated[
        Annotated[str, Meta(pattern=ROOT_PATTERN)] | None,
        Meta(
            description="beside masters: fingerprint of the fleet's root keys, as `outstation fleet show` says it; "
            "without it the fleet of the first master that answers is believed"
        ),
    ] = None
    broker: JoinBroker = field(default_factory=JoinBroker)

    def __post_init__(self) -> None:
        """A token says all that masters and fleet say, and one of both must be said."""
        if self.token is not None and (self.masters or self.fleet is not None):
            raise ValueError("token goes without masters and fleet: it says both")
        if self.token is None and not self.masters:
            raise ValueError("token is missing: what `outstation sites token` prints on a master; or masters")
        try:
            for text in self.tokens():
                SiteToken.from_text(text)
        except Refused as refusal:
            field_name = "token" if self.token is not None else "masters"
            raise ValueError(f"{field_name}: {refusal.detail or refusal.reason}") from None

    def tokens(self) -> list[str]:
        """Tokens that say it, the best master last, so that it comes first; none where the fleet is not known."""
        if self.token is not None:
            return [self.token]
        if self.fleet is None:
            return []
        keys = list(dict.fromkeys(master.key for master in self.masters))
        root = bytes.fromhex(self.fleet)
        return [
            SiteToken(
                root, key_bytes(key), tuple(master.address for master in self.masters if master.key == key)
            ).text()
            for key in reversed(keys)
        ]


def read_wish(path: Path) -> JoinWish:
    """The file at a path. Raises ``ConfigInvalid``, also for a link, a pipe, a device or a folder."""
    allowed = f"a plain file of at most {FILE_BYTES} bytes"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigInvalid(
            "the file to join with cannot be read",
            where=str(path),
            found=error.strerror or str(error),
            allowed=allowed,
            hint=f"ls -l {path}",
        ) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ConfigInvalid("the file to join with is no file", where=str(path), allowed=allowed)
    with os.fdopen(descriptor, "rb") as file:
        body = file.read(FILE_BYTES + 1)
    if len(body) > FILE_BYTES:
        raise ConfigInvalid("the file to join with is too large", where=str(path), allowed=allowed)
    try:
        text = utf8_text(body)
    except NotUtf8 as error:
        raise error.of_file(ConfigInvalid, path, "the file to join with") from None
    return load_text(JoinWish, text, path)
