"""Equal lines of several ranks shown once, with the ranks that printed them: --fold.

    [0-7] epoch 1
    [0-6] loss 0.5
    [7] loss nan

What ranks have printed waits for a moment as a list of *segments*: lines that the same ranks have printed one after
another.  A line of a rank joins the first equal one behind what the rank has printed before, so each rank's lines stay
in order; a line that has no equal goes to the end of the list.  If a later line of the rank then joins a segment before
it, it is moved in front of that segment, which is why greetings that differ do not keep the lines after them apart.

A segment is shown when all ranks have joined it, or none has for `WINDOW` seconds, and at the latest after `LONGEST`.
Lines that no other rank has joined wait `WINDOW` seconds.
"""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING
from mslaunch.launcher.stdio.line_blocks import BlockSplitter
from mslaunch.plan.number_ranges import ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mslaunch.launcher.rank_names import RankNames
    from mslaunch.launcher.stdio.terminal import OutputFd
    from mslaunch.runtime.loop import Loop, Timer

WINDOW = 0.1  #: seconds within which equal lines of ranks are one
LONGEST = 1.0  #: seconds that a line may wait while more and more ranks print it
TICK = 0.02  #: seconds between two looks at what waits
MOST, MOST_SEGMENTS = 1 << 23, 1 << 14  #: bytes and segments that wait; of more, the first half is shown
_LOOKS = 1 << 17  # lines that are compared between two ticks; beyond, lines are taken for new ones
_PIECES = 1 << 10  # lines of a rank alone that are put together in one segment
_LINE, _MEMBER = 64, 8  # bytes of memory that a line and a rank of a segment cost besides
_LABELS = 1 << 8  # prefixes that are remembered


class _Rank:
    """Where a rank is in the list of what waits."""

    __slots__ = ("alone", "anchor")

    def __init__(self) -> None:
        self.anchor: Segment | None = None  # the last one with a fixed place that it has printed; None: it was shown
        self.alone: list[Segment] = []  # those behind it, which no other rank has joined


class Segment:
    """Lines that the same ranks have printed one after another on one stream; `owner`: no other rank has joined."""

    __slots__ = ("after", "before", "kind", "lines", "owner", "ranks", "since", "touched")

    def __init__(self, kind: int, lines: list[bytes], ranks: list[int], since: float, owner: _Rank | None) -> None:
        self.kind = kind
        self.lines = lines
        self.ranks = ranks
        self.since = self.touched = since
        self.owner = owner
        self.before = self.after = self

    def insert(self, other: Segment) -> None:
        """Put this one, which is in no list, before `other`."""
        self.before, self.after = other.before, other
        other.before.after = other.before = self

    def remove(self) -> None:
        """Take it out of its list."""
        self.before.after, self.after.before = self.after, self.before

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return _size(self.lines) + _MEMBER * len(self.ranks)


