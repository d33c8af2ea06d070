# Jinja says for which events there is a reaction at all.
{% if data['id'] == 'recorder-1' %}
highstate_run:
  local.state.apply:
    - tgt: recorder-1
{% endif %}
