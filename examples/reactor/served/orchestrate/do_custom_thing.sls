{% set data = salt['pillar.get']('event_data') %}

# The data of the event goes to a runner of the site's own: served/_runners/custom_runner.py.
do_first_thing:
  salt.runner:
    - name: custom_runner.custom_function
    - foo: {{ data.foo|json }}

# When it has ended, the devices get their state, with more of the event's data as pillar.
do_second_thing:
  salt.state:
    - tgt: {{ data.bar|json }}
    - sls:
      - do_thing_on_minion
    - kwarg:
        pillar:
          baz: {{ data.baz|json }}
    - require:
      - salt: do_first_thing
