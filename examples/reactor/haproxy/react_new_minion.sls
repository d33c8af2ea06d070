# The key of a camera was accepted: the proxy in front of the cameras' pictures gets to know it, in two ways. As in Salt by
# its state, with the new camera in the pillar:
{% if data['act'] == 'accept' and data['id'].startswith('cam') %}
add_new_minion_to_pool:
  local.state.apply:
    - tgt: 'haproxy*'
    - args:
      - mods: haproxy.refresh_pool
      - pillar:
          new_minion: {{ data['id'] }}
# And until devices have states by an orchestration, which writes the file of the pool from the same pillar and the mine.
write_pool:
  runner.state.orchestrate:
    - args:
      - mods: orchestrate.write_pool
      - pillar:
          new_minion: {{ data['id'] }}
          kept: {{ salt['cache.mine']('cam*')|json }}
{% endif %}
