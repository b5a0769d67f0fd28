"""Completion scripts for bash, zsh and fish, made of the tables that the parser reads.

They complete options, their values, and then the program and its files.
"""

from __future__ import annotations

from collections.abc import Iterable

from mslaunch.cli import help_text, help_topics
from mslaunch.cli.dialects import OF_OWN_NAME
from mslaunch.cli.parser.options import REFUSED, Option, spelled
from mslaunch.datamodel.node_report import LEVELS
from mslaunch.faststd import NamedTuple

#: values that the row of an option does not list
_WORDS = {
    "h": help_topics.words(),
    "map-by": ("slot", "node", *LEVELS, "ppr:", "seq"),
    "rank-by": ("slot", "node", *LEVELS),
    "bind-to": ("none", *LEVELS, "cpu-list"),
    "display": ("allocation", "map", "map-devel", "bindings", "topo"),
    "output": ("tag", "rank", "timestamp", "xml", "merge-stderr-to-stdout", "dir=", "file="),
}
_DASHES = ("-", "--")
_SHIMS = tuple(name for row in OF_OWN_NAME for name in row.shims)
_NAMES = " ".join(("mslaunch", *_SHIMS))
_FILES = ("FILE", "FILES", "PATH", "PATH[:MODIFIERS]", "DIR", "DIRS", "CMD", "PROGRAM")
_HOSTS = ("H", "host", "hosts")


class _Row(NamedTuple):
    """One option, as completion sees it."""

    names: tuple[str, ...]
    help: str
    values: tuple[str, ...]  # the metavar of each of its values
    kind: str  # what the first value is: "" anything, files, hosts, words
    words: tuple[str, ...] = ()


def script(shell: str) -> str:
    """The completion of `mslaunch`, mpirun, mpiexec and msrun, for bash, zsh or fish."""
    table: list[Option] = []
    for dialect in OF_OWN_NAME:
        known = {name for option in table for name in option.names}
        table += (
            option for option in help_text.documentation(dialect.name).table if not known.intersection(option.names)
        )
    rows = [_row(option) for option in table if option.status != REFUSED]
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](rows)


def _row(option: Option) -> _Row:
    values = tuple(option.metavar.split())
    known = _WORDS.get(option.names[0], ())
    if not known and values and "|" in values[0] and "[" not in values[0]:
        known = tuple(word for word in values[0].split("|") if word.isalnum() and not word.isupper())
    kind = "words" if known else "files" if values and values[0] in _FILES else ""
    kind = "hosts" if option.names[0] in _HOSTS else kind
    return _Row(option.names, option.help.partition("; ")[0], values, kind, known)


def _either(names: Iterable[str]) -> str:
    return "|".join(names)


# --- bash

# bash cuts words at `=` and `:`, so the script cuts the line again, at blanks
_BASH = """\
# bash completion of mslaunch: eval "$(mslaunch --completion bash)"

_mslaunch() {{
    local line=${{COMP_LINE:0:COMP_POINT}} words cur name value left at=1 ahead
    read -ra words <<<"$line"
    [[ $line == *[[:blank:]] ]] && words+=("")
    ahead=$((${{#words[@]}} - 1))
    cur=${{words[ahead]}}
    COMPREPLY=()
    while ((at < ahead)); do
        name=${{words[at]}}
        case $name in
            : | --) ((at++)); [[ $name == : ]] && continue; break ;;
            -*) ;;
            *) # a program: its arguments are files, unless another one follows behind a lone colon
                while ((at < ahead)) && [[ ${{words[at]}} != : ]]; do ((at++)); done
                ((at < ahead)) && continue
                return ;;
        esac
        ((at++))
        name=${{name#-}} name=${{name#-}} left=0
        [[ $name == *=* ]] && continue
        case $name in
            {two}) left=2 ;;
            {one}) left=1 ;;
        esac
        if ((at + left > ahead)); then
            _mslaunch_value "$name" "$cur"
            return
        fi
        ((at += left))
    done
    case $cur in
        -*=*) name=${{cur%%=*}} name=${{name#-}}; _mslaunch_value "${{name#-}}" "${{cur#*=}}" ;;
        --*) COMPREPLY=($(compgen -W "{long}" -- "$cur")) ;;
        -*) COMPREPLY=($(compgen -W "{short}" -- "$cur")) ;;
        *) COMPREPLY=($(compgen -c -- "$cur")) ;;
    esac
}}

_mslaunch_value() {{ # NAME WORD: what may follow the option NAME; files are bash's own default
    case $1 in
        {hosts}) COMPREPLY=($(compgen -A hostname -- "$2")) ;;
{words}
    esac
}}

complete -o bashdefault -o default -F _mslaunch {names}
"""


