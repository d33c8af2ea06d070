"""What ssh.* must do, on a machine to throw away."""

from __future__ import annotations

from device_agent.openssh_keys import fingerprint
from tests.peers.function_story import Sh, Step, Story

BOTH = ("debian", "busybox")
KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIIXo3cTTWSnuYxhWGYOYAiYHzEcTwgh8pQMVl7QqQYfE"
OTHER = "AAAAC3NzaC1lZDI1NTE5AAAAIFv6NBgUwlNMQDAoBQ9lnPpJJPjBXMzCvZTJhPNjdjzd"
PRINT = "df:ea:43:78:f5:63:0d:9b:88:64:a8:7d:4a:a9:6e:e6"


STORIES = (
    Story(
        "a key is let in, changed and shut out",
        (*BOTH, "busybox-ssh"),
        (
            Sh("echo 'pat:x:1700:100::/home/pat:/bin/sh' >>/etc/passwd; mkdir -p /home/pat; chown 1700:100 /home/pat"),
            Step("ssh.auth_keys", ("pat",), value={}),
            Step("ssh.check_key", ("pat", KEY, "ed25519", "a@b", []), value="add"),
            Step("ssh.set_auth_key", ("pat", KEY, "ed25519", "a@b"), value="new"),
            Sh("cd /home/pat/.ssh && stat -c '%a %u:%g' . authorized_keys", "700 1700:100\n600 1700:100"),
            Sh("cat /home/pat/.ssh/authorized_keys", f"ssh-ed25519 {KEY} a@b"),
            Step("ssh.set_auth_key", ("pat", KEY, "ed25519", "a@b"), value="no change"),
            Step("ssh.check_key", ("pat", KEY, "ed25519", "a@b", []), value="exists"),
            Step("ssh.check_key", ("pat", KEY, "ed25519", "other", []), value="update"),
            Sh(
                "cd /home/pat/.ssh && printf '# mine\\n\\nfrom=\"10.0.0.1,x y\",no-pty ssh-ed25519 %s o\\n' "
                f"{OTHER} >>authorized_keys"
            ),
            Step("ssh.set_auth_key", ("pat", KEY, "ed25519", "c d", ["no-pty"]), value="replace"),
            Step(
                "ssh.auth_keys",
                ("pat",),
                {"fingerprint_hash_type": "md5"},
                salt="differs",
                value=lambda keys: (
                    keys[KEY]["comment"] == "c d"
                    and keys[KEY]["options"] == ["no-pty"]
                    and keys[KEY]["enc"] == "ssh-ed25519"
                    and len(keys[KEY]["fingerprint"]) == len(PRINT)
                    and keys[OTHER]["options"] == ['from="10.0.0.1,x y"', "no-pty"]
                ),
            ),
            Step("ssh.rm_auth_key", ("pat", KEY), value="Key removed"),
            Step("ssh.rm_auth_key", ("pat", KEY), value="Key not present"),
            Sh("head -n 1 /home/pat/.ssh/authorized_keys", "# mine"),
            Sh(f"echo 'ssh-ed25519 {KEY} from file' >/tmp/keys"),
            Step("ssh.check_key_file", ("pat", "/tmp/keys"), value={KEY: "add"}),
            Step("ssh.set_auth_key_from_file", ("pat", "/tmp/keys"), value="new"),
            Step("ssh.set_auth_key_from_file", ("pat", "/tmp/keys"), value="no change"),
            Step("ssh.set_auth_key", ("pat", "two words"), value="invalid", outcome="failed"),
            Step("ssh.set_auth_key", ("pat", "%%%"), value="Invalid public key", outcome="failed"),
            Step("ssh.set_auth_key", ("pat", KEY, "square"), outcome="failed", why="no type of key"),
            Step("ssh.set_auth_key", ("nobody at all", KEY, "ed25519"), value="fail", outcome="failed"),
            Sh("rm -r /home/pat/.ssh; mkdir /tmp/trap; ln -s /tmp/trap /home/pat/.ssh; chown -h 1700 /home/pat/.ssh"),
            Step("ssh.set_auth_key", ("pat", KEY, "ed25519"), outcome="failed", why="not followed", salt="no"),
            Sh("ls /tmp/trap", "", salt=False),
        ),
    ),
    Story(
        "a host is known, under its name or a hidden one, and forgotten",
        (*BOTH, "busybox-ssh"),
        (
            Sh("mkdir -p /etc/ssh; rm -f /etc/ssh/ssh_known_hosts"),
            Step("ssh.check_known_host", (None, "git.example.com"), value="add"),
            Step(
                "ssh.set_known_host",
                (None, "git.example.com"),
                {"key": KEY, "enc": "ssh-ed25519", "hash_known_hosts": False},
                value=lambda found: found["status"] == "updated" and found["old"] is None,
            ),
            Sh("cat /etc/ssh/ssh_known_hosts", f"git.example.com ssh-ed25519 {KEY}"),
            Step("ssh.check_known_host", (None, "git.example.com", KEY), value="exists"),
            Step("ssh.check_known_host", (None, "git.example.com", OTHER), value="update"),
            Step(
                "ssh.set_known_host",
                (None, "git.example.com"),
                {"key": KEY, "enc": "ssh-ed25519"},
                value={"status": "exists", "keys": [KEY]},
            ),
            Step("ssh.hash_known_hosts", value=lambda found: found["status"] == "updated", salt="differs"),
            Sh("grep -c '^|1|' /etc/ssh/ssh_known_hosts", "1"),
            Step("ssh.check_known_host", (None, "git.example.com", KEY), value="exists"),
            Step(
                "ssh.set_known_host",
                (None, "git.example.com"),
                {"key": OTHER, "enc": "ed25519", "port": 2222},
                salt="no",
                value=lambda found: found["status"] == "updated",
            ),
            Step(
                "ssh.get_known_host_entries",
                (None, "git.example.com"),
                {"port": 2222},
                salt="no",
                value=lambda found: [entry["key"] for entry in found] == [OTHER],
            ),
            Step(
                "ssh.rm_known_host",
                (None, "git.example.com"),
                value=lambda found: found["status"] == "removed",
                salt="differs",
            ),
            Step("ssh.get_known_host_entries", (None, "git.example.com"), value=None),
            Sh("wc -l </etc/ssh/ssh_known_hosts | tr -d ' '", "1", salt=False),
        ),
    ),
    Story(
        "a host that shows several keys is known by the one that was compared alone",
        ("debian",),
        (
            Sh("mkdir -p /etc/ssh; rm -f /etc/ssh/ssh_known_hosts"),
            Sh(
                f"printf '#!/bin/sh\\necho git ssh-ed25519 {KEY}\\necho git ecdsa-sha2-nistp256 {OTHER}\\n' "
                ">/tmp/scan; chmod 755 /tmp/scan; mv /usr/bin/ssh-keyscan /usr/bin/ssh-keyscan.there; "
                "mv /tmp/scan /usr/bin/ssh-keyscan"
            ),
            Step(
                "ssh.recv_known_host_entries", ("git",), value=lambda found: [e["key"] for e in found] == [KEY, OTHER]
            ),
            Step(
                "ssh.set_known_host",
                (None, "git"),
                {"fingerprint": fingerprint(KEY), "hash_known_hosts": False},
                value=lambda found: found["status"] == "updated",
                salt="no",
            ),
            Sh("cat /etc/ssh/ssh_known_hosts", f"git ssh-ed25519 {KEY}", salt=False),
            Step(
                "ssh.set_known_host",
                (None, "git"),
                {"fingerprint": "00:11"},
                outcome="failed",
                why="none of their fingerprints match",
                salt="no",
            ),
            Sh("mv /usr/bin/ssh-keyscan.there /usr/bin/ssh-keyscan"),
        ),
    ),
    Story(
        "keys are shown",
        (*BOTH, "busybox-ssh"),
        (
            Sh("mkdir -p /etc/ssh ~root/.ssh; rm -f /etc/ssh/ssh_host_* ~root/.ssh/id_*"),
            Sh(f"cd /etc/ssh; echo private >ssh_host_ed25519_key; echo 'ssh-ed25519 {KEY}' >ssh_host_ed25519_key.pub"),
            Step("ssh.host_keys", value={"ed25519": "private", "ed25519.pub": f"ssh-ed25519 {KEY}"}),
            Step("ssh.host_keys", (), {"private": False}, value={"ed25519.pub": f"ssh-ed25519 {KEY}"}),
            Sh("cd ~root/.ssh; echo public >id_rsa.pub; echo secret >id_rsa"),
            Step("ssh.user_keys", ("root",), value={"root": {"id_rsa.pub": "public", "id_rsa": "secret"}}),
            Step("ssh.user_keys", ("root",), {"prvfile": False}, value={"root": {"id_rsa.pub": "public"}}),
        ),
    ),
)
