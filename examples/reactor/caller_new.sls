# On the station's own machine, as far as station.grants in its settings allows it.
touch_file:
  caller.file.touch:
    - args:
      - name: /var/tmp/foo
