"""From the verified bytes of a file to its functions, so that one that fails or hangs harms nothing else.

The bytes that were verified are the ones that run: they are compiled here, and no file is looked at again. A file runs
once, in a thread of its own; one that does not come to its end in time is stopped, as far as Python lets us, and is not
begun again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import inspect
import sys
import threading
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any, Final

from device_agent.errors import Refused

LOAD_SECONDS: Final = 10.0
PACKAGE: Final = "outstation_custom"

Function = Callable[..., Coroutine[Any, Any, Any]]


async def loaded(path: str, body: bytes, seconds: float = LOAD_SECONDS) -> ModuleType:
    """The module in these bytes. Raises ``Refused`` (``does_not_load``, ``hangs``)."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[ModuleType] = loop.create_future()
    module = ModuleType(f"{PACKAGE}.{path.removesuffix('.py').replace('/', '.')}")
    module.__file__ = path

    def settle(error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(module)
        else:
            done.set_exception(Refused("does_not_load", f"{path}: {type(error).__name__}: {error}"[:500]))

    def run() -> None:
        found: BaseException | None = None
        try:
            exec(compile(body, path, "exec", dont_inherit=True), vars(module))  # noqa: S102 - its hash was signed
        except BaseException as error:  # noqa: BLE001 - whatever a file does when it runs is its own end, not ours
            found = error
        # The loop may have ended before a file that hung.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, found)

    # A class in it is looked up by the name of its module, as of any other.
    sys.modules[module.__name__] = module
    thread = threading.Thread(target=run, name=f"load {path}", daemon=True)
    thread.start()
    try:
        async with asyncio.timeout(seconds):
            return await done
    except TimeoutError:
        stop(thread)
        raise Refused("hangs", f"{path}: it did not load within {seconds:g} s") from None


def functions_in(module: ModuleType) -> dict[str, Function]:
    """Its functions: public, ``async def``, its own. A name that Python keeps has an underscore behind it."""
    return {
        name.removesuffix("_"): member
        for name, member in vars(module).items()
        if not name.startswith("_") and inspect.iscoroutinefunction(member) and member.__module__ == module.__name__
    }


def plain_in(module: ModuleType) -> set[str]:
    """Its public functions that are a plain ``def``, as Salt has them."""
    return {
        name
        for name, member in vars(module).items()
        if not name.startswith("_") and inspect.isfunction(member) and member.__module__ == module.__name__
    } - functions_in(module).keys()


def stop(thread: threading.Thread) -> None:
    """Raise ``SystemExit`` in a thread: that ends a loop. One that waits for the machine sleeps on, for nothing."""
    if thread.ident is not None and thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
