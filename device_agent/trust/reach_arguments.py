"""Which arguments make a call reach further than its function does: by being there, or by their value. Pure.

The class of a call is known before it runs, on the device, at the gateway and in the rules for operators, from its
arguments alone. A function refuses what its class does not cover and no argument below covers either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from device_agent.init_systems.names import begins_more, is_single_user, opens_more

Reach = Literal["looks", "reads", "changes", "shell"]

_PICTURE: Final = re.compile(
    r"(/[A-Za-z0-9_-]+)*/[A-Za-z0-9_.-]*(snap|image|picture|jpe?g|photo|still)[A-Za-z0-9_.-]*(\?[A-Za-z0-9_.,:=&-]*)?",
    re.IGNORECASE,
)
"""Paths of pictures on the web servers of cameras. Any other address may do something when it is asked for."""

_OF_TEST: Final = re.compile(r"test\.[a-z_]+")


class Further(NamedTuple):
    """An argument that makes a call reach further. ``place`` is where it stands among the positional ones, if it can.

    ``as_word``: its bare name, anywhere behind the first argument, is as good as the argument. ``values`` says which
    values of it do; without it, all but None. ``when`` describes these values in ``sys.doc``.
    """

    name: str
    place: int | None
    reach: Reach
    as_word: bool = False
    values: Callable[[Any], bool] | None = None
    when: str = ""

    def given(self, arg: Sequence[Any], kwarg: Mapping[str, Any]) -> bool:
        """Whether a call has it."""
        if self.as_word and self.name in arg[1:]:
            return True
        found = [kwarg.get(self.name)]
        if self.place is not None:
            found += arg[self.place : self.place + 1]
        return any(value is not None and (self.values is None or self.values(value)) for value in found)

    @property
    def words(self) -> str:
        """The argument, with the values that count when not all do."""
        return f"{self.name} {self.when}" if self.when else self.name


def _not_a_picture(value: Any) -> bool:
    return _PICTURE.fullmatch(str(value)) is None


def _a_file_of_the_device(value: Any) -> bool:
    return not str(value).startswith("salt://")


def _a_path(value: Any) -> bool:
    return "/" in str(value)


def _leads_upward(value: Any) -> bool:
    return ".." in str(value) or "//" in str(value)


def _with_hash(value: Any) -> bool:
    return "md5" in str(value)


def _beyond_test(value: Any) -> bool:
    return _OF_TEST.fullmatch(str(value)) is None or value == "test.cross_test"


_BEGINS: Final = Further("name", 0, "shell", values=begins_more, when="of a path, an instance, a console or a mount")
_OPENS: Final = Further("name", 0, "shell", values=opens_more, when="of a path, a console or a mount")
_PATH: Final = Further("name", 0, "shell", values=_a_path, when="of a path")
"""A device of release 0.1.0 without systemd runs the script at this path."""

_ROOT: Final = Further("root", None, "shell")
"""In the tree of another system it is anybody's files that say what is done."""

FURTHER: Final[Mapping[str, tuple[Further, ...]]] = {
    # A web server may do anything when it is asked for an address.
    "camera.snapshot": (
        Further("path", 0, "shell", values=_not_a_picture, when="of no picture"),
        Further("save_to", 5, "shell"),
    ),
    # Whoever has the hash of a short secret can find the secret.
    "cp.hash_file": (Further("path", 0, "reads", values=_a_file_of_the_device, when="on the device"),),
    "cp.push": (Further("remove_source", 3, "shell"),),
    # What only root or the device itself may read would be in an event, which others see.
    "event.send": (Further("with_env", 3, "shell"), Further("with_pillar", 5, "shell")),
    "file.find": (
        Further("exec", None, "shell"),
        Further("delete", None, "shell", as_word=True),
        Further("grep", None, "reads"),
        Further("print", None, "reads", values=_with_hash, when="with md5"),
    ),
    "file.stats": (Further("hash_type", 1, "reads"),),
    "mount.fstab": (Further("config", 0, "reads"),),
    "service.available": (_PATH,),
    "service.disable": (_OPENS, _ROOT),
    "service.disabled": (_PATH,),
    "service.enable": (_BEGINS, _ROOT),
    "service.enabled": (_PATH,),
    "service.force_reload": (_OPENS,),
    "service.mask": (_OPENS, _ROOT),
    "service.masked": (_PATH,),
    "service.missing": (_PATH,),
    "service.reload": (_OPENS,),
    "service.restart": (_OPENS,),
    "service.show": (_PATH,),
    "service.start": (_BEGINS,),
    "service.status": (_PATH,),
    "service.stop": (_OPENS,),
    "service.unmask": (_OPENS, _ROOT),
    "ssh.auth_keys": (Further("config", 1, "reads"),),
    "ssh.check_key": (Further("config", 5, "reads"),),
    "ssh.check_known_host": (Further("config", 4, "reads"),),
    "ssh.get_known_host_entries": (Further("config", 2, "reads"),),
    # A device of release 0.1.0 shows the file that such a name leads to.
    "sysctl.get": (Further("name", 0, "reads", values=_leads_upward, when="that leads out of /proc/sys"),),
    "sysctl.show": (Further("config_file", 0, "reads"),),
    "system.init": (Further("runlevel", 0, "shell", values=is_single_user, when="of a single user"),),
    # Who may call ``test.*`` may call no other module by it: that takes what a call as good as a shell takes.
    "test.cross_test": (Further("func", 0, "shell", values=_beyond_test, when="of another module"),),
}
