# What happened is in the pillar, put there by the reaction.
tell_what_it_is_for:
  salt.function:
    - name: test.echo
    - tgt: 'cam-*'
    - arg:
      - {{ (pillar['event_tag'] ~ ' ' ~ pillar['event_data']['bar'])|json }}
