# And it is asked how it is, which stands in the outcome of this job then.
look_at_its_disks:
  local.disk.usage:
    - tgt: {{ data['id'] }}
