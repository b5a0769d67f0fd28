"""The Python API: `launch(argv, np=4)` does what the command does, and returns an `Outcome`; `Launch` tells events.

It may be called from any thread; signals are handled only in the main one.  In a program with threads the local agent
is a new interpreter, because forking such a program is not safe.
"""

from __future__ import annotations

import os
import time

from mslaunch.datamodel.outcome import Outcome
from mslaunch.datamodel.request import AppContext, Caller, OutputPolicy, Request
from mslaunch.errors import LaunchError, UsageError
from mslaunch.faststd import TYPE_CHECKING, NamedTuple, partial
from mslaunch.launcher.monitoring.launch_events import EventSource, JobEndEvent, LineEvent, MessageEvent, line_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from mslaunch.launcher.monitoring.launch_events import LaunchEvent


class LaunchArguments(NamedTuple):
    """What `launch` and `Launch` are given beside the program, as `launch` describes it."""

    np: int | None = None
    hosts: str | Sequence[str] = ()
    hostfile: str | None = None
    env: Mapping[str, str] | None = None
    wdir: str | None = None
    output: str | None = None
    merge: bool = False
    timeout: float | None = None
    options: Sequence[str] = ()
    environ: Mapping[str, str] | None = None


def launch(
    argv: Sequence[str | os.PathLike[str]],
    *,
    np: int | None = None,
    hosts: str | Sequence[str] = (),
    hostfile: str | None = None,
    env: Mapping[str, str] | None = None,
    wdir: str | None = None,
    output: str | None = None,
    merge: bool = False,
    timeout: float | None = None,
    options: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Outcome:
    """Run `argv` as the ranks of a job; returns when the last one has ended.

    `np` ranks on `hosts` ("a:2,b:2", or a list of such) or `hostfile`; `env` as with `-x`; `output` is the directory of
    `--output-filename` (nothing is shown on the terminal then), `merge` joins stderr to stdout; `timeout` is in
    seconds.  `options` are further words of the command line, such as ["--map-by", "node"].  `environ` replaces
    os.environ where options are read from the environment.  Ranks read no standard input unless `options` says so.

    Raises `LaunchError` for errors before ranks are started, in options, hosts, connections or files.  Later events are
    in the outcome: a rank that fails or cannot be started, and Ctrl-C ("ended by SIGINT").  With `options` like
    ["--restart", "group"], `attempts` has those that failed before, and `restarts` what was started again alone.
    """
    given = LaunchArguments(np, hosts, hostfile, env, wdir, output, merge, timeout, options, environ)
    request, surroundings = _understood(argv, given)
    return _run(request, Caller(surroundings, os.getcwd(), signals=_in_main_thread()))


_IN_A_ROW = 32  # events that are given in asyncio before its other tasks run


async def _others_run() -> None:
    """Let other tasks run."""
    import asyncio

    await asyncio.sleep(0)


def _new_lock() -> Any:
    import threading

    return threading.Lock()


class Launch:
    """A launch that goes on while its events are read, one after the other, by `for`, `async for` or `wait`.

    It begins when it is entered (`with`, `async with`) or first read, in a thread of its own.  Any thread may use it:
    each event goes to one of those that read.  In asyncio one task reads.  Leaving the block early ends the job, and so
    does dropping the object.  Ranks wait while nobody reads what they print.
    """

    def __init__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        on_line: Callable[[LineEvent], None] | None = None,
        discard: bool = False,
        **arguments: Any,
    ) -> None:
        """`arguments` are those of `launch`.  `on_line` gets the lines of ranks instead of the reader; with `discard`
        nobody does.  With `output` they are in files, and are no events.  Raises `LaunchError` for wrong arguments.
        """
        self._word = os.urandom(16).hex()
        request, environ = _understood(argv, LaunchArguments(**arguments))
        if request.backend:
            raise UsageError("an installed Open MPI tells no events", "--backend", "use launch()")
        policy = request.output
        if policy.has_prefix or policy.as_xml or policy.fold:
            what = "lines come with the rank and the stream that they belong to"
            raise UsageError(what, "Launch", "leave out options that put something before them")
        if discard:
            policy = policy._replace(shown=())
        elif policy.copy:
            policy = policy._replace(prepend=line_prefix(self._word))
        self._request = request._replace(output=policy)
        self._environ = environ
        self._on_line = on_line
        self._handles_lines = on_line is not None
        self._in_a_row = 0  # events for which nothing had to be waited for
        self._source: EventSource | None = None
        self._starting = _new_lock()
        self._cancelled = False
        self.outcome: Outcome | None = None  #: once it has ended; None as well if it was refused

    def start(self) -> None:
        """Begin, unless it has begun."""
        with self._starting:
            if self._source is None:
                import weakref

                self._source = EventSource(partial(_run, self._request), self._environ, os.getcwd(), self._word)
                weakref.finalize(self, self._source.abandon).atexit = False
                if self._cancelled:
                    self._source.cancel()

    def cancel(self) -> None:
        """End the job, as SIGTERM to the launcher would; a second time without grace.  From any thread."""
        with self._starting:
            self._cancelled = True
            if self._source:
                self._source.cancel()

    @property
    def running(self) -> bool:
        """It has begun, and its end was not read yet."""
        return self._source is not None and not self._source.told

    def _next(self, seconds: float | None) -> LaunchEvent | None:
        """What can be read within so many seconds.  Raises `LaunchError` if nothing was started, or StopIteration."""
        self.start()
        assert self._source
        return self._taken(self._source.next_event(seconds))

    def _taken(self, event: LaunchEvent | None) -> LaunchEvent | None:
        """An event, unless it is for `on_line`."""
        if isinstance(event, JobEndEvent):
            self.outcome = event.outcome
        return self._handled(event) if self._handles_lines and isinstance(event, LineEvent) else event

    def _handled(self, event: LineEvent) -> MessageEvent | None:
        """A line for the function that gets them; one that fails gets no more, and the job goes on."""
        try:
            if self._on_line:
                self._on_line(event)
        except BaseException as error:
            self._on_line = None
            if not isinstance(error, Exception):
                raise
            return MessageEvent(f"on_line has failed and gets no more lines: {error!r}")
        return None

    def wait(self, timeout: float | None = None) -> Outcome:
        """Read to the end.  Raises `LaunchError` if nothing was started, and TimeoutError; the job then goes on."""
        self.start()
        assert self._source
        limit = None if timeout is None else time.monotonic() + timeout
        while self.running:
            left = None if limit is None else limit - time.monotonic()
            if left is not None and left < 0 and not self._source.ended:
                raise TimeoutError(f"the job still runs after {timeout:g} s")
            try:
                self._next(left)
            except StopIteration:
                break
        return self._source.outcome()

    # --- for, with

    def __iter__(self) -> Launch:
        self.start()
        return self

    def __next__(self) -> LaunchEvent:
        while (event := self._next(None)) is None:
            pass
        return event

    def __enter__(self) -> Launch:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        interrupted: KeyboardInterrupt | None = None
        if self.running:
            self.cancel()
        while self.running:
            try:
                self.wait()
            except LaunchError:  # it was ended before anything was started
                pass
            except KeyboardInterrupt as error:
                self.cancel()  # again, so without grace
                interrupted = error
        if interrupted:
            raise interrupted

    # --- the same in asyncio

    def __aiter__(self) -> Launch:
        self.start()
        return self

    async def __anext__(self) -> LaunchEvent:
        self.start()
        assert self._source
        while True:
            self._in_a_row += 1
            if self._in_a_row >= _IN_A_ROW:  # let other tasks run even while ranks print without a pause
                self._in_a_row = 0
                await _others_run()
            event = self._taken(await self._source.awaited())
            if event is not None:
                return event

    async def __aenter__(self) -> Launch:
        self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self.running:
            self.cancel()
            await _until_read(self)


