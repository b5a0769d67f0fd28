"""What ranks ask of the launcher through PMI: to publish, look up and unpublish names, and to spawn."""

from __future__ import annotations

from mslaunch.agent.mpi.pmi import pmi_wire
from mslaunch.agent.mpi.pmi.key_value_store import KEY
from mslaunch.agent.mpi.pmi.pmi_wire import Refused
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from mslaunch.agent.mpi.pmi.pmi_client import Call
    from mslaunch.protocol.mpi import Answer

_PROCESSES = 1 << 16  # that one spawn may ask for
_ERRCODES = 200  # as many are listed: clients have lines of 1,024 bytes, and take no list for zeros
_PORT = 8192  # characters of a name or port that is published


def ask_name(call: Call, what: str, name: str, port: str | None = None, keys: tuple[str, ...] = ()) -> None:
    """Publish, look up or unpublish a name; `keys` are those that the answer has for what was found."""

    def done(answer: Answer) -> None:
        if answer.error or (keys and not answer.blobs):
            call.refuse(_word(answer.error or "missing"))
        else:
            found = answer.blobs[0].decode("utf-8", "surrogateescape") if keys else ""
            call.done(*((key, found) for key in keys))

    if max(len(name), len(port or "")) > _PORT:
        raise Refused("name_too_long")
    fields = {"family": ["pmi"], "from": [call.client.member], "names": [name]}
    if what == "lookup":
        fields["wait"] = []
    blobs = () if port is None else (port.encode("utf-8", "surrogateescape"),)
    call.client.launcher.ask(what, fields, blobs, done)


def ask_spawn(call: Call) -> None:
    """MPI_Comm_spawn and MPI_Comm_spawn_multiple."""
    programs, preput = pmi_wire.programs(call.message)
    total = sum(program.processes for program in programs)
    if total > _PROCESSES:
        raise Refused("too_many_processes")
    fields: dict[str, list[str]] = {
        "family": ["pmi"],
        "from": [call.client.member],
        "count": [str(len(programs))],
        "preput": preput,
    }
    for index, (argv, processes, info) in enumerate(programs):
        wdir = dict(zip(info[::2], info[1::2])).get("wdir", "")
        fields[f"argv.{index}"] = list(argv)
        fields[f"app.{index}"] = [str(processes), wdir]
        fields[f"env.{index}"] = []
        fields[f"info.{index}"] = list(info)

    def done(answer: Answer) -> None:
        codes = ",".join([str(int(bool(answer.error)))] * total)
        pairs = [("errcodes", codes)] if total <= _ERRCODES else []
        if answer.error:
            call.refuse(_word(answer.error), *pairs)
        else:
            call.done(*(("jobid", name) for name in answer.fields.get("world", ())), *pairs)

    call.client.launcher.ask("spawn", fields, (), done)


def _word(error: str) -> str:
    """The word of an answer's error, for a client."""
    word = error.partition(":")[0][:KEY]
    return "".join(char if char.isalnum() and char.isascii() else "_" for char in word) or "refused"
