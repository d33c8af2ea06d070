"""What somebody asks for when he wants an orchestration, checked. Pure."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from device_agent.errors import UsageInvalid
from device_agent.protocol.messages import encode_value

MODS: Final = 100
NAME_CHARACTERS: Final = 256
PILLAR_BYTES: Final = 256 * 1024


class Asked(Struct, frozen=True):
    """The files by their names with dots, where they are, and the pillar that they are given."""

    mods: list[str]
    saltenv: str
    pillar: dict[str, Any]
    test: bool


def asked(mods: Any, saltenv: Any, pillar: Any, test: Any) -> Asked:
    """The arguments of ``state.orchestrate``. Raises ``UsageInvalid``."""
    listed = mods.split(",") if isinstance(mods, str) else mods
    if not isinstance(listed, list) or not listed or len(listed) > MODS:
        raise _invalid("mods", mods, f"the names of 1 to {MODS} files, as orch.deploy, in a list or with commas")
    names = [str(name).strip() for name in listed]
    for name in names:
        if not 0 < len(name) <= NAME_CHARACTERS or "/" in name:
            hint = name.removesuffix(".sls").strip("/").replace("/", ".")
            raise _invalid(
                "mods", name, f"a name with dots, of at most {NAME_CHARACTERS} characters", hint[:NAME_CHARACTERS]
            )
    if pillar is not None and not isinstance(pillar, dict):
        raise _invalid("pillar", pillar, "Pillar data must be formatted as a dictionary")
    given = {str(name): value for name, value in (pillar or {}).items()}
    if (size := len(encode_value(given))) > PILLAR_BYTES:
        raise _invalid("pillar", f"{size} bytes", f"at most {PILLAR_BYTES} bytes")
    return Asked(names, str(saltenv or "base"), given, test is True)


def _invalid(where: str, found: Any, allowed: str, hint: str = "") -> UsageInvalid:
    return UsageInvalid(
        "this orchestration cannot be begun",
        error_id="orchestrate.arguments",
        where=where,
        found=str(found)[:200],
        allowed=allowed,
        hint=f"outstation runner state.orchestrate {hint}" if hint else None,
    )
