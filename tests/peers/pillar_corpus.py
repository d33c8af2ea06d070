"""The corpus of pillar trees: what is compiled here and by stock Salt, to compare."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

CORPUS = Path(__file__).resolve().parents[1] / "vectors" / "pillar.yaml"


@dataclass(frozen=True)
class Case:
    """A tree, and the device and the settings that it is compiled for."""

    name: str
    trees: dict[str, dict[str, str]]
    grains: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)
    nodegroups: dict[str, str] = field(default_factory=dict)
    override: dict[str, Any] = field(default_factory=dict)
    pillarenv: str | None = None
    device: str = "cam-7"

    def question(self) -> dict[str, Any]:
        """As it is asked of Salt."""
        return {
            "trees": self.trees,
            "id": self.device,
            "grains": self.grains,
            "settings": self.settings,
            "nodegroups": self.nodegroups,
            "override": self.override,
            "pillarenv": self.pillarenv,
        }


def corpus() -> tuple[list[Case], list[Case]]:
    """Trees that must give the same, and those that differ on purpose."""
    whole = yaml.safe_load(CORPUS.read_text())
    return tuple([_case(told, whole["grains"]) for told in whole[part]] for part in ("alike", "kept"))  # type: ignore[return-value]  # it has two parts


def _case(told: dict[str, Any], grains: dict[str, Any]) -> Case:
    trees = told.pop("trees", None) or {"base": told.pop("files")}
    return Case(trees=trees, grains=grains, **told)
