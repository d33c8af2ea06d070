"""``outstation operators``: who one is at this station, and the tokens of those who ask from other machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from device_agent.clock import iso
from device_agent.errors import EXIT_OK
from gateway.cli import completion
from gateway.cli.arguments import duration
from gateway.cli.command import ASKING, HelpText, invocation, noun, verb
from gateway.cli.text import safe

if TYPE_CHECKING:
    from gateway.cli.views import TokenView

ROLES = {
    "viewer": "sees everything, changes nothing",
    "operator": "sees, and runs what the policy's rules allow; a root shell or the like only where it is named",
    "approver": "sees, accepts and rejects keys, releases held jobs; runs nothing",
    "admin": "everything",
}
STYLES = {"valid": "green", "expired": "yellow", "revoked": "red"}

app = noun(
    HelpText(
        purpose="Operators: who you are at this station, and tokens for those who ask from other machines.",
        explained={"States": {"valid": "it lets in", "expired": "its time is over", "revoked": "somebody ended it"}},
        examples=[
            ("outstation operators me", "who you are here, and what you may do"),
            ("outstation operators new anna --role operator", "a token for anna"),
        ],
        exits=ASKING,
    )
)

Json = Annotated[bool, typer.Option("--json", help="one JSON object per line")]

ME = HelpText(
    purpose="Say who you are at this station, and what you may do.",
    examples=[
        ("outstation operators me", "by the socket: your user name"),
        ("outstation --api https://192.0.2.1:4512 --token-file anna.token operators me", "by a token: its user"),
    ],
    exits=ASKING,
)


@verb(app, "me", ME)
def show_me(context: typer.Context, as_json: Json = False) -> int:
    """Print who asks."""
    output = invocation(context).output
    operator = invocation(context).client().operator()
    if as_json:
        output.record("operator", operator)
        return EXIT_OK
    output.facts(
        [
            ("name", safe(operator.name)),
            ("door", safe(operator.door)),
            ("roles", safe(", ".join(operator.roles)) or "none"),
            ("may", safe(", ".join(operator.may)) or "nothing"),
            ("policy", safe(operator.policy or "no file: root and the station's own user do everything, others look")),
        ]
    )
    return EXIT_OK


NEW = HelpText(
    purpose="Make a token, with which somebody may ask this station's API from another machine.",
    details=(
        "Only the token is printed to stdout, and only this once; the station keeps a hash. Without --role the policy "
        "file decides by the user's name, each time the token is used."
    ),
    explained={"Roles": ROLES},
    examples=[
        ("outstation operators new anna --role operator --for 30d", "for a month"),
        ("outstation operators new grafana --role viewer --json", "for a program"),
    ],
    exits=ASKING,
)


@verb(app, "new", NEW)
def new(
    context: typer.Context,
    user: Annotated[str, typer.Argument(metavar="USER", help="who asks, as jobs and the audit name him")],
    role: Annotated[
        Literal["viewer", "operator", "approver", "admin"] | None,
        typer.Option(metavar="ROLE", help="viewer, operator, approver or admin (default: by the policy file)"),
    ] = None,
    span: Annotated[str, typer.Option("--for", metavar="DURATION", help="how long it lets in: 12h, 90d")] = "90d",
    as_json: Json = False,
) -> int:
    """Print a new token."""
    output = invocation(context).output
    seconds = duration("--for", span)
    token = invocation(context).client().new_token(user, role, seconds)
    if as_json:
        output.record("token", token)
        return EXIT_OK
    output.line(token.token)
    output.note(f"token {safe(token.id)} of {safe(token.user)}, until {_until(token)}; it is not shown again")
    output.note(f"end it:  outstation operators revoke {safe(token.id)}")
    return EXIT_OK


LIST = HelpText(
    purpose="List the tokens of this station's API, newest first.",
    explained={
        "Columns": {
            "id": "what `operators revoke` takes",
            "user": "who asks with it",
            "role": "its role; by policy: the policy file decides by the user's name",
            "state": "valid, expired or revoked",
            "expires": "until when it lets in",
            "used": "when it was last used, to the minute",
            "made by": "who made it",
        }
    },
    examples=[
        ("outstation operators list", "who may ask from elsewhere"),
        ("outstation operators list --json", "for a script"),
    ],
    exits=ASKING,
)


@verb(app, "list", LIST)
def list_tokens(context: typer.Context, as_json: Json = False) -> int:
    """Print a table of tokens."""
    output = invocation(context).output
    tokens = invocation(context).client().tokens()
    if as_json:
        for token in tokens:
            output.record("token", token)
        return EXIT_OK
    rows = [
        (
            safe(token.id),
            safe(token.user),
            safe(token.role or "by policy"),
            (safe(token.state), STYLES.get(token.state, "")),
            _until(token),
            output.age(token.used),
            safe(token.made_by),
        )
        for token in tokens
    ]
    if not output.table(("id", "user", "role", "state", "expires", "used", "made by"), rows):
        output.note("no tokens: who asks comes by the socket")
    return EXIT_OK


REVOKE = HelpText(
    purpose="End a token now; streams that were opened with it end too.",
    examples=[
        ("outstation operators revoke 3f2a91c07be4", "by its id"),
        ("outstation operators list", "which ids there are"),
    ],
    exits=ASKING,
)


@verb(app, "revoke", REVOKE)
def revoke(
    context: typer.Context,
    token_id: Annotated[
        str, typer.Argument(metavar="ID", help="the token's id", autocompletion=completion.operator_token_ids)
    ],
    as_json: Json = False,
) -> int:
    """End a token."""
    output = invocation(context).output
    token = invocation(context).client().revoke_token(token_id)
    if as_json:
        output.record("token", token)
        return EXIT_OK
    output.line((safe(token.state), STYLES.get(token.state, "")), f" {safe(token.id)} {safe(token.user)}")
    return EXIT_OK


def _until(token: TokenView) -> str:
    return "-" if token.expires is None else iso(token.expires)
