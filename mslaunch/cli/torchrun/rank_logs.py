"""Where the streams of ranks go, and the files for their exceptions, as torchrun has it.

torch/distributed/elastic/multiprocessing/api.py, `DefaultLogsSpecs`: DIR/ID_xxx/attempt_N/LOCAL_RANK, made even if no
stream is kept, since a rank may write error.json there.  Where one command starts several hosts it is the rank, for the
logs of all lie with the launcher; then ranks only get the name of that file if DIR was named and can be shared.
"""

from __future__ import annotations

import os

from mslaunch.cli.torchrun import readers
from mslaunch.datamodel.request import Request, StreamPolicy
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mslaunch.cli.torchrun.options import TorchrunOptions

_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
_TEMPLATE = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"
_USUAL = "[${role_name}${local_rank}]:"


def logged(request: Request, own: TorchrunOptions, environ: Mapping[str, str], run: str, hosts: bool) -> Request:
    """The request with its logs; `run` is the id of the run, `hosts`: -H names some."""
    if own.logs == os.devnull:
        output = request.output._replace(streams=StreamPolicy(shown=own.shown))
        return request._replace(output=output, rank_variables=(*request.rank_variables, (_ERROR_FILE, "")))
    folder = f"{_plain(run)}_{os.urandom(4).hex()}/attempt_%t/{'%r' if hosts else '%l'}"
    base = own.logs or os.path.join(environ.get("TMPDIR") or "/tmp", f"torchelastic_{os.urandom(8).hex()}")
    streams = StreamPolicy(own.redirects, own.tee, own.shown, folder, made=not own.logs)
    template = own.template or environ.get(_TEMPLATE) or _USUAL
    prepend = readers.prefix(template, own.role) if own.tee else None
    output = request.output._replace(rank_logs=base, streams=streams, prepend=prepend)
    if hosts and not own.logs:
        return request._replace(output=output)
    path = f"{_plain(os.path.abspath(base))}/{folder}/error.json"
    return request._replace(output=output, rank_variables=(*request.rank_variables, (_ERROR_FILE, path)))


def _plain(text: str) -> str:
    return text.replace("%", "%%")
