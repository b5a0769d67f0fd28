"""The /bin/sh script that wraps each rank's program: it derives our variables from Open MPI's and execs the program.

It is for /bin/sh because other hosts may have no Python.  What the user gave comes as arguments, and the
program is started from "$@", so that no word of the user's is read by the shell.  First the rank writes its hello,
HELLO RANK PID HOST, on standard error; on the launching host it opens the streams that `local_streams` has made for it
before that, through /proc/PID/fd.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.frameworks.contract import RankInfo
from mslaunch.frameworks.openmpi import OPENMPI
from mslaunch.frameworks.table import FRAMEWORKS, defaults, with_own_ports
from mslaunch.plan.rank_variables import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mslaunch.datamodel.jobmap import Endpoint

_END = "."  # ends a list of variables; no variable has this name

#: numbers that stand for what only the rank knows, and the script's words for it
_OF_THE_RANK = {-101: "rank", -102: "size", -103: "local_rank", -104: "local_size", -105: "node"}

_SCRIPT = """\
others() {  # who else can write to a file: the rule of mslaunch.host.system_files.who_else, by ls
    ls -ldnL "$1" 2>/dev/null | {
        read -r mode links uid gid rest
        case $uid in 0|"$(id -u)") ;; *) echo "user $uid"; exit ;; esac
        case $mode in
        ????????w*) echo "every user" ;;
        ?????w*) [ "$gid" = "$(id -g)" ] && [ "$(id -gn)" = "$(id -un)" ] || echo "group $gid" ;;
        esac
    }
}
hello=$1 here=$2 boot=$3 streams=$4 numbers=$5 merge=$6 shift_nodes=$7 wdir=$8 path=$9 input=${10}
shift 10
rank=$OMPI_COMM_WORLD_RANK size=$OMPI_COMM_WORLD_SIZE
local_rank=$OMPI_COMM_WORLD_LOCAL_RANK local_size=$OMPI_COMM_WORLD_LOCAL_SIZE
node=${PMIX_SERVER_URI2%%;*}
node=${node##*.}
case $node in ''|*[!0-9]*) node=;; *) node=$((node - shift_nodes)) ;; esac
[ "$size" != "$local_size" ] || node=0
host=$(uname -n)
if [ -n "$hello" ]; then
    said="$hello $rank $$ $host"
    if [ -n "$numbers" ] && [ "$host" = "$here" ] && read -r this </proc/sys/kernel/random/boot_id &&
        [ "$this" = "$boot" ]; then
        out= err= at=0
        for number in $numbers; do
            case $at in
            $((2 * local_rank))) out=$streams/$number ;;
            $((2 * local_rank + 1))) err=$streams/$number ;;
            esac
            at=$((at + 1))
        done
        if [ -w "$out" ] && [ -w "$err" ]; then
            exec 9>&1 >"$out" 2>"$err"  # 9: mpirun 4.1 ends the input of a rank that has closed its output
            printf '%s\\n' "$said"
            [ "${input%% *}" != "$rank" ] || exec <"$streams/${input#* }"
        fi
    fi
    printf '%s\\n' "$said" >&2
fi
[ -z "$merge" ] || exec 2>&1
while [ "$1" != . ]; do
    export "$1"
    shift
done
shift
while [ "$1" != . ]; do
    case ${1#*=} in
    rank) value=$rank ;;
    size) value=$size ;;
    local_rank) value=$local_rank ;;
    local_size) value=$local_size ;;
    *) value=$node ;;
    esac
    if [ -n "$value" ]; then export "${1%%=*}=$value"; else unset "${1%%=*}"; fi
    shift
