# As some_event.sls, for an orchestration that calls a runner of the site's own.
{% if 'id' not in data %}
invoke_custom_runner:
  runner.state.orchestrate:
    - mods: orchestrate.do_custom_thing
    - kwarg:
        pillar:
          event_tag: {{ tag }}
          event_data: {{ data|json }}
{% endif %}
