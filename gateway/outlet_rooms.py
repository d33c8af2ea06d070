"""What goes out of a station to other programs, and comes in from them: its engines and returners.

Wiring only, no behaviour, like ``rooms``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from device_agent.clock import Clock
from device_agent.parts import Part
from gateway.api.engines import EnginesApi
from gateway.api.operation import Operation
from gateway.api.returners import ReturnersApi
from gateway.config import StationSettings
from gateway.engines.settings import engines_in
from gateway.engines.sources import Sources
from gateway.engines.supervisor import Engines
from gateway.kept_rooms import KeptRooms
from gateway.render import Renderer
from gateway.returners.book import ReturnBook
from gateway.returners.mail_text import MailText
from gateway.returners.rawfile import RawfileReturner
from gateway.returners.returned import Returner
from gateway.returners.sending import Returners
from gateway.returners.smtp import SmtpReturner
from gateway.returners.sqlite import SqliteReturner
from gateway.returners.webhook import WebhookReturner
from gateway.rooms import Role, Rooms

NOT_TOLD: Final = ("engines", "api")
"""Settings that are nobody's business in ``__opts__``: the options of other engines, and keys of doors."""

SECRETS: Final = {
    "broker": ("password",),
    "smtp": ("password",),
    "webhook": ("secret", "headers", "url"),
}
"""What stands in sections and is not told there either."""


class OutletRooms:
    """Built when the other rooms are; its parts open last, and use the API as everybody does."""

    def __init__(
        self,
        role: Role,
        settings: StationSettings,
        *,
        rooms: Rooms,
        kept: KeptRooms,
        state_dir: Path,
        api: Path,
        events: Path | None,
        clock: Clock,
    ) -> None:
        folders = [Path(folder) for folder in settings.engines_dirs] or [state_dir / "engines"]
        self.engines = Engines(
            engines_in(settings.engines),
            limits=settings.engine_limits,
            sources=Sources(folders, kept.custom),
            opts=_opts(role, settings, state_dir, api),
            api=api,
            events=events,
            state_dir=state_dir,
            metrics=rooms.metrics,
            clock=clock,
        )
        rooms.facts.more_labelled.append(self.engines.labelled)
        rooms.facts.engines_failing = self.engines.failing
        self.returners = Returners(
            returners_of(settings, kept.renderer),
            book=ReturnBook(writer=rooms.writer, reader=rooms.reader, clock=clock),
            limits=settings.returner_limits,
            bus=rooms.bus,
            clock=clock,
        )
        rooms.acceptance.returning = self.returners.wanted
        rooms.facts.more_labelled.append(self.returners.labelled)
        rooms.facts.returners_failing = self.returners.failing

    def operations(self) -> list[Operation]:
        """What the API has of it."""
        return [*EnginesApi(self.engines).operations(), *ReturnersApi(self.returners).operations()]

    def parts(self) -> list[Part]:
        """What works on jobs, and needs no API."""
        return [self.returners]

    def parts_with_api(self) -> list[Part]:
        """What asks the API, once that answers."""
        return [self.engines]


def returners_of(settings: StationSettings, renderer: Renderer) -> dict[str, Returner]:
    """Those that are configured, by the names that jobs have for them."""
    found: dict[str, Returner] = {}
    if settings.rawfile_json is not None:
        found["rawfile_json"] = RawfileReturner(settings.rawfile_json)
    if settings.smtp is not None:
        text = MailText(renderer, settings.smtp.subject, settings.smtp.template)
        found["smtp"] = SmtpReturner(settings.smtp, text, settings.name)
    if settings.returner.sqlite3 is not None:
        found["sqlite3"] = SqliteReturner(settings.returner.sqlite3)
    if settings.webhook is not None:
        found["webhook"] = WebhookReturner(settings.webhook)
    return found


def _opts(role: Role, settings: StationSettings, state_dir: Path, api: Path) -> dict[str, Any]:
    """``__opts__``: the settings, and what engines written for Salt look for."""
    said: dict[str, Any] = msgspec.to_builtins(settings)
    for name in NOT_TOLD:
        said.pop(name, None)
    for section, secrets in SECRETS.items():
        for secret in secrets:
            (said.get(section) or {}).pop(secret, None)
    return {
        **said,
        "id": settings.name,
        # Both have devices below them: what is a minion to an engine of Salt's is none of the two.
        "__role": "master",
        "role": role,
        "root_dir": "/",
        "cachedir": str(state_dir),
        "sock_dir": str(api.parent),
        "event_match_type": "startswith",
        "hash_type": "sha256",
    }
