# A camera is taken down for good: what it left for others to read is of no use any more. An event that a device fired has
# its id in it: only an operator may say so of another one.
{% if 'id' not in data %}
forget_what_it_left:
  local.mine.flush:
    - tgt: {{ tag.split('/')[2]|json }}
{% endif %}
