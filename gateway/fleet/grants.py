"""What a site is granted: the policy in its certificate, made from what an operator typed."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from device_agent.errors import Refused, UsageInvalid
from device_agent.protocol import limits
from device_agent.protocol.messages import ORIGIN_PATTERN
from device_agent.trust import reach
from device_agent.trust.policy import SitePolicy
from device_agent.trust.site_certificate import SITE_SECONDS
from upstream.frames import CERTIFICATE_BYTES

DAY_SECONDS = 86_400
DAYS = SITE_SECONDS // DAY_SECONDS
LONGEST_DAYS = limits.CERTIFICATE_DAYS

POLICY_BYTES = CERTIFICATE_BYTES - 1024
ORIGIN = re.compile(ORIGIN_PATTERN)


@dataclass(frozen=True)
class Grant:
    """What was typed: globs or classes of functions, for the site itself or for an origin; and for how many days.

    They are added to what the site has; with ``only`` they take its place. ``days`` 0 leaves the length as it is.
    """

    functions: tuple[str, ...] = ()
    origin: str = ""
    only: bool = False
    days: int = 0


def granted(policy: SitePolicy | None, grant: Grant) -> SitePolicy:
    """The policy after a grant; a site that has none yet begins with the default. Raises ``UsageInvalid``."""
    if not 0 <= grant.days <= LONGEST_DAYS:
        raise UsageInvalid(
            "a site certificate does not last that long",
            where="days",
            found=str(grant.days),
            allowed=f"1 to {LONGEST_DAYS}",
        )
    if grant.only and not grant.functions:
        raise UsageInvalid("nothing is granted", where="only", allowed="--only together with --grant FUNCTION-GLOB")
    if grant.origin and not ORIGIN.match(grant.origin):
        raise UsageInvalid(
            "this is no name of an origin",
            where="origin",
            found=grant.origin[:60],
            allowed="small letters, digits and dashes, such as salt",
        )
    before = policy or SitePolicy()
    had = before.org.get(grant.origin, ()) if grant.origin else before.fun
    functions = tuple(dict.fromkeys(grant.functions if grant.only else (*had, *grant.functions)))
    if grant.origin:
        after = replace(before, org={**before.org, grant.origin: functions})
    else:
        after = replace(before, fun=functions)
    for glob in grant.functions:
        if ("." not in glob and glob not in reach.CLASSES) or any(character.isspace() for character in glob):
            raise _bad_grant(glob)
    try:
        after.to_claims()
    except Refused as refusal:
        raise _bad_grant(refusal.detail) from None
    size = sum(
        len(glob.encode()) + 2 for glob in (*after.fun, *(each for globs in after.org.values() for each in globs))
    )
    if size > POLICY_BYTES:
        raise UsageInvalid(
            "these are too many grants for one certificate",
            where="grant",
            found=f"{size} bytes",
            allowed=f"{POLICY_BYTES} bytes",
            hint="grant by wider globs, such as 'camera.*'",
        )
    return after


def grants_shell(policy: SitePolicy) -> bool:
    """Whether a policy lets its site, or one of its origins, do what is as good as a shell."""
    globs = (*policy.fun, *(glob for globs in policy.org.values() for glob in globs))
    return reach.grants_shell(globs)


def _bad_grant(found: str) -> UsageInvalid:
    return UsageInvalid(
        "this cannot be granted to a site",
        error_id="fleet.bad_grant",
        where="grant",
        found=found,
        allowed="a glob of functions with a module in it, such as 'state.apply' or 'camera.*', or a class: "
        + ", ".join(reach.CLASSES),
        hint="outstation run TARGET sys.list_functions shows the functions there are",
    )
