# Steps in the order in which they are written, each when the one before it went well.
announce:
  salt.runner:
    - name: event.send
    - tag: site/run/begins
look:
  salt.function:
    - name: test.ping
    - tgt: 'cam-*'
    - require:
      - salt: announce
tell:
  salt.runner:
    - name: event.send
    - tag: site/run/ended
    - require:
      - salt: look
