# What the reaction gave as pillar.
say_it:
  salt.function:
    - name: test.echo
    - tgt: 'recorder-*'
    - arg:
      - {{ pillar.get('stuff')|json }}
