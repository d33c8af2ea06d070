"""The settings, pillar and keys of a site server that ran Salt: a syndic, a minion of its own, and proxy minions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SECRETS = ("hunter2", "s3cr3t-of-cam-2", "rest-pa55", "roster-pa55", "smtp-pa55")
"""Passwords of the box: where they may stand is a promise."""

FINGER = ":".join(f"{number:02x}" for number in range(32))

MASTER = """\
# The syndic of the site.
syndic_master:
  - 203.0.113.7
  - 198.51.100.7
syndic_finger: '{finger}'
order_masters: False
worker_threads: 5
interface: 192.0.2.10
file_roots:
  base:
    - {root}/srv/salt
    - salt://elsewhere
pillar_roots:
  base:
    - {root}/srv/pillar
nodegroups:
  doors: 'L@cam-1,cam-2'
  front: 'G@kind:camera and cam-*'
  both:
    - cam-1
    - cam-2
keep_jobs: 48
timezone: Europe/Lisbon
external_auth:
  pam:
    kim: ['.*']
reactor:
  - 'site/door/*':
    - {root}/srv/reactor/door.sls
presence_events: true
fileserver_backend: [roots, git]
gitfs_remotes:
  - https://git.example/salt.git
"""
MASTER_ENGINES = """\
engines:
  - door-log:
      engine_module: logtail
      path: /var/log/door/*.log
      pattern: 'badge (?P<badge>[0-9]+) refused'
  - slack:
      token: {secret}
  - badge_printer
"""
MINION = """\
id: lisbon
master: 127.0.0.1
log_level: warning
log_level_logfile: debug
master_type: failover
master_alive_interval: 30
master_failback: true
random_reauth_delay: 60
random_master: true
publish_port: 4505
grains:
  floor: 3
beacons:
  diskusage:
    - /: 80%
    - interval: 60
  salt_proxy:
    - proxies:
        cam-1: {}
schedule:
  own-disk:
    function: disk.percent
    hours: 1
  highstate:
    function: state.apply
    minutes: 60
    returner: mysql
mine_functions:
  network.ip_addrs: []
smtp.from: salt@example.net
smtp.to: ops@example.net
smtp.host: mail.example.net
smtp.password: smtp-pa55
acceptance_wait_tme: 10
"""
PROXY = """\
master: localhost
mine_functions:
  status.uptime: []
multiprocessing: false
"""
PILLAR = {
    "top.sls": """\
base:
  'cam-1':
    - cams.cam-1
  'L@cam-2,cam-3':
    - match: compound
    - cams.shared
  'control':
    - control
  'switch-1':
    - switch
  'door-api':
    - door
  'lab':
    - lab
  'many-*':
    - many
""",
    "cams/cam-1.sls": "proxy:\n  proxytype: ssh_sample\n  host: 192.0.2.21\n  username: root\n  password: hunter2\n",
    "cams/shared.sls": """\
{% set hosts = {'cam-2': '192.0.2.22', 'cam-3': '192.0.2.23'} %}
# one file for both
proxy:
  proxytype: ssh
  host: {{ hosts[opts.id] }}
  port: 2222
  username: admin
  passwd: s3cr3t-of-{{ opts.id }}
  banner: no
""",
    "control.sls": "proxy:\n  proxytype: deltaproxy\n  ids:\n    - cam-1\n    - switch-1\n    - lost-1\n",
    "switch.sls": "proxy:\n  proxytype: napalm\n  driver: ios\n  host: 192.0.2.31\n  passwd: rest-pa55\n",
    "door.sls": "proxy:\n  proxytype: rest_sample\n  url: http://192.0.2.41:8000\n  password: rest-pa55\n",
    "lab.sls": "proxy:\n  proxytype: dummy\n",
    "many.sls": "proxy:\n  proxytype: ssh_sample\n  host: {{ opts.id }}.example\n  password: hunter2\n",
}
ROSTER = """\
rec-1:
  host: 192.0.2.51
  user: root
  passwd: roster-pa55
rec-2:
  host: 192.0.2.52
  priv: /etc/salt/pki/master/ssh/salt-ssh.rsa
"""


@dataclass(frozen=True)
class SaltBox:
    """Where it all lies."""

    root: Path

    @property
    def salt(self) -> Path:
        """What is /etc/salt on a real one."""
        return self.root / "etc" / "salt"

    def write(self, path: str, text: str) -> Path:
        """A file below the root."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file


def salt_box(root: Path) -> SaltBox:
    """Lay out the box."""
    box = SaltBox(root)
    box.write("etc/salt/master", MASTER.replace("{root}", str(root)).replace("{finger}", FINGER))
    box.write("etc/salt/master.d/engines.conf", MASTER_ENGINES.replace("{secret}", SECRETS[0]))
    box.write("etc/salt/minion", MINION)
    box.write("etc/salt/minion.d/level.conf", "# site rule\nlog_level: trace\n")
    box.write("etc/salt/proxy", PROXY)
    box.write("etc/salt/roster", ROSTER)
    for name in ("lisbon", "nvr-1", "cam-1", "many-7"):
        box.write(f"etc/salt/pki/master/minions/{name}", "key\n")
    for path, text in PILLAR.items():
        box.write(f"srv/pillar/{path}", text)
    box.write("srv/salt/fw.txt", "x\n")
    box.write("srv/reactor/door.sls", "picture:\n  local.test.ping:\n    - tgt: 'cam-*'\n")
    return box
