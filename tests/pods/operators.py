"""What operators give their pods: variables, files, keys and commands, each with its source.

mpi-operator caa3c47 (v2beta1), v0.3.0 (v1); kubeflow/trainer 8c0f505; volcano ed72c7c.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pods import HOME, Container, Pod, Pods, sshd, wait_until

PORT = 2222
#: build/base/Dockerfile: Debian's ssh_config with StrictHostKeyChecking, Port and UserKnownHostsFile changed by sed
SSH_CONFIG = f"""\
Include /etc/ssh/ssh_config.d/*.conf
Host *
    SendEnv LANG LC_*
    HashKnownHosts yes
    GSSAPIAuthentication yes
     StrictHostKeyChecking no
     Port {PORT}
    UserKnownHostsFile /dev/null
"""
#: build/base/sshd_config and Dockerfile; mpiuser's, for a server that is not root
SSHD_CONFIG = f"""\
PidFile {HOME}/sshd.pid
HostKey {HOME}/.ssh/id_rsa
StrictModes no
Port {PORT}
"""
#: the server's of an image without its own port, with a host key that is not made by an entry point here
ROOT_SSHD_CONFIG = "HostKey /root/.ssh/id_rsa\nStrictModes no\nPidFile none\n"
IMAGE = {
    "ssh/ssh_config": SSH_CONFIG,
    "ssh/sshd_config": ROOT_SSHD_CONFIG,
    "mpiuser.sshd_config": SSHD_CONFIG,
}
WITHOUT_DEVICES = {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}


def open_mpi(slots: int = 1) -> dict[str, str]:
    """`ompiEnvVars` of mpi_job_controller.go; `MPIReservedEnvNames` of trainer/pkg/constants."""
    return {
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
        "OMPI_MCA_orte_set_default_slots": str(slots),
    }


def intel(slots: int = 1) -> dict[str, str]:
    """`intelEnvVars` there."""
    return {
        "I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "-o ConnectionAttempts=10",
        "I_MPI_PERHOST": str(slots),
    }


def mpich() -> dict[str, str]:
    """`mpichEnvVars` there."""
    return {"HYDRA_HOST_FILE": "/etc/mpi/hostfile", "HYDRA_LAUNCH_EXTRA_ARGS": "-o ConnectionAttempts=10"}


class Job:
    """The pods of a job, on the first hosts of the cluster: a launcher and workers, and what they mount."""

    def __init__(self, pods: Pods, subdomain: str, names: Sequence[str], key: dict[str, str], **modes: int) -> None:
        self._pods = pods
        self.launcher, *self.workers = (pods.pod(place, name, subdomain) for place, name in enumerate(names, 1))
        self.ssh = pods.volume(f"{subdomain}-ssh").write(key, **modes)
        self.config = pods.volume(f"{subdomain}-config").write({"hostfile": ""})

    def publish(self) -> None:
        """All names are known."""
        self._pods.publish(self.launcher, *self.workers)

    def hostfile(self, *lines: str) -> None:
        """`newConfigMap` of mpi_job_controller.go, `configVolumeItems`."""
        self.config.write({"hostfile": "".join(f"{line}\n" for line in lines)}, 0o444)

    def start_sshd(self, worker: Pod, **how: Any) -> Container:
        """A worker as mpiuser, which listens at port 2222 (pi.yaml); its configuration is not in the home here."""
        command = [sshd(), "-De", "-f", "/etc/mpiuser.sshd_config"]
        return self._worker(worker, command, {f"{HOME}/.ssh": self.ssh.path}, PORT, **how)

    def start_root_sshd(self, worker: Pod) -> Container:
        """A worker as root, which listens at port 22: the command that mpi-operator gives those without one."""
        command = [sshd(), "-De", "-o", f"ListenAddress={worker.address}"]  # the host's own holds another one
        return self._worker(worker, command, {"/root/.ssh": self.ssh.path}, 22, user=0)

    def _worker(self, worker: Pod, command: list[str], mounts: dict[str, Path], port: int, **how: Any) -> Container:
        env = {"K_MPI_JOB_ROLE": "worker"}
        container = self._pods.run(worker, command, env=env, etc=IMAGE, mounts=mounts, **how)
        wait_until(lambda: container.listens(port))
        return container

    def launch(self, *words: object, env: dict[str, str], **how: Any) -> Container:
        """The launcher as mpiuser, with the command and variables of a manifest."""
        mounts = {f"{HOME}/.ssh": self.ssh.path, "/etc/mpi": self.config.path}
        env = {"K_MPI_JOB_ROLE": "launcher", **env}
        return self._pods.run(
            self.launcher, words, **{"env": env, "etc": IMAGE, "mounts": mounts, **how}, image="launcher"
        )

    def launch_as_root(self, *words: object, env: dict[str, str], **how: Any) -> Container:
        """The same as root, in an image with the client's usual port."""
        etc = {"ssh/ssh_config": SSH_CONFIG.replace(f"     Port {PORT}\n", "")}
        mounts = {"/root/.ssh": self.ssh.path, "/etc/mpi": self.config.path}
        return self.launch(*words, env=env, **{"user": 0, "etc": etc, "mounts": mounts, **how})
