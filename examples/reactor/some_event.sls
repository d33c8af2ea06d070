# For an event with {"foo": "Foo!", "bar": "cam*", "baz": "Baz!"}; the orchestration is served/orchestrate/do_complex_thing.sls.
# It says for whom: so none that a device fired counts, which has the device's id in it.
{% if 'id' not in data %}
invoke_orchestrate_file:
  runner.state.orchestrate:
    - args:
      - mods: orchestrate.do_complex_thing
      - pillar:
          event_tag: {{ tag }}
          event_data: {{ data|json }}
{% endif %}
