"""The rules of ``bench reactor``: the same files for both sides, as Salt's users write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from gateway.bench.reactor_measure import DONE, FIRED

DEVICE: Final = "cam-1"

FILES: Final = {
    "runner": f"""\
{{% if data['key'] %}}
done:
  runner.event.send:
    - args:
      - tag: {DONE}
      - data:
          key: {{{{ data['key'] }}}}
{{% endif %}}
""",
    "local": f"""\
{{% if data['key'] %}}
done:
  local.test.echo:
    - tgt: {DEVICE}
    - args:
      - text: {{{{ data['key'] }}}}
{{% endif %}}
""",
}


def write(folder: Path) -> list[dict[str, Any]]:
    """Write the files; the map."""
    folder.mkdir()
    for kind, text in FILES.items():
        (folder / f"{kind}.sls").write_text(text, encoding="utf-8")
    return [{FIRED[kind]: [str(folder / f"{kind}.sls")]} for kind in FILES]
