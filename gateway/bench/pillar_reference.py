"""The reference of ``bench pillar``: each distinct input once through bare Jinja and PyYAML, without sandbox or limits.

It shares no code with the product. Run as a program of its own.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import jinja2
import yaml

SHARED, OWN = 44, 5


def measure(roots: Path, devices: int, inputs: int) -> dict[str, float]:
    """Render and merge for each distinct input; every device has then the pillar of its input."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(roots), undefined=jinja2.StrictUndefined)  # noqa: S701 - it makes YAML, not HTML
    begun = time.perf_counter()
    kept: dict[tuple[int, int], bytes] = {}
    right = 0
    for device in range(devices):
        key = (device % OWN, device % inputs)
        if key not in kept:
            grains = {"model": f"m{key[0]}", "group": key[1]}
            names = [f"all/f{number}.sls" for number in range(SHARED)] + [f"model/m{key[0]}.sls"]
            pillar: dict[Any, Any] = {}
            for name in names:
                pillar |= yaml.load(environment.get_template(name).render(grains=grains), Loader=loader)  # noqa: S506 - it is a safe loader
            kept[key] = json.dumps(pillar).encode()
        right += json.loads(kept[key])[f"f{SHARED - 1}"]["group"] == device % inputs
    seconds = time.perf_counter() - begun
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "ok": right,
        "compiled": len(kept),
        "seconds": seconds,
        "cpu_seconds": spent.ru_utime + spent.ru_stime,
        "peak_rss_bytes": 1024 * spent.ru_maxrss,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
