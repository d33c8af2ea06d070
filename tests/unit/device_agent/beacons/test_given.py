"""What is wrong with the configuration of a beacon is said with its name, what was found and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from device_agent.beacons.given import InvalidBeacon
from device_agent.beacons.kinds import begun

WRONG: list[tuple[str, Any, str]] = [
    ("diskusage", {"/": "80%"}, "Configuration for diskusage beacon must be a list."),
    ("diskusage", ["/"], "Configuration for diskusage beacon must be a list of dictionaries."),
    ("diskusage", [{"/": "full"}], "Configuration for diskusage beacon option / must be a percentage."),
    ("diskusage", [{"/": "101%"}], "option / must be a percentage."),
    ("diskusage", [{"/": True}], "option / must be a percentage."),
    ("diskusage", [{"/(": 80}], "option /( is no regular expression"),
    ("diskusage", [{"interval": "soon"}], "Configuration for diskusage beacon option interval must be a number."),
    ("diskusage", [{"interval": -1}], "option interval must be 0.1 to"),
    ("diskusage", [{"onchangeonly": "yes"}], "option onchangeonly must be a boolean."),
    ("diskusage", [{"fold": float("nan")}], "option fold must be a number."),
    ("load", [], "Averages configuration is required for load beacon."),
    ("load", [{"averages": {"2m": [0, 1]}}], "must contain 1m, 5m or 15m items."),
    ("load", [{"averages": {"1m": [0]}}], "1m, 5m and 15m items must be a list of two items."),
    ("load", [{"averages": {"1m": [0, "much"]}}], "must be a number."),
    ("load", [{"emitatstartup": 1}], "Configuration for load beacon option emitatstartup must be a boolean."),
    ("memusage", [{"interval": 5}], "Configuration for memusage beacon requires percent."),
    ("memusage", [{"percent": 5}, {"percents": 7}], "Configuration for memusage beacon has no option percents."),
    ("swapusage", [{"percent": "all"}], "Configuration for swapusage beacon option percent must be a percentage."),
    ("ps", [], "Configuration for ps beacon requires processes."),
    ("ps", [{"processes": ["sshd"]}], "Processes for ps beacon must be a dictionary."),
    ("service", [], "Configuration for service beacon requires services."),
    ("service", [{"services": []}], "Services configuration item for service beacon must be a dictionary."),
    ("service", [{"services": {"sshd": "up"}}], "Configuration for service beacon must be a list of dictionaries."),
    ("service", [{"services": {"sshd": {"dely": 1}}}], "has no option dely for sshd."),
    ("log", [{"tags": {}}], "Configuration for log beacon must contain file option."),
    ("log", [{"file": "messages"}], "option file must be a path from the root on."),
    ("log", [{"file": "/x", "tags": {"t": {}}}], "tag t must have a regex."),
    ("log", [{"file": "/x", "tags": {"t": {"regex": "(a+)+\\1$"}}}], "is no regular expression that is taken"),
    ("inotify", [], "Configuration for inotify beacon must include files."),
    ("inotify", [{"files": ["/x"]}], "Configuration for inotify beacon invalid, files must be a dict."),
    ("inotify", [{"files": {"/x": 7}}], "Configuration for inotify beacon must be a list of dictionaries."),
    ("inotify", [{"files": {"/x": {"masks": []}}}], "must contain mask, recurse or auto_add items."),
    ("inotify", [{"files": {"/x": {"auto_add": 1}}}], "Configuration for inotify beacon auto_add must be boolean."),
    ("inotify", [{"files": {"/x": {"recurse": 1}}}], "Configuration for inotify beacon recurse must be boolean."),
    ("inotify", [{"files": {"/x": {"mask": "modify"}}}], "Configuration for inotify beacon mask must be list."),
    ("inotify", [{"files": {"/x": {"mask": ["mod"]}}}], "Configuration for inotify beacon invalid mask option mod."),
    ("inotify", [{"files": {"/x": {"exclude": "/y"}}}], "exclude must be list."),
    ("inotify", [{"files": {"x": {}}}], "option files must have paths from the root on."),
    ("network_info", [{"interfaces": {"eth0": []}}], "must be a list of dictionaries."),
    ("network_info", [{"interfaces": {"eth0": {"errs": 1}}}], "Invalid configuration item in Beacon configuration."),
    ("network_info", [{"interfaces": {"eth0": {"type": "less"}}}], "option type must be equal or greater."),
    ("network_settings", [{"interfaces": ["eth0"]}], "interfaces section for network_settings beacon must be a"),
    ("network_settings", [{"interfaces": {"eth0": None}}], "Interface attributes for network_settings beacon must be"),
    ("network_settings", [{"interfaces": {"eth0": {"color": 1}}}], "Invalid attributes in beacon configuration."),
    ("status", [{"../x": "all"}], "Configuration for status beacon has no option ../x."),
    ("temperature", [], "Configuration for temperature beacon requires max or sensors."),
    ("temperature", [{"max": "hot"}], "option max must be a number."),
    ("uptime", [{"max": 0}], "option max must be 1 to"),
    ("uptime", [{"reboot": "yes"}], "option reboot must be a boolean."),
    ("camera_stream", [{"streams": []}], "option streams must be a dictionary."),
    ("camera_stream", [{"streams": {"a": {"url": "rtsp://"}}}], "stream a has no option url."),
    ("camera_stream", [{"streams": {"a": {"rtsp_port": 70_000}}}], "option a.rtsp_port must be 0 to 65535."),
    ("camera_stream", [{"streams": {"a": {"rtsp_port": 0}}}], "stream a must have an rtsp_port or an http_port."),
    ("diskusag", [{"/": 1}], 'Beacon "diskusag" is not available.'),
    ("root", [{"beacon_module": ["load"]}], "option beacon_module must be the name of a beacon."),
    ("a/b", [], "A beacon cannot have this name."),
    ("enabled", [], "A beacon cannot have this name."),
    ("diskusage", [{"/": "x" * 70_000}], "Configuration for diskusage beacon is too large."),
    ("diskusage", [{"/": object()}], "is no plain data"),
]


@pytest.mark.parametrize(("name", "data", "words"), WRONG)
def test_what_is_wrong_is_said_in_salts_words_and_names_the_beacon(name: str, data: Any, words: str) -> None:
    with pytest.raises(InvalidBeacon) as raised:
        begun(name, data)
    assert words in raised.value.what
    assert raised.value.where is None or raised.value.where.startswith("beacons")


@pytest.mark.parametrize(
    "streams",
    [
        [{"password": "hidden"}],
        {"a": [{"password": "hidden"}]},
        {"a": {"password": "hidden", "rtsp_port": 0}},
        {"a": {"password": ["hidden"]}},
    ],
)
def test_what_is_wrong_with_a_stream_does_not_tell_its_password(streams: Any) -> None:
    with pytest.raises(InvalidBeacon) as raised:
        begun("camera_stream", [{"streams": streams}])
    assert "hidden" not in str(raised.value)


def test_what_is_mistyped_names_the_nearest_beacon() -> None:
    with pytest.raises(InvalidBeacon) as raised:
        begun("diskusag", [{"/": 1}])
    assert "did you mean diskusage?" in str(raised.value)


def test_the_options_that_all_beacons_have_are_read_and_what_is_hidden_is_not() -> None:
    made = begun(
        "root",
        [
            {"beacon_module": "diskusage", "interval": "60", "_hidden": 1},
            {"/": "80%"},
            {"onchangeonly": True, "emitatstartup": False, "disable_during_state_run": True, "enabled": False},
            {"fold": 0, "timeout": 5, "run_once": True},
        ],
    )
    options = made.options
    assert (options.interval, options.fold, options.timeout) == (60.0, 0.0, 5.0)
    assert (options.onchangeonly, options.emitatstartup, options.enabled) == (True, False, False)
    assert options.disable_during_state_run
    assert options.run_once
    assert begun("load", [{"averages": {"1m": [0, 1]}}, {"interval": 0}]).options.interval is None
