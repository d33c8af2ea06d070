"""Can the secrets of SSH devices still be opened? Not after a restore with new keys."""

from __future__ import annotations

from gateway.checks.finding import Facts, Finding

NAMED = 5


async def check(facts: Facts) -> list[Finding]:
    """A finding when there are devices that cannot be logged in to any more."""
    lost = facts.ssh_secrets_lost()
    if not lost:
        return []
    named = ", ".join(lost[:NAMED]) + (f" and {len(lost) - NAMED:,} more" if len(lost) > NAMED else "")
    return [
        Finding(
            check="ssh",
            severity="error",
            finding=f"what opens the doors of {len(lost):,} SSH devices cannot be unsealed: {named}",
            meaning="it was sealed with the keys that this station had before; nobody can log in to them",
            fix=f"outstation devices set {lost[0]} --password-file FILE (or --key FILE); for many: devices import",
            about="secrets",
        )
    ]
