{# An ink camera was turned away, perhaps because it has new keys: the ones that wait go, and its agent asks again. #}
{% if not data['result'] and data['id'].startswith('ink') %}
minion_remove:
  wheel.key.delete:
    - args:
      - match: {{ data['id'] }}
minion_rejoin:
  local.cmd.run:
    - tgt: installer.lisbon.example
    - args:
      - cmd: ssh -o BatchMode=yes "{{ data['id'] }}" 'sleep 10 && /etc/init.d/outstation-agent restart'
{% endif %}

{# An ink camera asks to be let in: its keys are accepted, under the name that it was judged by. #}
{% if 'act' in data and data['act'] == 'pend' and data['id'].startswith('ink') %}
minion_add:
  wheel.key.accept:
    - args:
      - match: {{ data['id'] }}
{% endif %}
