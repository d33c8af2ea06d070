remove_key_as_before:
  wheel.key.delete:
    - match: {{ data['id'] }}
