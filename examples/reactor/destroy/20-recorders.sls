# And its recorders need not wait for its pictures.
{% if 'id' not in data %}
tell_its_recorders:
  local.event.send:
    - tgt: 'recorder:True'
    - tgt_type: grain
    - args:
      - tag: site/recorder/forget
      - data:
          camera: {{ tag.split('/')[2]|json }}
{% endif %}
