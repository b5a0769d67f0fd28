"""What stands before the program of every rank: a small text for /bin/sh that makes our variables of Open MPI's.

It runs on every host, where there may be no Python.  The text is always the same and holds no word of the user's;
what differs comes as arguments, and the program with its arguments is started from "$@" by exec, as the same process.
A rank first says who and where it is, on its standard error (`HELLO`); the desk takes that line out.  The surprising
thing is the first step: on the launching host a rank opens the streams that the launcher has made for it, through
/proc/PID/fd, so that its output does not pass through mpirun, which cannot tell ranks apart without losing bytes.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple
from mslaunch.frameworks import mindspore, torch
from mslaunch.frameworks.contract import RankInfo
from mslaunch.frameworks.table import defaults
from mslaunch.plan.exported_variables import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SHELL = ("sh", "-c")
_END = "."  # ends a list of words; no variable is called so

#: what only the rank knows, as a number that no table makes, and the name that the text has for it
_KNOWN_THERE = {-101: "rank", -102: "size", -103: "local_rank", -104: "local_size", -105: "node"}

TEXT = """\
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
    *) [ ! -f "./$program" ] || program=./$program ;;
    esac
    ;;
esac
"""
_LAST = """\
command -v -- "$program" >/dev/null || [ -e "$program" ] || {
    printf 'mslaunch: rank %s on %s: the program %s was not found\\n' "$rank" "$host" "$program" >&2
    exit 127
}
exec "$program" "$@"
"""


def text() -> str:
    """The whole of it; variables that are given where there is no value are constants of ours as well."""
    given = [word.partition("=") for word in (*DEFAULTS, *defaults(mindspore.LARGE + 1, (), False))]
    pace = f'[ "{"".join(f"${{{name}+x}}" for name in mindspore.PACE)}" ] || [ "$size" -gt {mindspore.LARGE} ] ||'
    pace += f" export {' '.join(mindspore.pace(1))}\n"
    return TEXT + "".join(f': "${{{name}={value}}}"\nexport {name}\n' for name, _, value in given) + pace + _LAST


class Streams(NamedTuple):
    """Where ranks on the launching host write to, and how they know that they are there."""

    hello: str = ""  # the word before what a rank says of itself; "": it says nothing
    host: str = ""
    boot: str = ""
    folder: str = ""  # /proc/PID/fd
    numbers: tuple[int, ...] = ()  # stdout and stderr of each local rank
    reader: tuple[int, int] | None = None  # the rank that gets standard input from us, and the descriptor


class MeetingPoint(NamedTuple):
    """Where ranks meet."""

    address: str  # MASTER_ADDR: of rank 0's host, as far as it is known
    port: int
    scheduler: tuple[str, int] | None  # address and port; None: nobody starts one


def command(
    argv: Sequence[str], wdir: str, path: str, streams: Streams, merge: bool, shift: int, variables: Sequence[str]
) -> list[str]:
    """The words that start `argv` as a rank.  `shift`: the number of Open MPI's daemon on our first node.

    `variables` are those of `variables()`.
    """
    numbers = " ".join(map(str, streams.numbers))
    flags = [streams.hello, streams.host, streams.boot, streams.folder, numbers, "1" if merge else "", str(shift)]
    reader = " ".join(map(str, streams.reader or ()))
    return [*_SHELL, text(), "mslaunch", *flags, wdir, path, reader, *variables, *argv]


def variables(meeting: MeetingPoint, jobid: str, taken: Iterable[str]) -> list[str]:
    """Our variables: a list of NAME=VALUE, and one of NAME=what only the rank knows; each ends with a dot.

    Made of the frameworks' own tables, but for Open MPI's, which sets its own.  What the user gave (`taken`) is left
    out, and so is what promises a scheduler where there is none.
    """
    rank, size, local_rank, local_size, node = _KNOWN_THERE
    address, port = meeting.scheduler or ("", 0)
    place = RankInfo(rank, size, local_rank, local_size, node, 0, 0, meeting.address, meeting.port, port)
    torches = {**torch.job_env(place), **torch.rank_env(place)}
    minds = {**mindspore.job_env(place), **mindspore.rank_env(place)}
    if meeting.scheduler:
        minds["MS_SCHED_HOST"] = address
    else:
        minds = {name: value for name, value in minds.items() if not name.startswith("MS_")}
    found: dict[str, object] = {**torches, **minds, "MSLAUNCH_JOBID": jobid}
    known = {name: value for name, value in found.items() if name not in set(taken)}
    there = {name: _KNOWN_THERE[value] for name, value in known.items() if isinstance(value, int) and value < 0}
    plain = [f"{name}={value}" for name, value in known.items() if name not in there]
    return [*plain, _END, *(f"{name}={word}" for name, word in there.items()), _END]
