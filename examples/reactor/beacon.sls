# A beacon's event is flat here, and what files in the field ask for one level deeper is the same.
look_who_works_so_hard:
  local.status.procs:
    - tgt: {{ data['data']['id'] }}
tell_its_load:
  local.event.send:
    - tgt: {{ data['id'] }}
    - args:
      - tag: site/busy
      - data:
          load: {{ data['data']['1m']|json }}
