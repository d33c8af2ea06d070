"""device_agent/trust/argument_glob.py: a glob over an argument takes only values that mean what they spell."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.trust.argument_glob import compile_argument_glob, limiting_folder


def fits(glob: str, value: str) -> bool:
    return compile_argument_glob(glob)(value)


@pytest.mark.parametrize(
    ("glob", "value"),
    [
        ("/var/log/*", "/var/log/syslog"),
        ("/var/log/*", "/var/log/nginx/access.log"),
        ("/var/log/*", "/var/log/nginx/"),
        ("/var/log/*", "/var/log/..hidden"),
        ("/a/../b/*", "/a/../b/c"),
        ("./site/*", "./site/x"),
        ("*.conf", "/etc/a.conf"),
        ("*", "/var/log/../../etc/shadow"),
        ("**", "a//b"),
        ("", ""),
        ("/etc/../etc/motd", "/etc/../etc/motd"),
        ("getty@*", "getty@tty1"),
        ("df *", "df -h /srv"),
        ("curl *", "curl https://files.example.org/a"),
        ("salt://site/*", "salt://site/camera/base.sls"),
        ("salt://site/*[?]saltenv=dev", "salt://site/x?saltenv=dev"),
        ("https://files.example.org/*", "https://files.example.org/a/b.bin?x=1#top"),
        ("https://*.example.org/*", "https://a.b.example.org/x"),
        ("https://*", "https://anything.example.org:8443/x"),
        ("http*://10.0.0.1/*", "https://10.0.0.1/fw.bin"),
        ("https://ana@files.example.org/*", "https://ana@files.example.org/x"),
        ("https://files.example.org/%2e/*", "https://files.example.org/%2e/x"),
    ],
)
def test_a_value_that_means_what_it_spells_fits(glob: str, value: str) -> None:
    assert fits(glob, value)


@pytest.mark.parametrize(
    ("glob", "value"),
    [
        ("/var/log/*", "/var/log/../../etc/shadow"),
        ("/var/log/*", "/var/log/.."),
        ("/var/log/*", "/var/log/./x"),
        ("/var/log/*", "/var/log//etc/x"),
        ("/var/log/*", "/var/log/x/."),
        ("/var/log/*", "/var/log"),
        ("/var/*/x", "/var/../x"),
        ("/a/../b/*", "/a/../b/../../etc/shadow"),
        ("/a/[.][.]/*", "/a/../x"),
        ("?*", ".."),
        ("*.conf", "/etc/apt/../shadow.conf"),
        ("getty@*", "getty@../../../tmp/evil.service"),
        ("site/*", "site/../fleet/x"),
        ("salt://site/*", "salt://site/../fleet/secret"),
        ("salt://site/*", "salt://site/x?saltenv=dev"),
        ("salt://site/*", "salt://site/%2e%2e/fleet/secret"),
        ("https://files.example.org/*", "https://files.example.org/../x"),
        ("https://files.example.org/*", "https://files.example.org/%2E%2e/x"),
        ("https://files.example.org/*", "https://files.example.org/a%2fb"),
        ("https://files.example.org/*", "https://files.example.org/a\\..\\b"),
        ("https://files.example.org/*", "https://files.example.org/a\nb"),
        ("https://*.example.org/*", "https://attacker.net/x.example.org/y"),
        ("https://*.example.org/*", "https://attacker.net?x=.example.org/y"),
        ("https://*.example.org/*", "https://attacker.net#x.example.org/y"),
        ("https://files*", "https://files:x@attacker.net/y"),
        ("https://*", "http://plain.example.org/"),
        ("https://files.example.org/*", "HTTPS://files.example.org/x"),
    ],
)
def test_a_value_that_means_something_else_does_not_fit(glob: str, value: str) -> None:
    assert not fits(glob, value)


@given(st.lists(st.sampled_from(["..", ".", "", "a", "b", "etc", "...", "a.b"]), max_size=8), st.booleans())
def test_no_path_that_fits_leaves_the_folder(parts: list[str], slash: bool) -> None:
    value = "/srv/site/" + "/".join(parts) + ("/" if slash else "")
    if fits("/srv/site/*", value):
        assert posixpath.normpath(value).startswith("/srv/site")
        assert posixpath.normpath(value) == value.rstrip("/")


@pytest.mark.parametrize(
    ("glob", "folder"),
    [
        ("/var/log/*", "/var/log"),
        ("/var/log/cam-*/x", "/var/log"),
        ("/var/lo[gc]/x", "/var"),
        ("/etc/motd", ""),
        ("/*", ""),
        ("*", ""),
        ("site/*", ""),
        ("~/x/*", ""),
        ("/a/../b/*", ""),
        ("salt://site/*", ""),
    ],
)
def test_the_folder_that_a_glob_limits_a_path_to(glob: str, folder: str) -> None:
    assert limiting_folder(glob) == folder
