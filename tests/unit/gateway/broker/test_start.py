"""gateway/broker/start.py: the pause of a broker that fails again and again ends with other settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.broker.start import rest


@pytest.mark.parametrize("seconds", [0.0, 0.5, 3.0, 3.5])
def test_it_waits_for_all_of_its_pause_while_nothing_changes(seconds: float, tmp_path: Path) -> None:
    slept: list[float] = []
    rest(tmp_path / "mosquitto.conf", seconds, slept.append)
    assert sum(slept) == seconds


@pytest.mark.parametrize("before", [None, "listener 1884\n"])
def test_other_settings_end_its_pause(before: str | None, tmp_path: Path) -> None:
    settings = tmp_path / "mosquitto.conf"
    if before is not None:
        settings.write_text(before, encoding="utf-8")
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        # Written anew, as a gateway that starts does, and then with another port.
        text = "listener 1885\n" if len(slept) == 3 else before
        if text is not None:
            settings.write_text(text, encoding="utf-8")

    rest(settings, 300.0, sleep)
    assert len(slept) == 3
