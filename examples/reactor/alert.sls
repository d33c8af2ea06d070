# An alert of Prometheus, which the engine alertmanager made an event of: the camera that it names says how it is.
{% if data['labels'].get('instance', '') is match('cam-[A-Za-z0-9-]*$') %}
look_at_its_disks:
  local.disk.usage:
    - tgt: {{ data['labels']['instance'] }}
look_at_its_load:
  local.status.loadavg:
    - tgt: {{ data['labels']['instance'] }}
{% endif %}