async def _until_read(job: Launch) -> None:
    """Read to the end; who cancels the task meanwhile ends the job without grace, and is obeyed afterwards."""
    import asyncio

    async def read() -> None:
        try:
            async for _ in job:
                pass
        except LaunchError:  # it was ended before anything was started
            pass

    cancelled: BaseException | None = None
    reading = asyncio.ensure_future(read())
    while not reading.done():
        try:
            await asyncio.shield(reading)
        except asyncio.CancelledError as error:
            cancelled = error
            job.cancel()
    if cancelled:
        raise cancelled


def _run(request: Request, caller: Caller) -> Outcome:
    from mslaunch.launcher.launch import run

    if request.backend:
        from mslaunch.backends.backend_table import run
    return run(request, caller)


def _understood(argv: Sequence[str | os.PathLike[str]], given: LaunchArguments) -> tuple[Request, Mapping[str, str]]:
    """The request that these arguments make, and the environment."""
    from mslaunch.cli.main import in_pod, parse
    from mslaunch.cli.parser.options import Show
    from mslaunch.host.files import read_text

    _check_types(argv, given)
    surroundings = os.environ if given.environ is None else given.environ
    words = [os.fspath(word) for word in argv] or [""]
    try:
        request = parse(["--stdin", "none", *given.options, "--", *words], surroundings, read_text, pods=False)
    except Show:
        raise UsageError("it prints something instead of starting a job", "launch", "type it as a command") from None
    if request.check:
        raise UsageError("it starts no job", "--check", "type it as a command")
    if not argv:
        raise UsageError("no program was given", "launch", 'for example: launch(["python", "net.py"], np=4)')
    if given.timeout is not None:
        request = request._replace(timeout=given.timeout, timeout_from="--timeout")
    output = _kept(request.output, given.output, given.merge)
    request = in_pod(request._replace(apps=(_app(request.apps[0], given),), output=output), surroundings)
    if request.detach:
        raise UsageError("launch() stays with the job until it has ended", "--detach", "start the command instead")
    return request, surroundings


