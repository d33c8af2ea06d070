{# A camera of the series ink is here: it gets its state, and whoever asked for mail is told how that ended. #}
highstate_run:
  local.state.apply:
    - tgt: {{ data['id'] }}
    - ret: smtp
