"""A runner of a site's own. It runs once the folder above was signed, and brought with saltutil.sync_runners.

outstation fleet release sign /etc/outstation/reactor/served --key release.key
outstation runner saltutil.sync_runners
"""

from __future__ import annotations

from typing import Any

__reach__ = {"custom_function": "changes"}


async def custom_function(running: Any, foo: str) -> dict[str, str]:
    """Tell the site of it.

    CLI example: ``outstation runner custom_runner.custom_function foo=bar``
    """
    await running.fire("site/custom", {"foo": foo})
    return {"told": foo}
