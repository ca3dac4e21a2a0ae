# fish completion for fastpath: fastpath completion fish | source
# Fails where fish should offer files, which it then does itself.
function __fastpath_prepare
    set -l words (commandline -opc)
    # with escaped blanks, or with a quote that is still open
    set -l current (commandline -ct)
    set current (string unescape -- "$current"; or string unescape -- "$current\""
        or string unescape -- "$current'")
    set -l prefix (string match -r -- '^-[^=]*=' "$current")
    set -l lines ($words[1] __complete $words[2..-1] "$current" 2>/dev/null)
    set -l directive (string sub --start 2 -- $lines[-1])
    set -g __fastpath_candidates
    for line in $lines[1..-2]
        set -a __fastpath_candidates "$prefix$line"
    end
    if test "$directive" = 16
        set -l rest (string replace -r -- '^-[^=]*=' '' "$current")
        set -a __fastpath_candidates (printf "$prefix%s\n" (__fish_complete_directories "$rest" ''))
    end
    test "$directive" != 0
end
complete -c fastpath -n __fastpath_prepare -f -a '$__fastpath_candidates'
