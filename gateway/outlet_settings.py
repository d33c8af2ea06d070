"""What a station can be told of what goes out of it to other programs, at the top of its settings as in Salt."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from gateway.engines.settings import EngineLimits, Engines, engines_in
from gateway.returners.settings import (
    RawfileSettings,
    ReturnerLimits,
    ReturnerSections,
    SmtpSettings,
    WebhookSettings,
)


class OutletSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of the station's table that is about engines and returners."""

    engines: Annotated[
        Engines,
        Meta(
            description="programs that run beside the station, as in Salt: names, each with its options; "
            "docs/engines.md",
            examples=[[{"event_to_file": {"path": "/var/log/outstation/events.jsonl"}}]],
        ),
    ] = []
    engines_dirs: Annotated[
        list[Annotated[str, Meta(min_length=1, pattern="^/")]],
        Meta(
            max_length=16, description="folders with engines of this machine's own, best first; default: STATE/engines"
        ),
    ] = []
    engine_limits: EngineLimits = EngineLimits()
    smtp: SmtpSettings | None = None
    rawfile_json: RawfileSettings | None = None
    webhook: WebhookSettings | None = None
    returner: ReturnerSections = ReturnerSections()
    returner_limits: ReturnerLimits = ReturnerLimits()

    def __post_init__(self) -> None:
        """What no pattern of a setting can say."""
        engines_in(self.engines)
