"""Are there SSH devices that only an operator can bring back: another host key, a login refused, no shell?"""

from __future__ import annotations

from gateway.checks.finding import Facts, Finding


async def check(facts: Facts) -> list[Finding]:
    """A finding for each such device; none where there is none."""
    link = (await facts.station_view()).get("ssh") or {"troubles": [], "troubled": 0}
    findings = [_finding(trouble["id"], trouble["reason"], trouble["why"]) for trouble in link["troubles"]]
    more = link["troubled"] - len(findings)
    if more > 0:
        finding = f"{more} more SSH devices have another host key, a login that cannot be used, or no shell"
        findings.append(Finding(check="ssh", severity="warning", finding=finding, fix="outstation devices list"))
    return findings


def _finding(name: str, reason: str, why: str) -> Finding:
    if reason == "host_key_changed":
        return Finding(
            check="ssh",
            severity="error",
            finding=f"{name} shows another host key: {why}",
            meaning="it was replaced or set up anew, or somebody answers in its place; nothing is sent to it",
            fix=f"compare the key at the device; if it is right: outstation devices key {name}",
            about=name,
        )
    if reason == "login_unusable":
        return Finding(
            check="ssh",
            severity="warning",
            finding=f"this gateway cannot use the login of {name}: {why}",
            meaning="nothing was said to the device; no job reaches it until the login can be used",
            fix=f"outstation devices set {name} --password-file FILE (or --key FILE); with --agent: ssh.agent_socket",
            about=name,
        )
    if reason == "no_shell":
        return Finding(
            check="ssh",
            severity="warning",
            finding=f"{name} lets this gateway in and runs no command: {why}",
            meaning="the account opens a menu or another command line; no job reaches the device until it has a shell",
            fix=f"give the account a shell, or use another user: outstation devices set {name} --ssh USER@HOST",
            about=name,
        )
    return Finding(
        check="ssh",
        severity="warning",
        finding=f"{name} does not let this gateway in: {why}",
        meaning="its user, password or key was changed; no job reaches it until the login is right again",
        fix=f"outstation devices set {name} --password-file FILE (or --key FILE)",
        about=name,
    )
