# A device has come: what it says of itself is asked for again.
refresh_its_grains:
  local.saltutil.refresh_grains:
    - tgt: {{ data['id'] }}
