"""The note that ranks get variables of a proxy: those of the launcher's environment, and of -x.

What other hosts have by themselves is known there alone; their ranks get the job's hosts in `no_proxy` as well.
"""

from __future__ import annotations

from mslaunch.datamodel.node_plan import PROXIES
from mslaunch.faststd import TYPE_CHECKING
from mslaunch.plan.rank_variables import exported, forwarded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mslaunch.datamodel.request import Request


def proxy_text(request: Request, environ: Mapping[str, str], here: bool) -> str:
    """One line; "" if no rank gets a proxy from here.  `here`: some run on this host, and inherit `environ`."""
    given = dict(environ) if here else {}
    for app in request.apps:
        words = (*forwarded(app, environ, request.scrub), *exported(app, environ))
        given.update((name, value) for name, _, value in (word.partition("=") for word in words))
    names = sorted(name for name, value in given.items() if value and name.lower() in PROXIES)
    if not names or "*" in (given.get("no_proxy"), given.get("NO_PROXY")):
        return ""
    return f"ranks have {', '.join(names)}: the job's own hosts are added to their no_proxy and NO_PROXY"
