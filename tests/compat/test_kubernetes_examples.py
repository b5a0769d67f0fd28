"""examples/kubernetes: manifests against the operators' published schemas, their commands, and the image's parts.

`crds.json` has of the operators' CustomResourceDefinitions what the manifests use: types, enumerations, patterns and
what is required (mpi-operator caa3c47, trainer 8c0f505, volcano ed72c7c, ms-operator e361e2b).  Where the whole
definitions are (../shared/crds beside the project, or MSLAUNCH_TEST_CRDS) it is compared with them, and written anew
with --update-golden.  An API server drops fields that a schema does not have, and says nothing; here they are errors.
JobSet's and batch/v1 Job's schemas are those inside of Trainer's.  Not checked: rules in CEL
(x-kubernetes-validations), and what only a cluster knows.
"""

from __future__ import annotations

import copy
import functools
import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

jsonschema = pytest.importorskip("jsonschema")
yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "kubernetes"
CRDS = Path(os.environ.get("MSLAUNCH_TEST_CRDS", ROOT.parent / "shared" / "crds"))
OF_KINDS = {
    ("kubeflow.org/v2beta1", "MPIJob"): "mpijobs.kubeflow.org",
    ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime"): "clustertrainingruntimes.trainer.kubeflow.org",
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): "trainjobs.trainer.kubeflow.org",
    ("batch.volcano.sh/v1alpha1", "Job"): "jobs.batch.volcano.sh",
    ("mindspore.gitee.com/v1", "MSJob"): "msjobs.mindspore.gitee.com",
}
#: within the schema of Trainer's runtime
JOBSET = ["properties", "spec", "properties", "template", "properties", "spec"]
JOB = [*JOBSET, "properties", "replicatedJobs", "items", "properties", "template", "properties", "spec"]
#: of ObjectMeta, as far as anybody writes it; CRDs say only that it is an object
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
METADATA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "namespace": {"type": "string"}, "labels": TEXTS, "annotations": TEXTS},
    "additionalProperties": False,
}
#: core/v1, of which there is no CRD: the fields that the examples use
SERVICE = {
    "type": "object",
    "required": ["selector"],
    "properties": {
        "clusterIP": {"const": "None"},
        "publishNotReadyAddresses": {"type": "boolean"},
        "selector": TEXTS,
    },
    "additionalProperties": False,
}
#: names of replicas are free in the schemas, but not to the operators
REPLICAS = {"mpiReplicaSpecs": ["Launcher", "Worker"], "msReplicaSpecs": ["Scheduler", "PS", "Worker"]}
#: below these, keys are the user's own words
FREE = {"labels", "annotations", "plugins", "limits", "requests", "selector", "nodeSelector"}

MANIFESTS = [
    (path.name, at) for path in sorted(FOLDER.glob("*.yaml")) for at in range(path.read_text().count("\nkind:"))
]
RECORDED = Path(__file__).parent / "crds.json"
#: what of a schema decides whether a manifest is right
DECIDES = ("type", "required", "enum", "pattern", "format", "minimum", "maximum", "minLength", "maxLength", "minItems",
           "maxItems", "anyOf", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string")  # fmt: skip


def manifest(name: str, at: int) -> dict[str, Any]:
    documents: list[dict[str, Any]] = list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))
    return documents[at]


@functools.cache
def published(name: str) -> dict[str, Any]:
    """The recorded part of a definition."""
    schema: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))[name]
    return schema