def _check_types(argv: Any, given: Any) -> None:
    """Refuse wrong types: a str would be taken for a sequence of words."""
    np, timeout = given.np, given.timeout
    for name, words in (("argv", argv), ("options", given.options)):
        if isinstance(words, str):
            raise UsageError(f"{name} is the string {words!r}", "launch", f"a list of words, such as {words.split()}")
    wrong = [word for word in argv if not isinstance(word, (str, os.PathLike))]
    if wrong:
        raise UsageError(f"{wrong[0]!r} in argv is not a string", "launch", f"write {str(wrong[0])!r}")
    if np is not None and not isinstance(np, int):
        raise UsageError(f"np is {np!r}", "launch", "a whole number; None means as many as there are slots")
    if timeout is not None and not isinstance(timeout, (int, float)):
        raise UsageError(f"timeout is {timeout!r}", "launch", "a number of seconds; None means no limit")
    for name, value in (given.env or {}).items():
        if not (isinstance(name, str) and isinstance(value, str)):
            what = f"{name!r}: {value!r} in env is not a string"
            raise UsageError(what, "launch", f"write {str(name)!r}: {str(value)!r}")
        if not name or "=" in name or "\0" in name + value:
            raise UsageError(f"{name!r} in env cannot be a variable", "launch", "a name without =, and no null byte")


def _app(app: AppContext, given: LaunchArguments) -> AppContext:
    if given.np is not None and given.np < 1:
        raise UsageError(f"np is {given.np}", "launch", "at least 1; None means as many as there are slots")
    hosts = [given.hosts] if isinstance(given.hosts, str) else given.hosts
    fields: dict[str, Any] = {
        "np": given.np,
        "hosts": tuple(h for h in hosts if h) or None,
        "hostfile": given.hostfile,
        "wdir": given.wdir,
    }
    chosen: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    return app._replace(env=(*app.env, *(given.env or {}).items()), **chosen)


def _kept(policy: OutputPolicy, directory: str | None, merge: bool) -> OutputPolicy:
    policy = policy._replace(merge=merge or policy.merge)
    return policy if directory is None else policy._replace(directory=directory, copy=False)


def _in_main_thread() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()


__all__ = ["Launch", "Outcome", "Request", "launch"]
