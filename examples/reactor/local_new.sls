# outstation run -G 'kernel:Linux' state.single fun=pkg.installed name=zsh fromrepo=updates
install_zsh:
  local.state.single:
    - tgt: 'kernel:Linux'
    - tgt_type: grain
    - args:
      - fun: pkg.installed
      - name: zsh
      - fromrepo: updates
