# bash completion for fastpath: source <(fastpath completion bash)
_fastpath() {
    local -a words=()
    local i last=-1 joins=0 word cur line directive=0
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((last > 0)) && { ((joins)) || [[ $word == [=:]* ]]; }; then
            words[last]+=$word
        else
            last=$((last + 1))
            words[last]=$word
        fi
        joins=0
        [[ $word == *[=:] ]] && joins=1
    done
    cur=${words[last]}
    [[ $cur == -*=* ]] && cur=${cur#*=}
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
        :[0-9]*) directive=${line#:} ;;
        *)
            line=${line%%$'\t'*}
            [[ $line == "$cur"* ]] && COMPREPLY+=("$line")
            ;;
        esac
    done < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
    if ((directive == 16)); then
        compopt -o filenames 2>/dev/null
        while IFS= read -r line; do
            COMPREPLY+=("$line")
        done < <(compgen -d -- "$cur")
    fi
    # without a reply bash offers files
    ((directive == 0)) || compopt +o default 2>/dev/null
    return 0
}
complete -o default -F _fastpath fastpath
