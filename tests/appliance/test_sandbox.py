"""What a gateway has others do works in its sandbox: git, SSH devices, busy engines, queued runners, returners."""

from __future__ import annotations

import json
from typing import Any

from tests.peers.agent_machines import make_gateway
from tests.peers.appliance import GATEWAY, SECONDS
from tests.peers.machine_roots import SERVER, Recipe
from tests.peers.machines import Machine, TestBed
from tests.peers.waiting import until

WITH_DEVICES = Recipe((*SERVER.packages, "git", "openssh-server"))
SETTINGS = """\
file_roots:
  base:
    - {git: /srv/fleet.git, ref: main}
engines_dirs: [/srv/engines]
engines: [badge]
rawfile_json.filename: /var/log/outstation/returns.json
returner.sqlite3.database: /var/lib/outstation/gateway/returns.sqlite
"""
REPOSITORY = """set -e
git init --quiet --bare --initial-branch=main /srv/fleet.git
git clone --quiet /srv/fleet.git /srv/work 2>/dev/null
cd /srv/work
echo 'from a commit' >motd
git add motd
git -c user.name=a -c user.email=a@example.org commit --quiet --message first
git push --quiet origin HEAD:main
"""
# What a sandbox may forbid a program in Python: a child, a shared lock, a call back from C, a file of its own.
ENGINE = """\
import ctypes, multiprocessing, socket, sqlite3, subprocess, tempfile, threading
import salt.utils.event


def of_c():
    libc = ctypes.CDLL(None)
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
    numbers = (ctypes.c_int * 3)(3, 1, 2)
    libc.qsort(numbers, 3, ctypes.sizeof(ctypes.c_int), kind(lambda one, other: one[0] - other[0]))
    return list(numbers)


def doubled(number, queue):
    queue.put(number * 2)


def of_processes():
    queue = multiprocessing.Queue()
    child = multiprocessing.Process(target=doubled, args=(21, queue))
    child.start()
    found = queue.get(timeout=60)
    child.join()
    return found


def of_threads():
    found = []
    thread = threading.Thread(target=lambda: found.append(socket.getaddrinfo("127.0.0.1", 80)[0][4][1]))
    thread.start()
    thread.join()
    return found


def of_files():
    with tempfile.NamedTemporaryFile() as file, sqlite3.connect(file.name) as rows:
        rows.execute("CREATE TABLE a (b)")
    return "written"


def start():
    with salt.utils.event.get_master_event(__opts__, __opts__["sock_dir"], listen=True) as bus:
        for event in bus.iter_events(tag="site/badge/shown", full=True):
            told = {"said": subprocess.run(["sh", "-c", "echo $((6 * 7))"], capture_output=True, text=True).stdout}
            for name, look in list(globals().items()):
                if name.startswith("of_"):
                    try:
                        told[name] = look()
                    # However a look ends, that is what is told: the sandbox ends some with SystemExit or worse.
                    except BaseException as error:
                        told[name] = repr(error)
            __runners__["queue.insert_runner"]("event.send", args=["site/badge/queued"])
            told["ping"] = __salt__["test.ping"]()
            bus.fire_event(told, "site/badge/printed")
"""
SSHD = """set -e
mkdir -p /run/sshd /srv/ssh
ssh-keygen -q -t ed25519 -N '' -f /srv/ssh/host
ssh-keygen -q -t ed25519 -N '' -f /srv/ssh/login
install -D -m 600 /srv/ssh/login.pub ~/.ssh/authorized_keys
systemctl disable --quiet --now ssh.service ssh.socket
systemd-run --quiet --unit=camera-sshd --property=RuntimeDirectory=sshd /usr/sbin/sshd -D -f /dev/null \\
    -o Port=2222 -o ListenAddress=127.0.0.1 -o HostKey=/srv/ssh/host -o StrictModes=no -o UsePAM=no
"""


async def rows_of(machine: Machine, *words: str) -> list[dict[str, Any]]:
    done = await machine.run("outstation", *words, check=False)
    return [json.loads(line) for line in done.stdout.splitlines()]


async def events(machine: Machine) -> dict[str, Any]:
    """The newest event of each tag."""
    found = await rows_of(machine, "events", "--history", "500", "--no-follow", "--json")
    return {each["tag"]: each["data"] for each in found}


async def an_ssh_device(gateway: Machine) -> None:
    await gateway.sh(SSHD)
    fingerprint = (await gateway.said("ssh-keygen", "-lf", "/srv/ssh/host.pub")).split()[1]
    add = ("devices", "add", "cam-7", "--ssh", "root@127.0.0.1:2222", "--key", "/srv/ssh/login")
    await gateway.run("outstation", *add, "--fingerprint", fingerprint)

    async def here() -> bool:
        return any(row["present"] for row in await rows_of(gateway, "devices", "list", "cam-7", "--json"))

    await until(here, SECONDS, "the SSH device is here")


async def ran(gateway: Machine, *words: str) -> Any:
    """What a job on the device returned."""
    found = await rows_of(gateway, "run", "--json", *words)
    [outcome] = [row for row in found if row.get("type") == "outcome"]
    assert outcome["outcome"] == "ok", (words, outcome)
    return outcome.get("value")


async def test_what_a_gateway_has_others_do_works_in_its_sandbox(bed: TestBed) -> None:
    gateway = await bed.machine("gateway", WITH_DEVICES)
    await gateway.sh(REPOSITORY)
    await gateway.write("/srv/engines/badge.py", ENGINE)
    await gateway.write("/etc/outstation/gateway.d/10-test.yaml", SETTINGS)
    await make_gateway(gateway)
    await an_ssh_device(gateway)

    # A file of a commit, read by git, to a device over SSH, and its return to both returners.
    target = "/srv/motd"
    assert await ran(gateway, "--return", "rawfile_json,sqlite3", "cam-7", "cp.get_file", "salt://motd", target)
    assert await gateway.read(target) == b"from a commit\n"

    async def returned() -> bool:
        listed = await gateway.run("cat", "/var/log/outstation/returns.json", check=False)
        book = await gateway.run("test", "-s", "/var/lib/outstation/gateway/returns.sqlite", check=False)
        return b"cp.get_file" in listed.stdout and book.returncode == 0

    await until(returned, SECONDS, "the return in the file and in the database")

    async def printed() -> Any:
        await gateway.run("outstation", "fire", "site/badge/shown")
        return (await events(gateway)).get("site/badge/printed")

    told = await until(printed, SECONDS, "what the engine says")
    assert told is not None
    wanted = {"said": "42\n", "of_c": [1, 2, 3], "of_processes": 42, "of_threads": [80], "of_files": "written"}
    assert {name: told.get(name) for name in wanted} == wanted, told
    assert told["ping"] is True, told

    await gateway.run("outstation", "runner", "queue.process_runner", "quantity=all")
    assert "site/badge/queued" in await events(gateway)
    assert await gateway.property_of(GATEWAY, "NRestarts") == "0"
    log = await gateway.sh("journalctl -u outstation-gateway -o cat")
    assert "Operation not permitted" not in log
    assert "Read-only file system" not in log
