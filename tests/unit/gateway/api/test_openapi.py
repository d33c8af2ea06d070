"""gateway/api/openapi.py: the document agrees with the operations, of which a station's are the test."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from device_agent.clock import Clock
from gateway.api.openapi import document
from gateway.api.operation import Operation
from gateway.config import StationSettings
from gateway.rooms import Rooms


@pytest.fixture
def operations(tmp_path: Path) -> list[Operation]:
    rooms = Rooms("gateway", StationSettings(name="lisbon"), tmp_path, Clock())
    return rooms.operations(asyncio.Event())


@pytest.fixture
def described(operations: list[Operation]) -> dict[str, Any]:
    """The document, as it comes over the wire."""
    read: dict[str, Any] = json.loads(msgspec.json.encode(document(operations)))
    return read


def test_every_operation_is_described_once(operations: list[Operation], described: dict[str, Any]) -> None:
    found = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    assert found == {(each.method, each.path) for each in operations}
    assert len(found) == len(operations)


def test_every_parameter_is_described(operations: list[Operation], described: dict[str, Any]) -> None:
    for each in operations:
        parameters = described["paths"][each.path][each.method.lower()]["parameters"]
        places = {place: {entry["name"] for entry in parameters if entry["in"] == place} for place in ("path", "query")}
        assert places == {"path": set(re.findall(r"{(\w+)}", each.path)), "query": set(each.query)}
        assert all(entry["required"] for entry in parameters if entry["in"] == "path")


def test_every_body_is_described_down_to_its_fields(operations: list[Operation], described: dict[str, Any]) -> None:
    with_body = [each for each in operations if each.body is not None]
    assert with_body
    for each in with_body:
        body = described["paths"][each.path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        name = body["$ref"].removeprefix("#/components/schemas/")
        fields = described["components"]["schemas"][name]["properties"]
        assert each.body is not None
        assert set(fields) == {field.encode_name for field in msgspec.structs.fields(each.body)}


def test_every_reference_leads_somewhere(described: dict[str, Any]) -> None:
    references = set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(described)))
    assert references
    for reference in references:
        node: Any = described
        for step in reference.removeprefix("#/").split("/"):
            node = node[step]


def test_every_operation_says_how_it_answers_and_how_it_refuses(described: dict[str, Any]) -> None:
    for methods in described["paths"].values():
        for described_operation in methods.values():
            answers = described_operation["responses"]
            assert any(status.startswith("2") for status in answers)
            assert {"400", "403", "404", "500"} <= set(answers)
            assert described_operation["summary"]


def test_streams_and_texts_are_not_called_json(operations: list[Operation], described: dict[str, Any]) -> None:
    for each in operations:
        media = described["paths"][each.path][each.method.lower()]["responses"][str(each.status)]["content"]
        wanted = "text/plain" if each.text else "application/x-ndjson" if each.stream else "application/json"
        assert list(media) == [wanted, *(["text/event-stream"] if each.server_sent else [])]


def test_it_is_openapi_3_1_of_this_release(described: dict[str, Any]) -> None:
    assert described["openapi"] == "3.1.0"
    assert described["info"]["version"]
