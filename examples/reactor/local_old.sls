# The same as it was written before: what has a place and what has a name, apart; and expr_form for tgt_type.
install_zsh_as_before:
  local.state.single:
    - tgt: 'kernel:Linux'
    - expr_form: grain
    - arg:
      - pkg.installed
      - zsh
    - kwarg:
        fromrepo: updates
