{% set tag = salt['pillar.get']('event_tag') %}
{% set data = salt['pillar.get']('event_data') %}

# A function of the station gets what the event brought.
do_first_thing:
  salt.runner:
    - name: event.send
    - tag: site/first
    - data:
        foo: {{ data.foo|json }}
        because: {{ tag|json }}

# When that was done, the devices that the event names get their state, with more of what it brought.
do_second_thing:
  salt.state:
    - tgt: {{ data.bar|json }}
    - sls:
      - do_thing_on_minion
    - pillar:
        baz: {{ data.baz|json }}
    - require:
      - salt: do_first_thing

# And somebody is told when they did not.
tell_that_it_failed:
  salt.runner:
    - name: event.send
    - tag: site/second/failed
    - onfail:
      - salt: do_second_thing
