# What stands under pillar is what the orchestration reads as its own.
another_orchestrate:
  runner.state.orchestrate:
    - args:
      - mods: orchestrate.some_orchestrate_file
      - pillar:
          stuff: things
