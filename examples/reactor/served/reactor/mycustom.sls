# From salt://reactor/mycustom.sls: this file is served by the station, or by the master above it.
from_base:
  local.test.echo:
    - tgt: {{ data['id'] }}
    - args:
      - text: {{ tag }}