def whole(name: str) -> dict[str, Any]:
    """The definition as the operator publishes it."""
    with gzip.open(CRDS / f"{name}.yaml.gz") as file:
        definition = yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    (version,) = definition["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def used_of(schema: dict[str, Any], documents: list[Any]) -> dict[str, Any]:
    """A schema without the fields that none of the documents has, and without words for readers."""
    made = {key: schema[key] for key in DECIDES if key in schema}
    if "properties" in schema:
        objects = [one for one in documents if isinstance(one, dict)]
        names = {name for one in objects for name in one} | set(schema.get("required", ()))
        made["properties"] = {
            name: used_of(value, [one[name] for one in objects if name in one])
            for name, value in sorted(schema["properties"].items())
            if name in names
        }
    if isinstance(schema.get("items"), dict):
        made["items"] = used_of(schema["items"], [each for one in documents if isinstance(one, list) for each in one])
    if isinstance(schema.get("additionalProperties"), dict):
        values = [value for one in documents if isinstance(one, dict) for value in one.values()]
        made["additionalProperties"] = used_of(schema["additionalProperties"], values)
    return made


def documents_of(name: str) -> list[Any]:
    """The manifests that a definition is about, and for that of Trainer's runtime what is within it."""
    found: list[Any] = []
    for document in (manifest(*each) for each in MANIFESTS):
        kind = document["apiVersion"], document["kind"]
        if OF_KINDS.get(kind) == name:
            found.append(document)
        elif name.startswith("clustertrainingruntimes.") and kind[1] in ("JobSet", "Job"):
            spec = document["spec"]
            spec = {"replicatedJobs": [{"template": {"spec": spec}}]} if kind[1] == "Job" else spec
            found.append({"spec": {"template": {"spec": spec}}})
    return found


@pytest.mark.skipif(not CRDS.is_dir(), reason=f"NOT TESTED, no schemas of operators: {CRDS}")
def test_what_is_recorded_is_what_operators_publish(golden: Any) -> None:
    known = {name: used_of(whole(name), documents_of(name)) for name in sorted(OF_KINDS.values())}
    golden(json.dumps(known, indent=1, sort_keys=True) + "\n", RECORDED)


@functools.cache
def validator(api: str, kind: str) -> Any:
    """Strict: a field that the schema does not have is an error."""
    if (api, kind) in OF_KINDS:
        schema = strict(published(OF_KINDS[api, kind]))
    else:
        spec: Any = SERVICE
        if kind != "Service":
            spec = published(OF_KINDS["trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime"])
            for key in {"JobSet": JOBSET, "Job": JOB}[kind]:
                spec = spec[key]
            spec = strict(spec)
        schema = {"type": "object", "properties": {"spec": spec}, "required": ["spec"], "additionalProperties": False}
    schema["properties"] |= {"apiVersion": {"const": api}, "kind": {"const": kind}, "metadata": METADATA}
    return jsonschema.Draft7Validator(schema)


def strict(schema: Any) -> Any:
    """A copy in which no object takes fields that are not named; metadata inside of it is ObjectMeta."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    for name, value in (made.get("properties") or {}).items():
        if name == "metadata" and value == {"type": "object"}:
            made["properties"][name] = METADATA
        if name in REPLICAS:
            value["propertyNames"] = {"enum": REPLICAS[name]}
    if made.get("type") == "object" and "properties" in made and not made.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


def errors(document: dict[str, Any]) -> list[str]:
    found = validator(document["apiVersion"], document["kind"]).iter_errors(document)
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in found]


@pytest.mark.parametrize(("name", "at"), MANIFESTS)
def test_a_manifest_is_what_its_operator_takes(name: str, at: int) -> None:
    assert errors(manifest(name, at)) == []


def fields(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield (*path, key)
            if key not in FREE:
                yield from fields(value, (*path, key))
    elif isinstance(document, list):
        for number, value in enumerate(document):
            yield from fields(value, (*path, number))


@pytest.mark.parametrize(("name", "at"), MANIFESTS)
def test_a_typo_in_any_field_is_found(name: str, at: int) -> None:
    document = manifest(name, at)
    paths = [path for path in fields(document) if path[0] not in ("apiVersion", "kind")]
    assert len(paths) > 5
    for path in paths:
        wrong: Any = copy.deepcopy(document)
        place = wrong
        for key in path[:-1]:
            place = place[key]
        place[path[-1][:-1] + "q"] = place.pop(path[-1])
        assert errors(wrong), f"{'.'.join(map(str, path))} may be misspelt"


def test_a_value_of_the_wrong_type_is_found() -> None:
    document = manifest("mpijob.yaml", 0)
    document["spec"]["slotsPerWorker"] = "two"
    (found,) = errors(document)
    assert found.startswith("spec.slotsPerWorker: 'two'")


# --- the commands


def containers(document: Any) -> Iterator[dict[str, Any]]:
    """All that have an image or, as a TrainJob's trainer, a command."""
    if isinstance(document, dict):
        if "command" in document:
            yield document
        for value in document.values():
            yield from containers(value)
    elif isinstance(document, list):
        for value in document:
            yield from containers(value)


def launches(name: str) -> list[list[str]]:
    documents = yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8"))
    commands = [[*one["command"], *one.get("args", ())] for document in documents for one in containers(document)]
    return [words for words in commands if words[0] != "/usr/sbin/sshd"]


KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
MPI = {"OMPI_MCA_orte_keep_fqdn_hostnames": "true", "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10"}
MS = {"MS_SCHED_HOST": "10.96.7.7", "MS_SCHED_PORT": "2222", "MS_WORKER_NUM": "4", "MS_SERVER_NUM": "0"}
#: manifest, which of its launches, what the operator sets there, its /etc/mpi/hostfile, hosts with a rank, in order
PODS = [
    ("mpijob.yaml", 0, {**MPI, "K_MPI_JOB_ROLE": "launcher", "OMPI_MCA_orte_set_default_slots": "2"},
     [f"ring-worker-{at}.ring.default.svc" for at in (0, 1)], ["ring-worker-0"] * 2 + ["ring-worker-1"] * 2),
    ("mpijob-launcher-as-worker.yaml", 0, {**MPI, "K_MPI_JOB_ROLE": "launcher"},
     ["ring-of-two-launcher.ring-of-two.default.svc", "ring-of-two-worker-0.ring-of-two.default.svc"],
     ["ring-of-two-launcher"] * 2 + ["ring-of-two-worker-0"] * 2),
    ("trainjob.yaml", 0, MPI, ["ring-launcher-0-0.ring", "ring-node-0-0.ring"],
     ["ring-launcher-0-0"] * 2 + ["ring-node-0-0"] * 2),
    ("volcano-job.yaml", 0, {"MPI_HOST": "ring-worker-0.ring,ring-worker-1.ring"}, [],
     ["ring-worker-0", "ring-worker-1"]),
    ("msjob.yaml", 0, {**MS, "MS_ROLE": "MS_SCHED", "MS_NODE_ID": "net-scheduler-0"}, [], [os.uname().nodename]),
    ("msjob.yaml", 1, {**MS, "MS_ROLE": "MS_WORKER", "MS_NODE_ID": "net-worker-3"}, [], [os.uname().nodename]),
    ("indexed-job.yaml", 0, {"JOB_COMPLETION_INDEX": "0"}, [],
     [os.uname().nodename.split(".")[0]] * 2 + [f"ring-{at}" for at in (1, 2, 3) for _ in range(2)]),
    ("jobset.yaml", 0, {}, [], [f"ring-worker-0-{at}" for at in range(4) for _ in range(2)]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "which", "environ", "hosts", "places"), PODS)
def test_the_command_of_a_launcher_is_understood(
    name: str, which: int, environ: dict[str, str], hosts: list[str], places: list[str], tmp_path: Path
) -> None:
    """By the command itself, under the variables that the operator sets, up to the map of the ranks."""
    # as the kubelet does it: what is no variable of the container stays as it is
    words = [re.sub(r"\$\((\w+)\)", lambda at: environ.get(at[1], at[0]), word) for word in launches(name)[which]]
    (tmp_path / "bin").mkdir()
    for command in ("mslaunch", "mpirun"):
        script = f'#!/bin/sh\nexec {sys.executable} -m mslaunch --do-not-launch --display-map "$@"\n'
        (tmp_path / "bin" / command).write_text(script)
        (tmp_path / "bin" / command).chmod(0o755)
    if hosts:
        (tmp_path / "hostfile").write_text("".join(f"{host} slots=2\n" for host in hosts))
        environ = {**environ, "OMPI_MCA_orte_default_hostfile": str(tmp_path / "hostfile")}
    path = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env={**KUBERNETES, **environ, **path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"Data for node: (\S+).*|Process rank: (\d+)", done.stdout)
    assert rows, done.stdout
    found, host = [], ""
    for node, rank in rows:
        host = node or host
        if rank:
            found.append(host.split(".")[0])
    assert found == places, done.stdout + done.stderr


def test_every_manifest_with_a_launcher_is_tried() -> None:
    tried = {(name, which) for name, which, *_ in PODS}
    assert tried == {(path.name, at) for path in FOLDER.glob("*.yaml") for at in range(len(launches(path.name)))}


def test_the_lists_of_hosts_on_the_page() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    made = [
        subprocess.run(["sh", "-c", f"printf %s {words}"], capture_output=True, text=True, check=True).stdout
        for words in re.findall(r'^\|.*`-H ("\$\([a-z].*?\)")`', page, re.MULTILINE)
    ]
    of_jobset = ",".join(f"ring-worker-0-{at}.ring:2" for at in range(4))
    assert made == [of_jobset, f"{os.uname().nodename}:2,ring-1.ring:2,ring-2.ring:2,ring-3.ring:2"]


def test_two_ranks_for_each_worker_of_volcano(tmp_path: Path) -> None:
    """The page's line; the svc plugin's file has no slots, and no newline at its end."""
    words = "--mca orte_set_default_slots 2 --hostfile /etc/volcano/worker.host"
    for text in (ROOT / "docs" / "kubernetes.md", FOLDER / "volcano-job.yaml"):
        assert words in text.read_text(encoding="utf-8")
    (tmp_path / "worker.host").write_text("ring-worker-0.ring\nring-worker-1.ring")
    command = [
        sys.executable,
        "-m",
        "mslaunch",
        "--do-not-launch",
        *words.replace("/etc/volcano", str(tmp_path)).split(),
    ]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, "true"], env=env, capture_output=True, text=True, check=True)
    assert re.findall(r"node: (\S+).*Num procs: (\d)", done.stdout) == [("ring-worker-0", "2"), ("ring-worker-1", "2")]


