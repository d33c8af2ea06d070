# From salt://reactor/mycustom.sls?saltenv=reactor
from_reactor:
  local.test.echo:
    - tgt: {{ data['id'] }}
    - args:
      - text: {{ data['note']|json }}
