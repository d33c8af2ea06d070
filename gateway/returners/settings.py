"""What a station can be told of its returners. Names are Salt's: ``smtp.from``, ``rawfile_json.filename``."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import urlsplit

from msgspec import Meta, Struct, field

FIELDS: Final = ("id", "fun", "jid", "site", "outcome", "retcode", "success", "user")
"""What a subject can be told to end in."""

Path = Annotated[str, Meta(min_length=1, max_length=4096, pattern="^/")]
Words = Annotated[str, Meta(min_length=1, max_length=998)]


class SmtpSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The returner ``smtp``: a mail for each return."""

    from_: Annotated[Words, Meta(description="the address that mails come from")] = field(name="from")
    to: Annotated[
        Words | Annotated[list[Words], Meta(min_length=1, max_length=100)],
        Meta(description="the addresses that they go to, with commas between, or a list"),
    ]
    host: Annotated[Words, Meta(description="the mail server")]
    port: Annotated[int, Meta(ge=1, le=65_535, description="its port")] = 25
    username: Annotated[str | None, Meta(description="user there, if it asks for one")] = None
    password: Annotated[str | None, Meta(description="its password")] = None
    tls: Annotated[bool, Meta(description="go over to TLS (STARTTLS), and check the server's certificate")] = False
    subject: Annotated[Words, Meta(description="of a mail, a Jinja template over the return")] = (
        "{{ fun }} on {{ id }}: {{ outcome }}"
    )
    fields: Annotated[
        str | list[str],
        Meta(description="values that the subject ends in, with commas between: " + ", ".join(FIELDS)),
    ] = []
    template: Annotated[
        Path | None, Meta(description="file with the text of a mail, a Jinja template; default: all that there is")
    ] = None
    seconds: Annotated[float, Meta(ge=0.1, le=300, description="most that sending one may take")] = 30.0

    def __post_init__(self) -> None:
        """What no pattern can say."""
        if self.username is not None and not self.tls and not _is_here(self.host):
            raise ValueError("a password would travel in the open: set tls: true beside username")
        for name in self.field_names:
            if name not in FIELDS:
                raise ValueError(f"fields: there is no {name[:40]!r}; there are {', '.join(FIELDS)}")

    @property
    def recipients(self) -> list[str]:
        """``to`` as a list."""
        return _listed(self.to)

    @property
    def field_names(self) -> list[str]:
        """``fields`` as a list."""
        return _listed(self.fields)


class RawfileSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The returner ``rawfile_json``: a line of JSON for each return."""

    filename: Annotated[Path, Meta(description="the file that lines are added to")]


class WebhookSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The returner ``webhook``: an HTTP request for each return."""

    url: Annotated[str, Meta(min_length=1, max_length=2048, description="where it is posted to, as JSON")]
    headers: Annotated[dict[str, str], Meta(max_length=32, description="more headers, such as Authorization")] = {}
    secret: Annotated[
        str | None, Meta(description="X-Outstation-Signature is sha256=, and the HMAC of the body with it")
    ] = None
    seconds: Annotated[float, Meta(ge=0.1, le=300, description="most that one may take")] = 10.0

    def __post_init__(self) -> None:
        """What no pattern can say."""
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("url: it is no address: http://HOST/PATH or https://HOST/PATH")
        if "@" in parts.netloc:
            raise ValueError("url: no user and password in it: headers: {Authorization: Basic …}")


class SqliteSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The returner ``sqlite3``: rows in the tables that Salt's has."""

    database: Annotated[Path, Meta(description="the file, which is made when it is not there")]
    timeout: Annotated[float, Meta(ge=0.1, le=300, description="seconds that another program may keep it locked")] = 5.0


class ReturnerSections(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Returners that Salt configures under ``returner``."""

    sqlite3: SqliteSettings | None = None


class ReturnerLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long is tried to send a return."""

    give_up_hours: Annotated[
        float, Meta(gt=0, le=24 * 365, description="hours after which a return that nobody takes is given up")
    ] = 12.0
    pause_seconds: Annotated[float, Meta(ge=1, le=3600, description="longest pause between two attempts")] = 300.0


def _listed(said: str | list[str]) -> list[str]:
    words = said.split(",") if isinstance(said, str) else said
    return [word.strip() for word in words if word.strip()]


def _is_here(host: str) -> bool:
    return host in {"localhost", "127.0.0.1", "::1"}