def _bash(rows: list[_Row]) -> str:
    names = [name for row in rows for name in row.names]
    return _BASH.format(
        names=_NAMES,
        two=_either(name for row in rows for name in row.names if len(row.values) == 2),
        one=_either(name for row in rows for name in row.names if len(row.values) == 1),
        long=" ".join("--" + name for name in names),
        short=" ".join("-" + name for name in names),
        hosts=_either(name for row in rows for name in row.names if row.kind == "hosts"),
        words="\n".join(
            f"        {_either(row.names)}) COMPREPLY=($(compgen -W '{' '.join(row.words)}' -- \"$2\")) ;;"
            for row in rows
            if row.kind == "words"
        ),
    )


# --- zsh

_ZSH = """\
#compdef {names}
# zsh completion of mslaunch: put it into a file _mslaunch in $fpath, or eval "$(mslaunch --completion zsh)"

_mslaunch() {{
    _arguments -S \\
{specs}
        '(-)1:program:_command_names -e' \\
        '*::arguments:_normal'
}}

if [[ ${{funcstack[1]}} == _mslaunch ]]; then
    _mslaunch "$@"
else
    compdef _mslaunch {names}
fi
"""


def _zsh(rows: list[_Row]) -> str:
    specs = "\n".join(f"        {_spec(row, name)} \\" for row in rows for name in row.names)
    return _ZSH.format(names=_NAMES, specs=specs)


def _spec(row: _Row, name: str) -> str:
    """One option as _arguments takes it; it may be repeated."""
    glue = "=" if len(row.values) == 1 and len(name) > 1 else ""
    actions = {"files": "_files", "hosts": "_hosts", "words": f"({_plain(' '.join(row.words))})", "": " "}
    colon = "::" if row.values and row.values[0][:1] == "[" else ":"  # of a value that may be left out
    values = "".join(
        f"{colon}{_plain(value)}:{actions[row.kind] if not at else ' '}" for at, value in enumerate(row.values)
    )
    return f"'*{spelled(name)}{glue}[{_plain(row.help)}]{values}'"


def _plain(text: str) -> str:
    """Text with the characters escaped that end a part of a specification."""
    for char in "\\[]:":
        text = text.replace(char, "\\" + char)
    return text.replace("'", "’")


# --- fish

_FISH = """\
# fish completion of mslaunch: mslaunch --completion fish | source

function __mslaunch_before_program
    set -l left 0
    set -l program 0
    for word in (commandline -opc)[2..]
        if test $word = :
            set program 0
        else if test $left -gt 0
            set left (math $left - 1)
        else if test $program = 0
            switch $word
                case {two}
                    set left 2
                case {one}
                    set left 1
                case '-*'
                case '*'
                    set program 1
            end
        end
    end
    test $program = 0
end

complete -c mslaunch -e
{wrapped}
complete -c mslaunch -x -a '(__fish_complete_subcommand {valued})'
{lines}
"""


def _fish(rows: list[_Row]) -> str:
    one, two = (
        " ".join(dash + name for row in rows if len(row.values) == count for name in row.names for dash in _DASHES)
        for count in (1, 2)
    )
    return _FISH.format(
        wrapped="\n".join(f"complete -c {name} -w mslaunch" for name in _SHIMS),
        two=two,
        one=one,
        valued=f"{one} {two}",
        lines="\n".join(map(_complete, rows)),
    )


def _complete(row: _Row) -> str:
    names = " ".join(f"-s {name}" if len(name) == 1 else f"-l {name}" for name in row.names)
    follows = {
        "files": "-r -F",
        "hosts": "-x -a '(__fish_print_hostnames)'",
        "words": f"-x -a '{' '.join(row.words)}'",
        "": "-x" if row.values else "",
    }[row.kind]
    text = row.help.replace("\\", "\\\\").replace("'", "\\'")
    return f"complete -c mslaunch -n __mslaunch_before_program {names} {follows} -d '{text}'".replace("  ", " ")
