"""A device on paper that records what a function does to it: what it writes, runs, signals and connects to.

Commands are not run. Each is told apart into effects (``function_place``), by what the real program would do with its
words. A command that is not known here is an effect outside of every place.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from device_agent.commands import _PLAIN_ENGLISH, _WIDE_PATH
from device_agent.host import HOST_READ_BYTES, SHELL, Completed, Reader, Stat, Writer
from tests.peers.empty_host import EmptyHost

Words = list[str]

CANARY: Final = "canary-7f3a91"
"""What is in every file that only root may read."""

SECRET: Final = "evil"
"""What the names of these files have in them, and of everything else that no call may touch."""

PASSWD: Final = b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"
GROUP: Final = b"root:x:0:\nnogroup:x:65534:\n"
OPEN_FILES: Final[Mapping[str, bytes]] = {
    "/etc/hostname": b"cam-7\n",
    "/etc/hosts": b"127.0.0.1 localhost\n127.0.1.1 cam-7\n",
    "/etc/passwd": PASSWD,
    "/etc/group": GROUP,
    "/etc/shadow": b"root:*:19000:0:99999:7:::\n",
    "/proc/self/mounts": b"/dev/sda1 / ext4 rw 0 0\n",
}
CONTENT: Final = frozenset(
    {"cat", "cmp", "dd", "grep", "md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum"}
)
"""Programs that show what is in a file, or its hash."""

READERS: Final = CONTENT | {
    *("apt-cache", "blkid", "date", "df", "dpkg-query", "find", "getent", "hwclock", "id", "ip", "ls", "lsblk"),
    *("readlink", "stat", "sysctl", "test", "uname", "xargs"),
}
"""Programs that change nothing, with any words that our functions give them."""

VALUED: Final = frozenset({"-e", "-t", "-T", "-p", "-W", "-c", "-u"})
"""Options whose next word is their value."""

SCRIPTS: Final[tuple[tuple[str, str], ...]] = (
    ('kill "-$1" "$2"', "signal"),
    ("hostnamectl set-hostname", "name"),
    ('ln -s "$1" "$2.outstation"', "write:/etc/localtime"),
    ('then dig "$1"', "connection"),
    ("exec reboot", "power"),
    ('(sleep 1; exec "$@")', "power"),
    ("update-rc.d", "unit"),
    ("rc$level.d", "unit"),
)
UNIT: Final = re.compile(r"known(\.service)?|evil@[a-z-]+")
BEGIN: Final = frozenset({"start", "enable"})
UNIT_READS: Final = frozenset({"is-active", "is-enabled", "show", "status", "list-units", "list-unit-files"})


class RecordingHost(EmptyHost):
    """A device with this init system and this package manager; ``effects`` is what was done to it."""

    def __init__(self, init: str = "systemd", packages: str = "apt") -> None:
        super().__init__({"id": "cam-7", "os_family": "Debian", "roles": ["x"]})
        self.effects: list[str] = []
        self.hostile: object = None
        self.touched = False
        """Whether anything was asked of it."""

        self._init = init
        self._packages = packages

    async def run(
        self,
        argv: Sequence[str] | str,
        *,
        shell: bool = False,
        stdin: bytes | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        output_limit: int = 65536,
    ) -> Completed:
        self.touched = True
        if isinstance(argv, str):
            argv = shlex.split(argv)
        script, words = "", list(argv)
        if words[:2] == [SHELL, "-c"]:
            script, words = words[2], words[4:]
            script = script.removeprefix(_WIDE_PATH).removeprefix(_PLAIN_ENGLISH)
            if script == 'exec "$@"':
                script = ""
        self._option(script, words)
        effect = self._of_script(script, words) if script else self._of_command(words)
        if effect:
            self.effects.append(effect)
        return Completed(0, self._answer(script, words), b"")

    async def read(self, path: str, *, offset: int = 0, limit: int = HOST_READ_BYTES) -> bytes:
        self.touched = True
        if SECRET in path:
            return f"{CANARY}\nssh-ed25519 {KEY} {CANARY}\n".encode()[offset : offset + limit]
        if path in OPEN_FILES:
            return OPEN_FILES[path][offset : offset + limit]
        return await super().read(path)

    async def write(
        self, path: str, data: bytes, *, mode: int | None = None, owner: tuple[int, int] | None = None
    ) -> None:
        self.touched = True
        self.effects.append(f"write:{path}")

    async def append(self, path: str, data: bytes, *, at: int) -> None:
        self.touched = True
        self.effects.append(f"write:{path}")

    async def replace(self, path: str, target: str) -> None:
        self.touched = True
        self.effects.append(f"write:{target}")

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        self.touched = True
        self.effects.append(f"write:{path}")

    async def stat(self, path: str, *, follow: bool = True) -> Stat | None:
        self.touched = True
        folder = path in FOLDERS or path.endswith("/")
        if path.startswith("/usr/share/zoneinfo/") and path != "/usr/share/zoneinfo/Etc/UTC" and SECRET not in path:
            return None
        return Stat("directory" if folder else "file", 0o755, 0, 0, "root", "root", 8, 0.0, 0.0, 0.0, 1)

    async def list(self, path: str) -> list[str]:
        self.touched = True
        return []

    async def connect(self, port: int, *, address: str = "127.0.0.1") -> tuple[Reader, Writer]:
        self.touched = True
        self.effects.append("connection")
        return await super().connect(port, address=address)

    def _option(self, script: str, words: Words) -> None:
        """A hostile value that a program would take for an option of its own."""
        for place, word in enumerate(words):
            if script or word != self.hostile or not word.startswith("-"):
                continue
            if "--" not in words[:place] and (place == 0 or words[place - 1] not in VALUED):
                self.effects.append(f"outside: an option of {words[0]}: {word}")

    def _of_script(self, script: str, words: Words) -> str:
        if "script=$1" in script or '"$1" && exec "$1" running' in script:
            inside = re.fullmatch(r"/etc/init\.d/[^/]+", words[0]) and words[0] != "/etc/init.d/.."
            if not inside:
                return f"outside: runs {words[0]}"
            return "" if "name=$2" in script or len(words) == 1 else "unit"
        if SECRET in script.replace("\\", "") and not script.startswith(("for f in ", "printf %s ~")):
            return f"outside: a script with {self.hostile!r} in it"
        return next((effect for text, effect in SCRIPTS if text in script), "")

    def _of_command(self, words: Words) -> str:
        words = words[next((at for at, word in enumerate(words) if word != "env" and "=" not in word), 0) :]
        program, *rest = words
        if program in SYSTEMS:
            return _of_unit(program, rest)
        if program in MANAGERS:
            return _of_packages(program, rest)
        if program in {"date", "hwclock"}:
            return "clock" if {"-s", "-w"} & set(rest) else ""
        if program in {"mkdir", "rm"}:
            return f"write:{rest[-1]}"
        if program in {"ping", "traceroute", "ssh-keyscan"}:
            return "connection"
        if program == "shutdown":
            return "power"
        if program.startswith("/etc/init.d/"):
            return "unit" if re.fullmatch(r"/etc/init\.d/known", program) else f"outside: runs {program}"
        if program == "chmod":
            return "unit" if rest[-1] == "/etc/init.d/known" else f"write:{rest[-1]}"
        if program == "chkconfig":
            return "unit" if rest[0] == "known" else f"outside: chkconfig {rest[0]}"
        return "" if program in READERS else f"outside: an unknown program: {program}"

    def _answer(self, script: str, words: Words) -> bytes:
        """What a device would say, as far as functions need it to go on."""
        text = script or " ".join(words)
        if "/run/systemd/system ] && has systemctl" in script:
            return self._init.encode()
        if "command -v" in script and "for name; do" in script:
            return "\n".join(word for word in words if self._has(word)).encode()
        if self._shows(words):
            return f"{CANARY}  {CANARY}\n".encode()
        for part, said in ANSWERS:
            if part in text:
                return said
        return b""

    def _shows(self, words: Words) -> bool:
        """Whether a program shows what is in a secret file, or in one outside of /proc/sys."""
        if words[:1] == ["sysctl"]:
            exchanged = words[-1].translate(str.maketrans("./", "/."))
            return any(".." in path.split("/") for path in (words[-1], exchanged))
        return bool(words) and words[0] in CONTENT and any(SECRET in word for word in words)

    def _has(self, program: str) -> bool:
        managers = {"apt": "apt-get", "opkg": "opkg", "apk": "apk"}
        if program in managers.values():
            return program == managers[self._packages]
        return True


KEY: Final = "AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
SYSTEMS: Final = frozenset({"systemctl", "rc-service", "rc-update"})
MANAGERS: Final = frozenset({"apt-get", "apt-mark", "opkg", "apk"})
FOLDERS: Final = frozenset({"/usr/share/zoneinfo", "/", "/etc/init.d", "/run/systemd/system"})
ANSWERS: Final[tuple[tuple[str, bytes], ...]] = (
    ("showhold", b"ed\n"),
    ("uname -n", b"cam-7\n"),
    ("date +%s %z", b"1764200000 +0000\n"),
    ("date", b"1764200000\n"),
    ("list-unit-files", b"known.service enabled enabled\nevil@.service disabled enabled\n"),
    ("ActiveState", b"active\n"),
    ("rc-service --list", b"known\n"),
    ('cd "$1" 2>/dev/null || exit 0', b"+known\n"),
    ("dpkg-query", b"install ok installed tzdata 2024a-0 all\n"),
    ("apk info -v", b"tzdata-2024a-r0\n"),
    ("list-installed", b"tzdata - 2024a\n"),
    ('getent "$1"', PASSWD),
)


def _of_unit(program: str, rest: Words) -> str:
    """What systemctl, rc-service and rc-update do; a path in the place of a name is outside."""
    words = [word for word in rest if not word.startswith("-") or word in {"--list", "--exists"}]
    if program == "rc-service":
        name = words[1] if words[0].startswith("--exists") and len(words) > 1 else words[0]
        if "/" in name or (name.startswith("-") and name not in {"--list", "--exists"}):
            return f"outside: rc-service {name}"
        return "" if words[0].startswith("--") or words[1:] == ["status"] else _known(words[0], words[1])
    if program == "rc-update":
        return "" if "show" in words else _known(words[1], "enable" if words[0] == "add" else "disable")
    verb, *names = words
    if verb in UNIT_READS:
        return next((f"outside: reads {name}" for name in names if "/" in name), "")
    if verb == "daemon-reload":
        return "unit"
    return next((found for name in names if (found := _known(name, verb)) != "unit"), "unit")


def _known(name: str, verb: str) -> str:
    if not UNIT.fullmatch(name) or (verb in BEGIN and "@" in name):
        return f"outside: {verb} {name}"
    return "unit"


def _of_packages(program: str, rest: Words) -> str:
    words = [word for word in rest if word in {"update", "hold", "unhold", "flag", "add", "install"}]
    verb = words[0] if words else ""
    if verb == "update":
        return "lists"
    files = [word for word in rest if "/" in word]
    if verb in {"hold", "unhold", "flag", "add"} and not files:
        return "holds"
    return f"outside: {program} {' '.join(rest)}" if files or verb else ""