class FoldedLines:
    """The lines that wait for one device; `now()` is the time in seconds.

    `show(kind, ranks, lines)` shows lines that all of these ranks have printed; of a block with several lines, each
    gets the prefix.  `size` is the number of ranks that may print.
    """

    def __init__(
        self, now: Callable[[], float], show: Callable[[int, Sequence[int], list[bytes]], None], size: int
    ) -> None:
        self.pending = 0  #: bytes that wait
        self._now = now
        self._show = show
        self._size = size
        self._end = Segment(0, [], [], 0.0, None)  # the list is a ring, in which this one is both ends
        self._count = 0  # segments
        self._ranks: dict[int, _Rank] = {}
        self._known: set[bytes] = set()  # the lines that wait, and some that have waited
        self._known_size = 0  # bytes
        self._looks = _LOOKS

    def __iter__(self) -> Iterator[Segment]:
        segment = self._end.after
        while segment is not self._end:
            yield segment
            segment = segment.after

    @property
    def waits(self) -> bool:
        """Whether anything does."""
        return self._end.after is not self._end

    # --- what comes

    def add(self, kind: int, rank: int, lines: Sequence[bytes], since: float | None = None) -> None:
        """A rank has printed `lines`, at `since`."""
        lines = list(lines)
        now = self._now() if since is None else since
        state = self._ranks.get(rank)
        if state is None:
            state = self._ranks[rank] = _Rank()
        at = 0
        while at < len(lines):
            found = self._find(state, kind, lines[at])
            if found:
                at += self._join(state, rank, found, lines, at)
                continue
            end = at + 1
            if not at and self._known.isdisjoint(lines):
                end = len(lines)
            while end < len(lines) and lines[end] not in self._known:
                end += 1
            self._append(state, kind, rank, lines[at:end], now)
            at = end
        if self.pending > MOST or self._count > MOST_SEGMENTS:
            self._make_room()
        elif self._known_size > 2 * MOST:
            self._remember()

    def _find(self, state: _Rank, kind: int, line: bytes) -> tuple[Segment, int, int] | None:
        """The first segment with `line` that the rank may join; the line in it; how many of `alone` are before it."""
        if line not in self._known:
            return None
        segment = state.anchor.after if state.anchor else self._end.after
        passed = 0
        while segment is not self._end and self._looks > 0:
            if segment.owner is state:
                passed += 1
            elif segment.kind == kind and line in segment.lines:
                return segment, segment.lines.index(line), passed
            self._looks -= len(segment.lines)
            segment = segment.after
        return None

    def _join(self, state: _Rank, rank: int, found: tuple[Segment, int, int], lines: list[bytes], at: int) -> int:
        """The rank has printed what `found` has, too; returns how many of `lines`, from `at` on, these are."""
        segment, offset, passed = found
        if offset:
            segment = self._split(segment, offset)
        count = _alike(segment.lines, lines, at)
        if count < len(segment.lines):
            self._split(segment, count)
        if segment.owner:
            self._settle(segment.owner, segment)
        segment.ranks.append(rank)
        self.pending += _MEMBER
        segment.touched = self._now()
        for other in state.alone[passed:]:
            other.remove()
            other.insert(segment)
        for other in state.alone:
            other.owner = None
        state.alone = []
        state.anchor = segment
        return count

    def _settle(self, owner: _Rank, segment: Segment) -> None:
        """The place of `segment` is fixed, and so are those of its owner's segments before it."""
        at = owner.alone.index(segment)
        for other in owner.alone[: at + 1]:
            other.owner = None
        owner.anchor = segment
        owner.alone = owner.alone[at + 1 :]

    def _split(self, segment: Segment, count: int) -> Segment:
        """Cut a segment behind `count` lines; returns the second part."""
        rest = Segment(segment.kind, segment.lines[count:], list(segment.ranks), segment.since, segment.owner)
        rest.touched = segment.touched
        del segment.lines[count:]
        rest.insert(segment.after)
        self._count += 1
        self.pending += _MEMBER * len(rest.ranks)
        for rank in rest.ranks:
            if self._ranks[rank].anchor is segment:
                self._ranks[rank].anchor = rest
        if rest.owner:
            rest.owner.alone.insert(rest.owner.alone.index(segment) + 1, rest)
        return rest

    def _append(self, state: _Rank, kind: int, rank: int, lines: list[bytes], now: float) -> None:
        """Lines that no other rank has printed."""
        last, size = self._end.before, _size(lines)
        if last.owner is state and last.kind == kind and now - last.since < TICK and len(last.lines) < _PIECES:
            last.lines += lines
        else:
            if state.alone:  # what a rank has printed later is not due before
                now = max(now, state.alone[-1].since)
            segment = Segment(kind, lines, [rank], now, state)
            segment.insert(self._end)
            state.alone.append(segment)
            self._count += 1
            self.pending += _MEMBER
        self._known.update(lines)
        self.pending += size
        self._known_size += size

    # --- what goes

    def flush(self, everything: bool = False) -> bool:
        """Show what is due; returns whether something still waits."""
        now, segments = self._now(), list(self)
        due = segments if everything else [segment for segment in segments if self._is_due(segment, now)]
        # what stands before a segment with a fixed place goes with it; a lone one only needs what its rank has printed
        fixed = {segment.owner.anchor if segment.owner else segment for segment in due}
        last = max((at for at, segment in enumerate(segments) if segment in fixed), default=-1) if due else -1
        shown = segments[: last + 1]
        beyond = set(due).difference(shown)
        self._take(shown + [segment for segment in segments[last + 1 :] if segment in beyond])
        self._looks = _LOOKS
        if not self.waits:
            self._remember()
        return self.waits

    def _is_due(self, segment: Segment, now: float) -> bool:
        if len(segment.ranks) >= self._size or now - segment.since >= LONGEST:
            return True
        return now - segment.touched >= WINDOW

    def _make_room(self) -> None:
        """Show the first of what waits, so that half as much is left."""
        segments: list[Segment] = []
        size = 0
        for segment in self:
            if size * 2 > self.pending and len(segments) * 2 > self._count:
                break
            segments.append(segment)
            size += segment.size
        self._take(segments)
        self._remember()

    def _remember(self) -> None:
        """Know the lines that wait, and no others."""
        self._known = set().union(*(segment.lines for segment in self))
        self._known_size = self.pending

    def _take(self, segments: Sequence[Segment]) -> None:
        """Show segments, and forget them."""
        for segment in segments:
            segment.remove()
            self._count -= 1
            self.pending -= segment.size
            if segment.owner:
                segment.owner.alone.remove(segment)
            for rank in segment.ranks:
                if self._ranks[rank].anchor is segment:
                    self._ranks[rank].anchor = None
            self._show(segment.kind, sorted(segment.ranks), segment.lines)


