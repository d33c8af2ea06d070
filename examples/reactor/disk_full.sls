# The disk of a camera is full: its oldest clips make room, and its neighbours take a picture of what it will miss.
make_room:
  local.file.remove:
    - tgt: {{ data['id'] }}
    - args:
      - path: {{ (data['mount'] ~ '/clips')|json }}
neighbours_take_a_picture:
  local.camera.snapshot:
    - tgt: 'G@area:gate and not {{ data['id'] }}'
    - tgt_type: compound
    - args:
      - path: /snapshot.jpg
