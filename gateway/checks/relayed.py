"""Does each site behind a relay prove what it says?"""

from __future__ import annotations

from gateway.checks.finding import Facts, Finding

RECENT_SECONDS = 86_400.0
"""So long a refusal is told after it happened."""


async def check(facts: Facts) -> list[Finding]:
    """A finding for each site behind a relay whose words were refused lately, or come without its signature."""
    sites, now = await facts.relayed_sites(), facts.now()
    findings: list[Finding] = []
    for site in sites:
        name, relay = site["site"], site["link"]
        if site["refused"] and now - site["refused_at"] < RECENT_SECONDS:
            findings.append(
                Finding(
                    check="relayed",
                    severity="error",
                    finding=f"{site['refused']} refused that relay {relay} brought in the name of site {name},"
                    f" the newest: {site['reason']}",
                    meaning=f"the site did not sign these items, or they came before: the relay {relay} may be in wrong"
                    " hands, or an older release runs there or at the site. Devices without a proven outcome end as"
                    " unknown or site_dark",
                    fix=f"look at {relay}: outstation jobs list there and on {name} must agree. An older release on"
                    f" purpose: sites.unproven: [{name}] in the settings (docs/trust.md)",
                    about=name,
                )
            )
        elif site["unproven"] > site["proven"]:
            findings.append(
                Finding(
                    check="relayed",
                    severity="warning",
                    finding=f"what site {name} says does not come with its signature through relay {relay}",
                    meaning=f"the relay {relay} could have made up returns and events of {name}: the gateway there or"
                    " the relay runs release 0.1, or the relay withholds the signatures",
                    fix=f"upgrade {name} and {relay}; then sites.require_proof: true in the settings here",
                    about=name,
                )
            )
    if sites and not findings:
        return [Finding(check="relayed", severity="ok", finding="every site behind a relay proves what it says")]
    return findings
