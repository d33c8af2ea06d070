# Whoever fired it, a station or a device, its data is data['data'].
{% if data['data']['orchestrate'] == 'refresh' %}
refresh_everybody:
  local.saltutil.refresh_grains:
    - tgt: '*'
{% endif %}
