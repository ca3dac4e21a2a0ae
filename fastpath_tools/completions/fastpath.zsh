#compdef fastpath
# zsh completion for fastpath: source <(fastpath completion zsh), or a file _fastpath in a folder of $fpath
_fastpath() {
    local -a lines described
    local line directive=0
    lines=("${(@f)$("${(@Q)words[1]}" __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    for line in "${lines[@]}"; do
        if [[ $line == :<-> ]]; then
            directive=${line#:}
        elif [[ -n $line ]]; then
            line=${line//:/\\:}
            described+=("${line/$'\t'/:}")
        fi
    done
    [[ ${words[CURRENT]} == -*=* ]] && compset -P '*='
    if ((${#described})); then
        _describe -V fastpath described
    elif ((directive == 16)); then
        _files -/
    elif ((directive == 0)); then
        _files
    fi
}
if [[ ${funcstack[1]} == _fastpath ]]; then
    _fastpath
else
    compdef _fastpath fastpath
fi
