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
    local IFS=$'\\n' words word answer
    # A word ends at a blank alone here: a colon or an equals sign stands within a target, as in -G os:Debian.
    if declare -F _get_comp_words_by_ref >/dev/null; then
        local cur cword
        _get_comp_words_by_ref -n :=@ -c cur -w words -i cword
    else
        words=("${COMP_WORDS[@]}") cword=$COMP_CWORD cur=${COMP_WORDS[COMP_CWORD]}
    fi
    answer=$(COMP_WORDS="${words[*]}" COMP_CWORD=$cword _OUTSTATION_COMPLETE=complete_bash \\
        timeout SECONDS "$1" 2>/dev/null)
    COMPREPLY=()
    for word in $answer; do
        COMPREPLY+=("$word")
    done
    if declare -F __ltrim_colon_completions >/dev/null; then
        __ltrim_colon_completions "$cur"
    fi
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
