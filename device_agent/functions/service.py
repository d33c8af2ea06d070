"""Services of the device: of systemd, OpenRC, System V scripts, OpenWrt or BusyBox, whichever it has."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any

from device_agent import system_text
from device_agent.commands import Said, do, shell
from device_agent.ended import FunctionFailed
from device_agent.host import Host
from device_agent.init_systems.found import init_system
from device_agent.init_systems.names import is_instance, is_service_name
from device_agent.init_systems.port import InitSystem, Verb
from device_agent.init_systems.systemd import Systemd

STARTING = frozenset({"restart", "force-reload"})
"""These start what does not run."""

_PIDS = r"""IFS= read -r wanted
for process in /proc/[0-9]*; do
    pid=${process#/proc/}
    [ "$pid" != $$ ] && tr '\0' ' ' <"$process/cmdline" 2>/dev/null | grep -q -- "$wanted" && echo "$pid"
done; :"""


async def status(host: Host, name: str, sig: str | None = None) -> bool | dict[str, bool]:
    """Return whether a service runs; for a glob, a dictionary by service.

    With ``sig`` the service is not asked, but whether there is a process whose command line has this text.

    CLI Example:

        outstation run '*' service.status sshd
        outstation run '*' service.status 'ssh*'
        outstation run '*' service.status backup sig='rsync --daemon'
    """
    if sig:
        return bool((await shell(host, _PIDS, stdin=f"{sig}\n")).out.strip())
    init = await init_system(host)
    if re.search(r"[*?\[]", name):
        return {each: await init.running(each) for each in await init.names() if fnmatchcase(each, name)}
    return await init.running(_name(name))


async def start(
    host: Host, name: str, *, no_block: bool = False, unmask: bool = False, unmask_runtime: bool = False
) -> bool:
    """Start a service and return ``True``; what it says when it does not start is the failure.

    With systemd, ``no_block`` does not wait for the start to be over and ``unmask`` takes a mask away before.

    CLI Example:

        outstation run 'cam-*' service.start sshd
    """
    return await _act(host, name, "start", no_block=no_block, unmask=unmask, unmask_runtime=unmask_runtime)


async def stop(host: Host, name: str, *, no_block: bool | None = None) -> bool:
    """Stop a service and return ``True``, or fail with ``False``.

    CLI Example:

        outstation run 'cam-*' service.stop sshd
    """
    return await _act(host, name, "stop", no_block=bool(no_block), value=False)


async def restart(
    host: Host, name: str, *, no_block: bool | None = None, unmask: bool = False, unmask_runtime: bool = False
) -> bool:
    """Stop a service if it runs, start it, and return ``True``.

    CLI Example:

        outstation run 'cam-*' service.restart sshd
    """
    return await _act(host, name, "restart", no_block=bool(no_block), unmask=unmask, unmask_runtime=unmask_runtime)


async def reload(
    host: Host, name: str, *, no_block: bool = False, unmask: bool = False, unmask_runtime: bool = False
) -> bool:
    """Have a service read its settings again without an interruption, and return ``True``.

    CLI Example:

        outstation run 'cam-*' service.reload nginx
    """
    return await _act(host, name, "reload", no_block=no_block, unmask=unmask, unmask_runtime=unmask_runtime)


async def force_reload(
    host: Host, name: str, *, no_block: bool = True, unmask: bool = False, unmask_runtime: bool = False
) -> bool:
    """Have a service read its settings again, with a restart where it cannot do so while it runs.

    CLI Example:

        outstation run 'cam-*' service.force_reload nginx
    """
    return await _act(host, name, "force-reload", no_block=no_block, unmask=unmask, unmask_runtime=unmask_runtime)


async def enable(
    host: Host,
    name: str,
    *,
    no_block: bool = False,  # noqa: ARG001 - Salt's name; enabling is over when it returns
    unmask: bool = False,
    unmask_runtime: bool = False,
    root: str | None = None,
) -> bool:
    """Have a service start with the device, and return ``True``. ``root`` is an image of a system with systemd.

    CLI Example:

        outstation run 'cam-*' service.enable sshd
    """
    init = await init_system(host, root)
    await _unmask(init, name, unmask=unmask, unmask_runtime=unmask_runtime)
    return _done(await init.set_starts(await _known(init, name), starts=True), None)


async def disable(
    host: Host,
    name: str,
    *,
    no_block: bool = False,  # noqa: ARG001 - Salt's name; disabling is over when it returns
    root: str | None = None,
) -> bool:
    """Do not start a service with the device any more. Return ``True``, or fail with ``False``.

    CLI Example:

        outstation run 'cam-*' service.disable sshd
    """
    init = await init_system(host, root)
    return _done(await init.set_starts(await _known(init, name), starts=False), value=False)


async def enabled(host: Host, name: str, root: str | None = None) -> bool:
    """Return whether a service starts with the device.

    CLI Example:

        outstation run '*' service.enabled sshd
    """
    return await (await init_system(host, root)).starts(_name(name))


async def disabled(host: Host, name: str, root: str | None = None) -> bool:
    """Return whether a service does not start with the device.

    CLI Example:

        outstation run '*' service.disabled sshd
    """
    return not await enabled(host, name, root)


async def available(host: Host, name: str) -> bool:
    """Return whether there is a service of this name.

    CLI Example:

        outstation run '*' service.available sshd
    """
    return await (await init_system(host)).available(_name(name))


async def missing(host: Host, name: str) -> bool:
    """Return whether there is no service of this name.

    CLI Example:

        outstation run '*' service.missing sshd
    """
    return not await available(host, name)


async def get_all(host: Host, root: str | None = None) -> list[str]:
    """Return the names of all services.

    CLI Example:

        outstation run '*' service.get_all
    """
    return await (await init_system(host, root)).names()


async def get_enabled(host: Host, root: str | None = None) -> list[str]:
    """Return the services that start with the device.

    CLI Example:

        outstation run '*' service.get_enabled
    """
    return sorted(name for name, starts in (await (await init_system(host, root)).states()).items() if starts)


async def get_disabled(host: Host, root: str | None = None) -> list[str]:
    """Return the services that could start with the device and do not.

    CLI Example:

        outstation run '*' service.get_disabled
    """
    return sorted(name for name, starts in (await (await init_system(host, root)).states()).items() if not starts)


async def get_running(host: Host) -> list[str]:
    """Return the services that run.

    CLI Example:

        outstation run '*' service.get_running
    """
    init = await init_system(host)
    if isinstance(init, Systemd):
        listed = await init.ask("--full", "--no-legend", "--plain", "--state=active", "list-units", "--type=service")
        return sorted(
            system_text.words(line)[0].removesuffix(".service")
            for line in system_text.lines(listed.out)
            if system_text.words(line)
        )
    return [name for name in await init.names() if await init.running(name)]


async def get_static(host: Host, root: str | None = None) -> list[str]:
    """Return the units of systemd that only others can start.

    CLI Example:

        outstation run '*' service.get_static
    """
    states = await (await _systemd(host, root)).states_in_words()
    return sorted(name for name, state in states.items() if state == "static")


async def show(host: Host, name: str, root: str | None = None) -> dict[str, Any]:
    """Return all that systemd knows of a unit.

    CLI Example:

        outstation run '*' service.show sshd
    """
    return await (await _systemd(host, root)).show(_name(name))


async def masked(host: Host, name: str, *, runtime: bool = False, root: str | None = None) -> bool:
    """Return whether nothing can start a unit of systemd. ``runtime`` asks for a mask until the next start only.

    CLI Example:

        outstation run '*' service.masked sshd
    """
    said = await (await _systemd(host, root)).ask("is-enabled", "--", _name(name))
    return said.out.strip() == ("masked-runtime" if runtime else "masked")


async def mask(host: Host, name: str, *, runtime: bool = False, root: str | None = None) -> bool:
    """Let nothing start a unit of systemd, and return ``True``.

    CLI Example:

        outstation run '*' service.mask sshd
    """
    return await _masking(await _systemd(host, root), "mask", name, runtime=runtime)


async def unmask(host: Host, name: str, *, runtime: bool = False, root: str | None = None) -> bool:
    """Let a masked unit of systemd be started again, and return ``True``.

    CLI Example:

        outstation run '*' service.unmask sshd
    """
    return await _masking(await _systemd(host, root), "unmask", name, runtime=runtime)


async def systemctl_reload(host: Host) -> bool:
    """Have systemd read its unit files again, and return ``True``.

    CLI Example:

        outstation run '*' service.systemctl_reload
    """
    await do(host, "systemctl", "daemon-reload")
    return True


async def _act(
    host: Host,
    name: str,
    verb: Verb,
    *,
    no_block: bool,
    unmask: bool = False,
    unmask_runtime: bool = False,
    value: bool | None = None,
) -> bool:
    init = await init_system(host)
    await _unmask(init, name, unmask=unmask, unmask_runtime=unmask_runtime)
    known = await _known(init, name)
    if isinstance(init, Systemd):
        if verb in STARTING and is_instance(name) and not await init.begun(name):
            raise FunctionFailed(
                f"{name!r} has never run and does not start with the device: service.start begins it, which takes the"
                " class shell for an instance of a template",
                value=value,
            )
        return _done(await init.act(known, verb, wait=not no_block), value)
    # Salt raises what systemd says, and returns False of a script.
    return _done(await init.act(known, verb), value=False)


async def _known(init: InitSystem, name: str) -> str:
    """The same name, if it is that of a service. Raises ``FunctionFailed``."""
    if not isinstance(init, Systemd) and not await init.available(_name(name)):
        raise FunctionFailed(f"there is no service {name!r} here; service.get_all names them", value=False)
    return _name(name)


def _name(name: str) -> str:
    """The same name. Raises ``FunctionFailed`` for a path, an option or a pattern, which a command would follow."""
    if not is_service_name(name):
        raise FunctionFailed(
            f"there is no service {name[:255]!r}: a service is named by letters, digits and '_.:@+-', never by a path,"
            " an option or a pattern; service.get_all names them",
            value=False,
        )
    return name


async def _unmask(init: InitSystem, name: str, *, unmask: bool, unmask_runtime: bool) -> None:
    if isinstance(init, Systemd):
        for wanted, runtime in ((unmask, False), (unmask_runtime, True)):
            if wanted:
                await _masking(init, "unmask", name, runtime=runtime)


async def _masking(systemd: Systemd, verb: str, name: str, *, runtime: bool) -> bool:
    return _done(await systemd.ask(verb, *(["--runtime"] if runtime else []), "--", _name(name)), None)


async def _systemd(host: Host, root: str | None) -> Systemd:
    init = await init_system(host, root)
    if not isinstance(init, Systemd):
        raise FunctionFailed("only systemd can tell that, and this device starts its services in another way")
    return init


def _done(said: Said, value: bool | None) -> bool:
    said.must(failing=value)
    return True
