# Before, caller had places and no names.
touch_file_as_before:
  caller.file.touch:
    - args:
      - /var/tmp/foo
