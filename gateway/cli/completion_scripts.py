"""What a shell has to load so that it asks ``outstation`` what could stand where something is typed.

A shell asks anew at every press of the key, so each answer has a bounded time: after it, or when no station answers,
nothing is offered and nothing is said.
"""

from __future__ import annotations

from typing import Final

SHELLS: Final = ("bash", "zsh", "fish")
ANSWER_SECONDS: Final = 3
"""Longest that a shell waits for the program; the program waits for a station one second."""

_BASH: Final = """# bash completion for outstation
_outstation_completion() {
    # The line is taken as it was typed: for bash a word ends at a colon or an equals sign too, and those stand within a
    # target, as in -G os:Debian.
    local line=${COMP_LINE:0:COMP_POINT} words current before IFS=$' \\t\\n'
    read -ra words <<<"$line"
    [[ $line == *[[:blank:]] ]] && words+=("")
    current=${words[${#words[@]}-1]}
    IFS=$'\\n'
    COMPREPLY=($(COMP_WORDS=$line COMP_CWORD=$((${#words[@]} - 1)) _OUTSTATION_COMPLETE=complete_bash \\
        timeout SECONDS "$1" 2>/dev/null))
    # bash puts what it is offered in the place of what stands after the last of those signs.
    before=${current%"${current##*[:=]}"}
    [[ $COMP_WORDBREAKS == *:* && -n $before ]] && COMPREPLY=("${COMPREPLY[@]#"$before"}")
    return 0
}

complete -o default -F _outstation_completion outstation
"""

_ZSH: Final = """#compdef outstation

_outstation() {
    eval "$(_TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _OUTSTATION_COMPLETE=complete_zsh \\
        timeout SECONDS outstation 2>/dev/null)"
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _outstation "$@"
else
    compdef _outstation outstation
fi
"""

_FISH: Final = """# fish completion for outstation
function __outstation_complete
    set --local --export _OUTSTATION_COMPLETE complete_fish
    set --local --export _TYPER_COMPLETE_FISH_ACTION $argv[1]
    set --local --export _TYPER_COMPLETE_ARGS (commandline -cp)
    timeout SECONDS outstation 2>/dev/null
end

complete --command outstation --no-files --condition "__outstation_complete is-args" \\
    --arguments "(__outstation_complete get-args)"
"""

_SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def script(shell: str) -> str:
    """The file that a shell loads. Raises ``KeyError`` for one that is not in ``SHELLS``."""
    return _SCRIPTS[shell].replace("SECONDS", str(ANSWER_SECONDS))
