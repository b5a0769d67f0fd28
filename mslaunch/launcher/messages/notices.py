"""Messages while a job runs: signals, restarts of single ranks, failed spawns, and new attempts of the whole job."""

from __future__ import annotations

from mslaunch.errors import counted, one_line, printable
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.frameworks.table import service_info
from mslaunch.launcher.messages.failure_text import advice, ending, hung_text, signal_name, spawn_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from mslaunch.datamodel.outcome import Failure
    from mslaunch.datamodel.request import Request
    from mslaunch.errors import LaunchError
    from mslaunch.launcher.rank_names import RankNames
    from mslaunch.protocol.held_devices import Holder

_HOLDERS = 8  # processes that a notice names


def notice_text(kind: str, facts: Mapping[str, Any], names: RankNames, hosts: Sequence[str]) -> str:
    """The text of one kind of notice."""
    if kind == "interrupted":
        what = "killing the ranks" if facts["again"] else "ending the ranks; a second signal kills them"
        return f"{facts['signal']}: {what}"
    if kind == "warned":
        return f"{signal_name(facts['signum'])} sent to the ranks, {facts['seconds']:g} s before --timeout (--warn)"
    if kind == "restart":
        status, delay = facts["status"], facts["delay"]
        where = f"{names.name(facts['rank'])} {ending(status)} on {hosts[facts['node']]}"
        when = f" in {delay:g} s" if delay else ""
        return f"{where}; started again{when}, {facts['number']} of {facts['limit']}"
    if kind == "hung":
        return hung_text(facts["seconds"], facts["file"], facts["missing"])
    if kind == "hung ranks":
        what = hung_text(facts["seconds"], facts["file"], facts["missing"])
        return f"{what}; {names.names(facts['ranks'])} killed, to be started again"
    if kind == "spawn failed":
        return f"{names.name(facts['rank'])} {spawn_text(facts)}"
    if kind == "unexpected library":
        what = f"{names.name(facts['rank'])} has loaded {facts['family']} ({facts['library']}), which was not expected"
        return f"{what}; if it comes up alone, {advice(facts['family'], facts['offered'])}"
    infos = [service_info(number) for number in facts["services"]]
    what = "does not listen" if all(info.listens for info in infos) else "are not ready"
    who = " and ".join(info.title for info in infos)
    return f"{who} {what} after {facts['seconds']:g} s; the ranks are started all the same"


def attempt_text(number: int, attempts: int) -> str:
    """`attempt 2 of 4`."""
    return f"attempt {number} of {attempts}"


def again_text(number: int, attempts: int, failure: Failure, delay: float) -> str:
    """The notice at a failure, before it is known whether enough hosts are left."""
    where = f" on {failure.host}" if failure.host else ""
    pause = f" in {delay:g} s" if delay else ""
    return f"{attempt_text(number, attempts)}: {failure.what}{where}; all ranks are started again{pause}"


def limit_text(number: int, attempts: int) -> str:
    """The detail of a failure after the last attempt that --max-restarts allows."""
    return f"not started again: this was {attempt_text(number, attempts)} (--max-restarts)"


def held_text(holders: Mapping[str, Sequence[Holder]], seconds: float, over: bool) -> str:
    """The notice about devices that are still held, by host; `over`: they were waited for as long as may be."""
    rows = [(host, one) for host, held in holders.items() for one in held]
    named = "; ".join(f"{_holder(one)} on {host}" for host, one in rows[:_HOLDERS])
    more = f"; and {counted(len(rows) - _HOLDERS, 'other')}" if len(rows) > _HOLDERS else ""
    if over:
        return f"after {seconds:g} s (--device-wait) the ranks are started all the same: {named}{more}"
    return f"the ranks wait for at most {seconds:g} s (--device-wait): {named}{more}"


def _holder(one: Holder) -> str:
    who = f"process {one.pid} ({one_line(one.name)}, user {one_line(one.user)})"
    return f"{who} still holds {one_line(one.device)}" if one.device else f"{who} is still ending"


def quarantine_text(host: str) -> str:
    """The notice about a host that is left out though it can be reached."""
    return f"{host} has failed twice within 10 minutes, and is left out while another spare is there"


def not_there_text(path: str) -> str:
    """The notice at the first of several failures."""
    return f"--progress-file {printable(path)}: it is not there, or cannot be read, on the host of mslaunch"


def no_progress_text(path: str, attempts: int, there: bool = True) -> str:
    """The detail of a failure after attempts that did not change --progress-file, or did not make it."""
    what = "has not changed in" if there else "was not there after"
    said = f"not started again: {printable(path)} {what} {counted(attempts, 'attempt')}"
    return f"{said} (--max-no-progress); do not requeue the job"


def no_answer_text(path: str) -> str:
    """The notice about a file system that hangs."""
    return f"--progress-file {printable(path)}: the file system does not answer, so it is not known whether it changes"


def no_host_text(
    request: Request, size: int, again: bool, gone: Mapping[str, LaunchError], room: int, refused: LaunchError | None
) -> list[str]:
    """The hosts that can be reached have no room for `size` ranks; `refused` says why the best choice has none.

    `room` are the slots of these hosts, `gone` the errors of the others; `again`: an attempt came before.
    """
    once_more = " again" if again else ""
    details = [f"not reached{once_more}: {host}: {error.what}" for host, error in gone.items()]
    single, shrinks = len(request.apps) == 1, request.min_ranks > 0 and len(request.apps) == 1
    if refused and room >= (request.min_ranks if shrinks else size):
        return [f"not started{once_more}: {refused.what}", *details]
    what = f"not started{once_more}: no spare host is left, and the others have {counted(room, 'slot')}"
    if shrinks:
        what += f", fewer than --min-ranks {request.min_ranks}"
    elif request.min_ranks:
        what += f" for {counted(size, 'rank')}; --min-ranks is for jobs of one program"
    else:
        what += f" for {counted(size, 'rank')}"
        if single and room:
            what += f"; with --min-ranks {min(room, size - 1)} the job would go on with fewer"
    return [what, *details]
