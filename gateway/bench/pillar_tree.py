"""The pillar files of ``bench pillar``, and the devices that they are for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

SHARED: Final = 44
"""Files for every device; with the top file and those of models there are fifty."""

OWN: Final = 5
COMMON: Final = """
{{% set ports = [554, 8080] %}}
f{number}:
  number: {number}
  group: {{{{ grains.group }}}}
  ports: {{{{ ports }}}}
  servers:
{{% for n in range(4) %}}
    - 192.0.2.{{{{ n + {number} }}}}
{{% endfor %}}
"""


def write(folder: Path) -> int:
    """Write the files; how many there are."""
    top = "base:\n  '*':\n" + "".join(f"    - all.f{number}\n" for number in range(SHARED))
    top += "".join(f"  'model:m{number}':\n    - match: grain\n    - model.m{number}\n" for number in range(OWN))
    files = {"top.sls": top}
    files |= {f"all/f{number}.sls": COMMON.format(number=number) for number in range(SHARED)}
    files |= {f"model/m{number}.sls": f"model: {{number: {number}, name: m{number}}}\n" for number in range(OWN)}
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return len(files)


def grains(device: int, inputs: int) -> dict[str, Any]:
    """What a device says of itself: with so many distinct inputs among all of them."""
    return {
        "id": f"cam-{device}",
        "os": "Linux",
        "model": f"m{device % OWN}",
        "group": device % inputs,
        "serial": device,
    }


def is_right(pillar: dict[Any, Any], device: int, inputs: int) -> bool:
    """Whether this is the pillar of this device."""
    last = pillar.get(f"f{SHARED - 1}", {})
    return bool(last.get("group") == device % inputs and pillar.get("model", {}).get("number") == device % OWN)
