"""What to type where a gateway has to join: the same wherever it is said."""

from typing import Final

JOIN: Final = "sudo outstation gateway join"
"""Without arguments it asks for what is missing, so it is right on every machine."""

NOT_JOINED: Final = f"not joined yet: {JOIN}"
"""What a gateway without a fleet says of itself, in its unit's status, its log and its answers."""

NO_NAME: Final = "-"
"""In the place of a site's name, which never begins like this."""
