# A device that has just come has none of the site's own grains yet, and may be targeted by them at once. In the same way
# saltutil.sync_modules or saltutil.sync_all.
sync_grains:
  local.saltutil.sync_grains:
    - tgt: {{ data['id'] }}
