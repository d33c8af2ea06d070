"""Functions that show whether a device answers, and how it fails."""

from __future__ import annotations

import asyncio
import hashlib
import platform
import random
from importlib import metadata
from typing import Annotated, Any

from msgspec import Meta

from device_agent import __version__, loader
from device_agent.ended import Ended, FunctionFailed
from device_agent.host import Host
from device_agent.protocol import limits

SleepSeconds = Annotated[float, Meta(ge=0, le=limits.RUN_LIMIT_MAX_SECONDS)]
HASHES = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512")


async def ping(_host: Host) -> bool:
    """Answer ``True``: the device is there and runs jobs.

    CLI Example:

        outstation run '*' test.ping
    """
    return True


async def echo(_host: Host, text: Any) -> Any:
    """Return what was given.

    CLI Example:

        outstation run '*' test.echo 'foo bar baz'
    """
    return text


async def sleep(_host: Host, length: SleepSeconds) -> bool:
    """Wait so many seconds, then return ``True``.

    CLI Example:

        outstation run '*' test.sleep 20
    """
    await asyncio.sleep(length)
    return True


async def rand_sleep(_host: Host, max: SleepSeconds = 60) -> bool:  # noqa: A002 - Salt names it so
    """Wait a random time of at most so many seconds, then return ``True``.

    CLI Example:

        outstation run '*' test.rand_sleep 60
    """
    await asyncio.sleep(random.uniform(0, max))
    return True


async def true_(_host: Host) -> bool:
    """Return ``True``.

    CLI Example:

        outstation run '*' test.true
    """
    return True


async def false_(_host: Host) -> bool:
    """Return ``False``.

    CLI Example:

        outstation run '*' test.false
    """
    return False


async def arg(_host: Host, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return the arguments as they arrived.

    CLI Example:

        outstation run '*' test.arg 1 two 3.1 txt=hello
    """
    return {"args": list(args), "kwargs": kwargs}


async def kwarg(_host: Host, **kwargs: Any) -> dict[str, Any]:
    """Return the named arguments as they arrived.

    CLI Example:

        outstation run '*' test.kwarg num=1 txt=two
    """
    return kwargs


async def arg_type(_host: Host, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return the types of the arguments as they arrived.

    CLI Example:

        outstation run '*' test.arg_type 1 two
    """
    return {
        "args": [str(type(value)) for value in args],
        "kwargs": {name: str(type(value)) for name, value in kwargs.items()},
    }


async def arg_repr(_host: Host, *args: Any, **kwargs: Any) -> dict[str, str]:
    """Return the arguments as Python would write them.

    CLI Example:

        outstation run '*' test.arg_repr 1 two txt=hello
    """
    return {"args": repr(args), "kwargs": repr(kwargs)}


async def version(_host: Host) -> str:
    """Return the version of Outstation that runs the functions of this device.

    CLI Example:

        outstation run '*' test.version
    """
    return __version__


async def versions_information(_host: Host) -> dict[str, dict[str, str | None]]:
    """Return the versions of Outstation, of what it is built on and of the system that it runs on, in Salt's groups.

    CLI Example:

        outstation run '*' test.versions_information
    """
    built_on = ("aiomqtt", "cbor2", "cryptography", "msgspec", "PyYAML")
    return {
        "Salt Version": {"Outstation": __version__},
        "Dependency Versions": {name: _installed(name) for name in built_on} | {"Python": platform.python_version()},
        "Salt Extensions": {},
        "System Versions": {
            "machine": platform.machine(),
            "release": platform.release(),
            "system": platform.system(),
            "version": platform.version(),
        },
    }


async def versions(host: Host) -> str:
    """Return the versions of Outstation and of what it is built on, as lines to read.

    CLI Example:

        outstation run '*' test.versions
    """
    lines = []
    for group, found in (await versions_information(host)).items():
        if found:
            lines += [f"{group}:", *(f"{name:>20}: {value or 'Not Installed'}" for name, value in found.items()), ""]
    return "\n".join(lines)


async def versions_report(host: Host) -> str:
    """Return the same as ``test.versions``.

    CLI Example:

        outstation run '*' test.versions_report
    """
    return await versions(host)


async def not_loaded(_host: Host) -> list[str]:
    """Return the modules that are here and do not load.

    CLI Example:

        outstation run '*' test.not_loaded
    """
    return loader.not_loaded()


async def retcode(_host: Host, code: int = 42) -> Ended:
    """Return ``True`` with this return code; any but 0 makes the outcome ``failed``.

    CLI Example:

        outstation run '*' test.retcode 42
    """
    return Ended(True, code, "failed", f"the return code is {code}, as asked") if code else Ended(True)


async def exception(_host: Host, message: str = "Test Exception") -> None:
    """Raise an exception.

    CLI Example:

        outstation run '*' test.exception 'Oh noes!'
    """
    raise RuntimeError(message)


async def assertion(_host: Host, assertion: Any) -> None:
    """Fail unless what is given is true.

    CLI Example:

        outstation run '*' test.assertion False
    """
    if not assertion:
        raise FunctionFailed("the assertion does not hold")


async def random_hash(_host: Host, size: Annotated[int, Meta(ge=1)] = 9999999999, hash_type: str | None = None) -> str:
    """Return the hash of a random number from 1 to ``size``; ``hash_type`` is sha256 unless told.

    CLI Example:

        outstation run '*' test.random_hash
        outstation run '*' test.random_hash hash_type=sha512
    """
    form = hash_type or "sha256"
    if form not in HASHES:
        raise FunctionFailed(f"there is no hash {form}; allowed: {', '.join(HASHES)}")
    return hashlib.new(form, str(random.SystemRandom().randint(1, size)).encode()).hexdigest()


async def fail(_host: Host, message: str = "the function was asked to fail", retcode: int = 1) -> None:
    """Fail, with this message and return code.

    CLI Example:

        outstation run '*' test.fail 'out of film' retcode=3
    """
    raise FunctionFailed(message, retcode)


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
