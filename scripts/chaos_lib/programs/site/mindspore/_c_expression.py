"""Stands for MindSpore's extension: a scheduler that listens once the cell lets it, and then does nothing."""

import os
import socket


class MSContext:
    """What the stub of the scheduler asks for."""

    get_instance = classmethod(lambda cls: cls())

    def set_device_target_inner(self, name):
        pass


def init_cluster():
    run = os.environ["CHAOS_RUN"]
    with open("/proc/self/comm", "w") as file:
        file.write("chaos-sched")
    if os.path.exists(os.path.join(run, "hold.services")):
        os.close(os.open(os.path.join(run, "held.services"), os.O_CREAT | os.O_WRONLY))
        try:
            with open(os.path.join(run, "hold.services")) as file:
                file.read()
        except FileNotFoundError:  # the cell has let it go meanwhile
            pass
    with socket.create_server(("", int(os.environ["MS_SCHED_PORT"]))) as server:
        kept = []
        while True:
            kept.append(server.accept())
