"""All cases of functions. A new file of them is one more line here."""

from __future__ import annotations

from tests.peers import (
    function_cases_cmd,
    function_cases_device,
    function_cases_editing,
    function_cases_file,
    function_cases_looks,
    function_cases_pillar,
    function_cases_received,
    function_cases_standing,
)

ALL = (
    *function_cases_device.CASES,
    *function_cases_cmd.CASES,
    *function_cases_file.CASES,
    *function_cases_editing.CASES,
    *function_cases_standing.CASES,
    *function_cases_looks.CASES,
    *function_cases_pillar.CASES,
    *function_cases_received.CASES,
)
