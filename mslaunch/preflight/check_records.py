"""What --check knows of hosts and links, and what it has found: records."""

from __future__ import annotations

from mslaunch.faststd import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mslaunch.datamodel.jobmap import Node
    from mslaunch.errors import LaunchError
    from mslaunch.protocol.check_messages import HostFacts, LinkFacts, ProgramFacts


class HostReport(NamedTuple):
    """One host of the launch."""

    node: Node
    ranks: int = 0  # that it would get
    ports: tuple[int, ...] = ()  # that must be free there
    error: LaunchError | None = None  # why it could not be reached or used
    facts: HostFacts | None = None
    offset: float = 0.0  # seconds that its clock is ahead of ours
    doubt: float = 0.0  # by which that may be wrong
    programs: tuple[ProgramFacts, ...] = ()
    unwell: LaunchError | None = None  # why --health-check failed

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.node.name


class LinkReport(NamedTuple):
    """A measurement from one host to another."""

    source: str
    target: str
    facts: LinkFacts


class Finding(NamedTuple):
    """Something that is wrong, or different from other hosts."""

    hosts: tuple[str, ...]  # names of nodes; (): the launch as a whole
    check: str  # a word: clock, program, disk …
    what: str  # a clause about the hosts
    repair: tuple[str, ...]  # commands, or what else is to be done


def on_host(node: Node, command: str) -> str:
    """A command line that runs a command on a node."""
    if node.local:
        return command
    import shlex

    words = ["ssh", *(["-p", str(node.port)] if node.port else ())]
    words.append(f"{node.user}@{node.called}" if node.user else node.called)
    return f"{shlex.join(words)} {_quoted(command)}"


def copy_between(source: Node, path: str, target: Node, place: str) -> str:
    """A command line that copies a file of one node to a place on another, by way of this host."""
    import shlex

    remote = [node for node in (source, target) if not node.local]
    ports = {node.port for node in remote}
    urls = len(ports) > 1  # scp takes one port for all, or one in each address
    port = ports.pop() if len(ports) == 1 else None
    words = ["scp", "-p", *(["-3"] if len(remote) > 1 else ()), *(["-P", str(port)] if port else ())]
    return shlex.join([*words, _at(source, path, urls), _at(target, place, urls)])


def copy_to(node: Node, path: str) -> str:
    """A command line that copies a file of this host to the same place on a node."""
    return copy_between(node._replace(local=True), path, node, path)


def _at(node: Node, path: str, urls: bool) -> str:
    """A file as scp names it."""
    if node.local:
        return path
    host = f"[{node.called}]" if ":" in node.called else node.called
    host = f"{node.user}@{host}" if node.user else host
    return f"scp://{host}{f':{node.port}' if node.port else ''}/{path}" if urls else f"{host}:{path}"


def in_shell(*words: str) -> str:
    """A command with words of a host: nothing in them is more than a part of a word to a shell."""
    import shlex

    return shlex.join(words)


def _quoted(command: str) -> str:
    """A command as one argument; with the quotation marks that are read best."""
    import shlex

    if "'" in command and not any(mark in command for mark in '"$`\\!'):
        return f'"{command}"'
    return shlex.quote(command)