done
shift
cd -- "$wdir" 2>/dev/null || {
    printf 'mslaunch: rank %s on %s: the working directory %s cannot be entered\\n' "$rank" "$host" "$wdir" >&2
    exit 126
}
program=$1
shift
OMPI_COMMAND=${program##*/} OMPI_ARGV="$*"
export OMPI_COMMAND OMPI_ARGV
[ $# -gt 0 ] || unset OMPI_ARGV
case $program in
*/*) ;;
*)
    found=$(PATH=${path:+$path:}$PATH && command -v -- "$program")
    case $found in
    "$PWD"/"$program") ;;
    /*) [ -z "$path" ] || program=$found ;;
    *)
        if [ -f "./$program" ]; then
            for at in . "./$program"; do
                who=$(others "$at")
                [ -z "$who" ] || {
                    printf 'mslaunch: rank %s on %s: the program %s is not in PATH, and the file of that name is ' \
                        "$rank" "$host" "$program"
                    printf 'not run: %s can write to %s (type ./%s if you mean it)\n' "$who" "$wdir" "$program"
                    exit 127
                } >&2
            done
            program=./$program
        fi
        ;;
    esac
    ;;
esac
"""
#: for PRRTE, which loses a rank that ends before one of its threads has stored the rank's pid; mpirun then never ends
#: (openpmix/prrte#2713; 3 of 162 launches of `sh -c 'echo hi'` by 5.0.11's own mpirun hung)
_PAUSE = "sleep 0.1 2>/dev/null\n"
_EXEC = """\
command -v -- "$program" >/dev/null || [ -e "$program" ] || {
    printf 'mslaunch: rank %s on %s: the program %s was not found\\n' "$rank" "$host" "$program" >&2
    exit 127
}
exec "$program" "$@"
"""


class LocalPaths(NamedTuple):
    """The launching host, and the streams of ranks there, as the script gets them."""

    hello: str = ""  # the first word of the hello; "": the rank writes none
    host: str = ""
    boot: str = ""  # the kernel's boot_id, which distinguishes hosts with the same name
    folder: str = ""  # /proc/PID/fd
    numbers: tuple[int, ...] = ()  # descriptors: stdout and stderr of each local rank
    reader: tuple[int, int] | None = None  # the rank that gets standard input from us, and the descriptor


def _script(size: int, prrte: bool) -> str:
    """The script for a job of `size` ranks that Open MPI 4.1 or PRRTE starts, with the defaults of their variables."""
    given = dict(word.split("=", 1) for word in (*DEFAULTS, *defaults(size, (), False)))
    text = ""
    for framework in FRAMEWORKS:
        together = {name: given.pop(name) for name in framework.together if name in given}
        if together:
            any_of_them = "".join(f"${{{name}+x}}" for name in together)
            text += f'[ "{any_of_them}" ] || export {" ".join(f"{name}={value}" for name, value in together.items())}\n'
    text += "".join(f': "${{{name}={value}}}"\nexport {name}\n' for name, value in given.items())
    return f"{_SCRIPT}{text}{_PAUSE if prrte else ''}{_EXEC}"


def wrap(
    size: int,
    argv: Sequence[str],
    wdir: str,
    path: str,
    local: LocalPaths,
    merge: bool,
    shift: int,
    variables: Sequence[str],
    *,
    prrte: bool = False,
) -> list[str]:
    """The command that starts `argv` as a rank of Open MPI 4.1 or, with `prrte`, of 5.0.

    `shift` is the number of Open MPI's daemon on our first node.
    """
    numbers, reader = (" ".join(map(str, words)) for words in (local.numbers, local.reader or ()))
    fixed = [local.hello, local.host, local.boot, local.folder, numbers, "1" if merge else "", str(shift)]
    return ["sh", "-c", _script(size, prrte), "mslaunch", *fixed, wdir, path, reader, *variables, *argv]


def framework_variables(endpoint: Endpoint, jobid: str, taken: Iterable[str]) -> list[str]:
    """Two lists for `wrap`, each with its end: NAME=VALUE, and NAME=WORD for what only the rank knows.

    Open MPI sets its own variables.  Those in `taken` are left out.
    """
    rank, size, local_rank, local_size, node = _OF_THE_RANK
    info = RankInfo(rank, size, local_rank, local_size, node, 0, 0, *endpoint[:3])
    info = info._replace(service_address=endpoint.service_address, own_ports=endpoint.own_ports)
    found: dict[str, object] = {"MSLAUNCH_JOBID": jobid}
    for framework, place in with_own_ports(info):
        if framework is not OPENMPI:
            found |= {**framework.job(place), **framework.rank(place)}
    found = {name: value for name, value in found.items() if name not in taken}
    of_the_rank = {name: _OF_THE_RANK[value] for name, value in found.items() if value in _OF_THE_RANK}
    fixed = [f"{name}={value}" for name, value in found.items() if name not in of_the_rank]
    return [*fixed, _END, *(f"{name}={word}" for name, word in of_the_rank.items()), _END]