def _size(lines: Sequence[bytes]) -> int:
    return sum(map(len, lines)) + _LINE * len(lines)


def _alike(one: list[bytes], other: list[bytes], at: int) -> int:
    """How many lines at the beginning of `one` are those of `other` from `at` on."""
    low, high = 0, min(len(one), len(other) - at)
    if one[:high] == other[at : at + high]:
        return high
    while high - low > 1:  # `low` are equal, `high` are not
        middle = (low + high) // 2
        if one[low:middle] == other[at + low : at + middle]:
            low = middle
        else:
            high = middle
    return low


class FoldedOutput:
    """What ranks print, folded, on the devices of the streams; a timer runs while something waits."""

    def __init__(self, loop: Loop, devices: Mapping[int, OutputFd], names: RankNames, size: int) -> None:
        self._loop = loop
        self._devices = dict(devices)
        self._names = names
        self._splitter = BlockSplitter(loop.now)
        one = {device: FoldedLines(loop.now, self._show, size) for device in devices.values()}
        self._lines = {kind: one[device] for kind, device in devices.items()}
        self._shown: list[tuple[int, bytes]] = []
        self._labels: dict[tuple[int, ...], bytes] = {}
        self._timer: Timer | None = None
        self._late = False  # the last tick was, and nothing was shown

    def feed(self, kind: int, rank: int, data: bytes) -> None:
        """A rank has printed `data`; b"" ends the stream."""
        if kind not in self._devices:
            return
        blocks = self._splitter.feed(kind, rank, data)
        if blocks:
            self._lines[kind].add(kind, rank, blocks)
            self._send()
        if self._timer is None and (self._splitter.waits or self._lines[kind].waits):
            self._timer = self._loop.after(TICK, self._tick)

    def _tick(self) -> None:
        assert self._timer
        self._late = not self._late and self._loop.now() - self._timer.when > TICK
        if self._late:  # the launcher had no processor: what has come meanwhile may be equal to what waits
            self._timer = self._loop.after(TICK / 10, self._tick)
            return
        for kind, rank, since, blocks in self._splitter.overdue():
            if kind in self._lines:
                self._lines[kind].add(kind, rank, blocks, since)
        waiting = [lines.flush() for lines in dict.fromkeys(self._lines.values())]
        self._timer = self._loop.after(TICK, self._tick) if any(waiting) or self._splitter.waits else None
        self._send()

    def _show(self, kind: int, ranks: Sequence[int], lines: list[bytes]) -> None:
        key = tuple(ranks)
        prefix = self._labels.get(key)
        if prefix is None:
            if len(self._labels) >= _LABELS:
                self._labels.clear()
            prefix = self._labels[key] = self._label(key)
        text = b"\n".join(lines).replace(b"\n", b"\n" + prefix)
        self._shown.append((kind, b"".join((prefix, text, b"\n"))))

    def _label(self, ranks: Sequence[int]) -> bytes:
        """`[0-6,9] `; of ranks that were spawned `[0-3 of world 2] `."""
        worlds: dict[int, list[int]] = {}
        for rank in ranks:
            number, own = self._names.of(rank)
            worlds.setdefault(number, []).append(own)
        parts = [ranges(own) + (f" of world {number}" if number > 1 else "") for number, own in worlds.items()]
        return f"[{'; '.join(parts)}] ".encode("ascii")

    def _send(self) -> None:
        """Write what has been shown, in few pieces."""
        shown, self._shown = self._shown, []
        while shown:
            kind = shown[0][0]
            end = next((at for at, (other, _) in enumerate(shown) if other != kind), len(shown))
            if kind in self._devices:
                self._devices[kind].send(b"".join(data for _, data in shown[:end]))
            shown = shown[end:]

    def drop(self, device: OutputFd) -> None:
        """Nothing more is shown on `device`."""
        for kind in [kind for kind, other in self._devices.items() if other is device]:
            del self._devices[kind], self._lines[kind]

    def finish(self) -> None:
        """Show all that waits: no more will come."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        for kind, rank in self._splitter.unfinished():
            if kind in self._lines:
                self._lines[kind].add(kind, rank, self._splitter.feed(kind, rank, b""))
        for lines in dict.fromkeys(self._lines.values()):
            lines.flush(everything=True)
        self._send()
