"""What --fold and --show-ranks cannot do, refused before anything starts."""

from __future__ import annotations

from mslaunch.errors import UsageError
from mslaunch.faststd import TYPE_CHECKING

if TYPE_CHECKING:
    from mslaunch.datamodel.request import OutputPolicy, Request


def check_output(request: Request, size: int) -> None:
    """Raises `UsageError`; `size` is the number of ranks that this launcher starts."""
    policy, share = request.output, request.cluster.share
    if policy.fold:
        given = _not_with_fold(policy)
        if given:
            what = f"it cannot be combined with {given}, because a line may stand for several ranks"
            raise UsageError(what, "--fold", "leave one of them out; --output-filename keeps the lines of each rank")
    whole = share.size if share and share.first is not None else size
    if policy.shown and not policy.keep and max(policy.shown) >= whole:  # msrun's workers have a note of their own
        what = f"there is no rank {max(policy.shown)} among {whole}"
        raise UsageError(what, "--show-ranks", "ranks are counted from 0")


def _not_with_fold(policy: OutputPolicy) -> str:
    """The option that also has a word on each line, or takes the lines elsewhere."""
    if policy.streams and policy.streams.tee:
        return "--tee"
    if policy.as_xml:
        return "--xml"
    if policy.timestamp:
        return "time stamps"
    if policy.xterm:
        return "--xterm"
    return "tags or prefixes" if policy.has_prefix else ""
