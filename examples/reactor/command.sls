# A command on a device: the type comes first, then the function cmd.run. `cmd` is the old name of the type `local`, so a
# bare cmd.run would be the function `run`, and is named as wrong by `outstation reactor check`.
uptime:
  local.cmd.run:
    - tgt: {{ data['id'] }}
    - arg:
      - uptime -p
uptime_as_before:
  cmd.cmd.run:
    - tgt: {{ data['id'] }}
    - arg:
      - uptime -s
