"""Calls of pillar.*, and of what else looks into pillar, and what must come of them."""

from __future__ import annotations

from tests.peers.function_case import PILLAR, Case

MASK = "**********"
HIDDEN = {
    "onvif": {"user": MASK, "password": MASK, "port": MASK},
    "servers": [MASK, MASK],
    "empty": "",
    "nothing": None,
}
UNMASKED = {"unmask": True}

CASES = (
    Case("pillar.items", value=HIDDEN, salt="no"),
    Case("pillar.items", kwarg=UNMASKED, value=PILLAR, salt="no"),
    Case("pillar.items", ("onvif:user",), UNMASKED, value={"onvif:user": "camera"}, salt="no"),
    Case("pillar.data", value=HIDDEN, salt="no"),
    Case("pillar.get", ("onvif:user",), value=MASK),
    Case("pillar.get", ("onvif:user",), UNMASKED, value="camera"),
    Case("pillar.get", ("servers:1",), UNMASKED, value="192.0.2.2"),
    Case("pillar.get", ("absent",), value=""),
    Case("pillar.get", ("absent", "else"), UNMASKED, value="else"),
    Case("pillar.get", ("onvif|port",), {"delimiter": "|", **UNMASKED}, value=8080),
    Case("pillar.get", ("nothing",), value=None),
    Case("pillar.get", ("onvif",), value=HIDDEN["onvif"]),
    Case(
        "pillar.get",
        ("onvif", {"user": "root", "tls": True}, True),
        UNMASKED,
        value={"user": "camera", "tls": True, "password": "hunter2", "port": 8080},
    ),
    Case(
        "pillar.get",
        ("servers", ["192.0.2.1", "192.0.2.9"], True),
        UNMASKED,
        value=["192.0.2.1", "192.0.2.9", "192.0.2.2"],
    ),
    Case("pillar.get", ("servers", {"a": 1}, True), UNMASKED, value=PILLAR["servers"]),
    Case(
        "pillar.item",
        ("onvif:user", "servers", "absent"),
        value={"onvif:user": MASK, "servers": [MASK] * 2, "absent": ""},
    ),
    Case(
        "pillar.item", ("onvif:port", "absent"), {"default": "x", **UNMASKED}, value={"onvif:port": 8080, "absent": "x"}
    ),
    Case("pillar.raw", value=HIDDEN, salt="shape"),
    Case("pillar.raw", kwarg=UNMASKED, value=PILLAR),
    Case("pillar.raw", kwarg={"key": "onvif", **UNMASKED}, value=PILLAR["onvif"]),
    Case("pillar.raw", kwarg={"key": "absent"}, value={}),
    Case("pillar.keys", ("onvif",), value=["user", "password", "port"]),
    Case("pillar.keys", ("absent",), outcome="failed", why="not found"),
    Case("pillar.keys", ("servers",), outcome="failed", why="not a dict"),
    Case("pillar.ls", value=list(PILLAR), salt="no"),
    Case(
        "pillar.obfuscate",
        value={
            "onvif": {"user": "<str>", "password": "<str>", "port": "<int>"},
            "servers": ["<str>", "<str>"],
            "empty": "<str>",
            "nothing": "<NoneType>",
        },
        salt="no",
    ),
    Case("saltutil.refresh_pillar", value=True, salt="no"),
    Case("saltutil.pillar_refresh", value=True, salt="no"),
    Case("pillar.refresh", value=True, salt="no"),
    Case("config.get", ("onvif:user",), value=MASK, salt="no"),
    Case("config.get", ("onvif:user", "none"), {"omit_pillar": True}, value="none"),
    Case("config.option", ("servers",), value=[MASK, MASK], salt="no"),
    Case("config.merge", ("servers",), value=[MASK, MASK], salt="no"),
)
