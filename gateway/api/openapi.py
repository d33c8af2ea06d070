"""The OpenAPI document, made from the same table as the routes (https://spec.openapis.org/oas/v3.1.0)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from device_agent import __version__
from gateway.api.operation import EVENT_STREAM, Operation
from gateway.devices.policy import NEED_WORDS

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["id", "what"],
            "properties": {name: {"type": "string"} for name in ("id", "what", "where", "found", "allowed", "hint")},
        }
    },
}


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """The whole document."""
    bodies = [operation.body for operation in operations if operation.body is not None]
    schemas, components = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    body_schemas = dict(zip(bodies, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, body_schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Outstation station", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        # At the unix socket the kernel says who asks, so no token is wanted there.
        "security": [{}, {"token": []}],
    }


def _described(operation: Operation, bodies: dict[type[Any], dict[str, Any]]) -> dict[str, Any]:
    media = ["text/plain" if operation.text else "application/x-ndjson" if operation.stream else "application/json"]
    media += [EVENT_STREAM] if operation.server_sent else []
    error = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    described: dict[str, Any] = {
        "summary": operation.summary,
        "description": f"Who asks must be allowed to {NEED_WORDS[operation.need]}.",
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in re.findall(r"{(\w+)}", operation.path)
            ),
            *(
                {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
                for name, text in operation.query.items()
            ),
        ],
        "responses": {
            str(operation.status): {"description": "done", "content": {each: {"schema": {}} for each in media}},
            "400": {"description": "the request is wrong", **error},
            "401": {"description": "nobody knows who asks", **error},
            "403": {"description": "refused by policy", **error},
            "404": {"description": "no such thing", **error},
            "429": {"description": "too many wrong tokens from this address", **error},
            "500": {"description": "the station could not", **error},
        },
    }
    if operation.body is not None:
        described["requestBody"] = {"content": {"application/json": {"schema": bodies[operation.body]}}}
    return described