# --- the image


def instructions() -> list[tuple[str, str]]:
    """(instruction, words) of the Dockerfile."""
    text = re.sub(r"^#.*\n", "", (FOLDER / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(line.split()[0], line.split(None, 1)[1]) for line in lines]


def test_the_image_is_built_of_what_is_there() -> None:
    """Nothing is built here; each file that is copied exists, and each command is one of a shell."""
    rows = instructions()
    assert [words.split()[0] for name, words in rows if name == "FROM"] == ["python:3.12-slim"] * 2
    made = {"/wheels"}
    for name, words in rows:
        if name == "COPY":
            options, paths = [], words.split()
            while paths[0].startswith("--"):
                options.append(paths.pop(0))
            for path in paths[:-1]:
                there = path in made if "--from=build" in options else (ROOT / path).exists()
                assert there, words
            made.add(paths[-1])
        if name == "RUN":
            subprocess.run(["sh", "-n", "-c", words], check=True)
    assert [words for name, words in rows if name == "USER"] == ["1000"], "the last stage is not root"
    named = {word for path in FOLDER.glob("*.yaml") for word in re.findall(r"/(?:opt|home)/[\w./]+", path.read_text())}
    assert named - {"/home/mpiuser/.ssh"} <= made, "what manifests name is in the image"


def test_the_image_has_the_shims_that_manifests_use(tmp_path: Path) -> None:
    (words,) = [words for name, words in instructions() if name == "RUN" and "--install-shims" in words]
    command = [word.replace("/usr/local/bin", str(tmp_path)) for word in shlex.split(words)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", *command], env=env, check=True, capture_output=True)
    used = {words[0] for path in FOLDER.glob("*.yaml") for words in launches(path.name)} - {"sh", "mslaunch"}
    assert used <= {path.name for path in tmp_path.iterdir()}
    done = subprocess.run([tmp_path / "mpirun", "--version"], env=env, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("mpirun (Open MPI)")


def test_the_daemon_of_a_worker_takes_its_configuration(tmp_path: Path, need: Any) -> None:
    sshd = need("sshd", "/usr/sbin/sshd")
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-N", "", "-f", tmp_path / "id_rsa"], check=True)
    text = (FOLDER / "sshd_config").read_text(encoding="utf-8")
    assert "HostKey /home/mpiuser/.ssh/id_rsa" in text
    (tmp_path / "config").write_text(text.replace("/home/mpiuser/.ssh", str(tmp_path)))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # what Debian's service makes; sshd asks for it
    done = subprocess.run([sshd, "-T", "-f", tmp_path / "config"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {"port 2222", "permitrootlogin no", "passwordauthentication no", "strictmodes no"} <= set(
        done.stdout.split("\n")
    )


def test_the_client_of_a_launcher_takes_its_configuration(need: Any) -> None:
    command = [need("ssh"), "-G", "-F", FOLDER / "ssh_config", "ring-worker-0.ring"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert {"port 2222", "stricthostkeychecking false", "userknownhostsfile /dev/null"} <= set(done.stdout.split("\n"))
    assert shutil.which("ssh")
