"""What a station's settings say of pillar, in Salt's words where Salt has one."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from gateway.devices.pillar_merge import Strategy

Kind = Literal["base", "recurse"]
Root = Annotated[str, Meta(min_length=1, max_length=4096)]
Roots = Annotated[
    dict[Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.\-]{1,64}$(?!\n)")], Annotated[list[Root], Meta(max_length=32)]],
    Meta(max_length=64),
]
Away = Literal["refuse", "omit"]


class External(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A source of pillar outside the tree: one of ``sql`` and ``http``, and what to do while it is away."""

    sql: Annotated[
        str | None,
        Meta(
            description="database, as sqlite3:///PATH; it is opened to be read",
            examples=["sqlite3:///var/lib/outstation/cameras.db"],
        ),
    ] = None
    query: Annotated[
        str, Meta(max_length=10_000, description="sql: a SELECT with one ? where the device's name stands")
    ] = ""
    root: Annotated[str, Meta(max_length=256, description="sql: name that all of it stands under; default: none")] = ""
    depth: Annotated[int, Meta(ge=0, le=32, description="sql: columns that become names; 0: all but the last")] = 0
    as_list: Annotated[bool, Meta(description="sql: rows that say the same make a list")] = False
    ignore_null: Annotated[bool, Meta(description="sql: a value that is NULL is left out")] = False
    http: Annotated[
        str | None,
        Meta(
            description="address that answers with a mapping in JSON or YAML; %s is the device's name, <grain> a grain",
            examples=["https://cmdb.example/pillar/%s"],
        ),
    ] = None
    seconds: Annotated[float, Meta(ge=0.1, le=60, description="most that an answer may take")] = 10.0
    fresh_seconds: Annotated[
        float, Meta(ge=0, le=86_400, description="so long an answer counts before it is asked for again")
    ] = 60.0
    max_age_seconds: Annotated[
        float, Meta(ge=0, le=365 * 86_400, description="so long the last answer counts while the source is away")
    ] = 86_400.0
    when_away: Annotated[
        Away,
        Meta(
            description="while the source is away and no answer is young enough: refuse: the device gets no pillar; "
            "omit: it gets one without this source, and _errors names it"
        ),
    ] = "refuse"

    def __post_init__(self) -> None:
        """One kind of source, and what it needs."""
        if (self.sql is None) == (self.http is None):
            raise ValueError("an external pillar is either sql or http, one of both")
        if self.sql is not None:
            if not self.sql.startswith("sqlite3:///"):
                raise ValueError(
                    f"{self.sql.split(':', 1)[0]!r} is no database that is read here; only sqlite3:///PATH is"
                )
            if self.query.count("?") != 1 or not self.query.lstrip().lower().startswith(("select", "with")):
                raise ValueError("query is a SELECT with one ? where the device's name stands")
        elif not (self.http or "").startswith(("http://", "https://")):
            raise ValueError("http begins with http:// or https://")

    @property
    def label(self) -> str:
        """How it is named to people: without what may be secret in its address."""
        where = (self.sql or self.http or "").split("?", 1)[0]
        scheme, _, rest = where.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"


class PillarSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How pillars are put together, as Salt's settings of the same names with ``pillar_`` in front."""

    source_merging_strategy: Annotated[
        Strategy, Meta(description="how what several files say becomes one: smart and recurse: at every level")
    ] = "smart"
    merge_lists: Annotated[bool, Meta(description="join lists instead of replacing them")] = False
    includes_override_sls: Annotated[bool, Meta(description="what is included counts before the file itself")] = False
    ext: Annotated[list[External], Meta(max_length=32, description="sources of pillar outside the tree, in order")] = []
    ext_first: Annotated[bool, Meta(description="ask them first: files see what they say, and count before it")] = False
