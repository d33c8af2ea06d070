"""A function that writes a file of a device is alone with it from the read to the write (device_agent/file_changes.py).

A device runs several jobs at once. Of two that read a file, change it and write it, one change would be lost.
"""

from __future__ import annotations

import ast

from tests.house.tree import name, python_files, syntax

PLACES = (
    "device_agent/functions/",
    "device_agent/accounts/",
    "device_agent/host_name.py",
    "device_agent/openssh_files.py",
)
WRITERS = {
    "host.write",
    "host.replace",
    "text_files.write",
    "openssh_files.write",
    "changed_file",
    "_install",
    "self._write",
}
ALONE = {"changing", "self._alone", "one_change_at_a_time"}
OTHERS = {
    "device_agent/accounts/database.py:_write": "its callers are alone with the file",
    "device_agent/functions/camera.py:snapshot": "a new picture, whatever was there",
    "device_agent/functions/cmd/scripts.py:_code": "a file whose name no other job has",
    "device_agent/functions/cmd/scripts.py:_script": "a file whose name no other job has",
    "device_agent/functions/file/_changes.py:changed_file": "its callers are alone with the file",
    "device_agent/functions/grains.py:_keep": "its callers hold own.writing_grains",
    "device_agent/functions/timezone.py:set_zone": "the new name, whatever was there",
    "device_agent/host_name.py:_undo": "its caller is alone with the file",
    "device_agent/openssh_files.py:write": "its callers are alone with the file",
}
"""Functions that write and need no turn of their own, and why."""


def test_each_function_that_writes_a_file_is_alone_with_it() -> None:
    found = {
        f"{name(path)}:{function.name}"
        for path in python_files("device_agent")
        if name(path).startswith(PLACES)
        for function in ast.walk(syntax(path))
        if isinstance(function, ast.AsyncFunctionDef) and _calls(function) & WRITERS and not _calls(function) & ALONE
    }
    assert found == OTHERS.keys()


def _calls(function: ast.AsyncFunctionDef) -> set[str]:
    """What a function calls, and what decorates it."""
    return {ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
