"""Shims: links that take on a dialect, made and used as a user does, with and without the console script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from launching import ROOT, environment

from mslaunch.cli import dialects, shims
from mslaunch.errors import LaunchError

CONSOLE = "#!{}\nimport sys\nfrom mslaunch.__main__ import main\nsys.exit(main())\n"  # as pip writes it


def call(words, cwd, code=0, **env):
    done = subprocess.run(
        list(map(str, words)), cwd=cwd, env=environment(**env), stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done.stdout if not code else done.stderr


@pytest.fixture(params=["console script", "python -m"])
def install(request, tmp_path):
    """`install(words)` runs --install-shims with them; returns what it says, or what it refuses if `code` is not 0."""
    if request.param == "python -m":
        command = [sys.executable, "-m", "mslaunch"]
    else:
        script = tmp_path / "venv" / "mslaunch"
        script.parent.mkdir()
        script.write_text(CONSOLE.format(sys.executable))
        script.chmod(0o755)
        command = [script]
    return lambda *words, code=0: call([*command, "--install-shims", *words], tmp_path, code)


def test_the_usual_names_are_made_and_work(install, tmp_path):
    said = install("a dir/shims")
    made = tmp_path / "a dir" / "shims"
    assert {path.name for path in made.iterdir()} - {"mslaunch"} == set(shims.DEFAULT)
    assert all((made / name).is_symlink() for name in shims.DEFAULT)
    assert f"export PATH='{made}':$PATH" in said
    env = {"PATH": f"{made}:{os.environ['PATH']}"}
    if (made / "mslaunch").exists():  # the script finds the package by itself, wherever it is
        env["PYTHONPATH"] = ""
    assert "in the dialect of msrun" in call(["msrun", "--version"], tmp_path, **env)
    assert "in the dialect of torchrun" in call(["torchrun", "--version"], tmp_path, **env)
    for name in set(shims.DEFAULT) - {"msrun", "torchrun"}:
        said = call([name, "-n", "2", "printenv", "OMPI_COMM_WORLD_RANK"], tmp_path, **env)
        assert sorted(said.split()) == ["0", "1"]
    assert sorted(call(["mpiexec.hydra", "-l", "-n", "2", "echo", "x"], tmp_path, **env).splitlines()) == [
        "[0] x",
        "[1] x",
    ]
    assert call(["mpirun", "--version"], tmp_path, **env).startswith("mpirun (Open MPI) 4.1")
    assert "HYDRA build details" in call(["mpiexec.hydra", "--version"], tmp_path, **env)


def test_messages_begin_with_our_name_whatever_the_command_is_called(install, tmp_path):
    install("shims", "mpirun", "mpiexec.hydra", "msrun", "orterun")
    for name in ("mpirun", "mpiexec.hydra", "msrun", "orterun"):
        assert call([tmp_path / "shims" / name, "--foo"], tmp_path, code=1).startswith("mslaunch: --foo: ")


def test_mpiexec_is_open_mpi_s_unless_asked(install, tmp_path):
    mpiexec = tmp_path / "shims" / "mpiexec"
    install("shims", "mpiexec")
    assert "Open MPI" in call([mpiexec, "--version"], tmp_path)
    install("shims", "mpiexec=hydra")
    assert "HYDRA" in call([mpiexec, "--version"], tmp_path)
    assert os.readlink(mpiexec) == "mpiexec.hydra"
    install("shims", "mpiexec=mpirun")
    assert "Open MPI" in call([mpiexec, "--version"], tmp_path)


def test_mpirun_is_mpich_s_if_asked(install, tmp_path):
    """The mpirun of MPICH and of Intel MPI is hydra."""
    mpirun = tmp_path / "shims" / "mpirun"
    install("shims", "mpirun=hydra")
    assert os.readlink(mpirun) == "mpirun.hydra"
    assert "HYDRA" in call([mpirun, "--version"], tmp_path)
    assert call([mpirun, "-l", "-n", "1", "echo", "x"], tmp_path) == "[0] x\n"
    install("shims", "mpirun")
    assert "Open MPI" in call([mpirun, "--version"], tmp_path)


def test_ompi_info_is_made_if_asked_and_says_what_it_is(install, tmp_path):
    install("shims")
    info = tmp_path / "shims" / "ompi_info"
    assert not info.exists(), "it would hide a real one"
    assert "ompi_info hides that of an Open MPI" in install("shims", "mpirun", "ompi_info")
    assert shims.is_ours(str(info))
    version = call([tmp_path / "shims" / "mpirun", "--version"], tmp_path).splitlines()[0].split()[-1]
    said = call([info], tmp_path)
    assert f"\n                Open MPI: {version}\n" in said and "Package: mslaunch " in said
    for words in (["--version"], ["-V"]):
        lines = call([info, *words], tmp_path).splitlines()
        assert lines[0] == f"Open MPI v{version}" and lines[-1].startswith("mslaunch ")
    for word in ("--parsable", "--parseable"):
        lines = call([info, word], tmp_path).splitlines()
        assert lines[0].startswith("package:mslaunch ") and lines[1:] == [f"ompi:version:full:{version}"]
    assert "usage: ompi_info" in call([info, "--help"], tmp_path)


@pytest.mark.parametrize(
    "words", [["--all"], ["--param", "btl", "tcp"], ["--parsable", "-a"], ["--worker_num=2"], ["x"], [""]], ids=str
)
def test_ompi_info_refuses_what_only_a_library_knows(tmp_path, words):
    call([sys.executable, "-m", "mslaunch", "--install-shims", "shims", "ompi_info"], tmp_path)
    said = call([tmp_path / "shims" / "ompi_info", *words], tmp_path, code=1)
    assert said.startswith("mslaunch: ") and "there is no MPI library that it could describe" in said
    assert len(said.splitlines()) == 2, said


def test_installing_again_changes_nothing(install, tmp_path):
    install("shims", "mpirun", "mpiexec=hydra")
    before = {path.name: (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in (tmp_path / "shims").iterdir()}
    said = install("shims", "mpirun", "mpiexec=hydra")
    after = {path.name: (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in (tmp_path / "shims").iterdir()}
    before.pop("mslaunch", None), after.pop("mslaunch", None)
    assert before == after
    assert said.count("exists already") == 3


@pytest.mark.parametrize("kind", ["file", "link", "dangling", "directory"])
def test_files_of_others_are_never_replaced(install, tmp_path, kind):
    mpirun = tmp_path / "shims" / "mpirun"
    mpirun.parent.mkdir()
    if kind == "file":
        mpirun.write_text("#!/bin/sh\necho the real one\n")
    elif kind == "directory":
        mpirun.mkdir()
    else:
        mpirun.symlink_to("/bin/sh" if kind == "link" else "/nowhere/mpirun")
    before = mpirun.lstat().st_ino, mpirun.lstat().st_mtime_ns
    said = install("shims", "mpiexec", "mpirun", code=1)
    assert said.startswith(f"mslaunch: {mpirun}: it exists already")
    assert (mpirun.lstat().st_ino, mpirun.lstat().st_mtime_ns) == before
    assert [path.name for path in mpirun.parent.iterdir()] == ["mpirun"], "nothing else was made either"


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        ([], "DIR is missing"),
        (["--foo"], "DIR is missing"),
        ([""], "DIR is missing"),
        (["d", "mprun"], "did you mean mpirun?"),
        (["d", "mpicc"], "not the name of a launcher"),
        (["d", "mpirun=msrun"], "only mpirun and mpiexec have a choice"),
        (["d", "mpiexec=msrun"], "only mpirun and mpiexec have a choice"),
        (["d", "orterun=hydra"], "only mpirun and mpiexec have a choice"),
        (["d", "ompi_info=hydra"], "not the name of a launcher"),
        (["/dev/null/d"], "no shims can be made there: a part of the path is a file"),
        (["/dev/null"], "no shims can be made there: a part of the path is a file"),
    ],
)
def test_a_shim_that_cannot_be_made_is_an_error(install, tmp_path, words, phrase):
    said = install(*words, code=1)
    assert said.startswith("mslaunch: ") and phrase in said
    assert not (tmp_path / "d").exists()


def test_a_name_given_twice_is_made_once(install):
    assert install("shims", "mpirun", "mpirun").count(" -> ") == 1


def test_the_first_words_are_known_under_every_name(install, tmp_path):
    install("shims", "mpirun", "mpiexec.hydra", "msrun")
    for name in ("mpirun", "mpiexec.hydra", "msrun"):
        shim = tmp_path / "shims" / name
        assert call([shim, "--dialect", "hydra", "-l", "-n", "1", "echo", "x"], tmp_path) == "[0] x\n"
        assert call([shim, "-dialect", "mpirun", "-tag-output", "-n", "1", "echo", "x"], tmp_path).endswith(":x\n")
        assert call([shim, "--version"], tmp_path)


def test_mpiexec_is_asked_through_any_number_of_links(tmp_path):
    links = {"mpiexec": "a/mpiexec", "a/mpiexec": "../b/mpiexec", "b/mpiexec": "mpiexec.hydra"}
    for name, target in links.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(target)
        assert dialects.called_as(str(tmp_path / "mpiexec")) == ("mpiexec.hydra" if name[0] == "b" else "mpiexec")
    (tmp_path / "round").mkdir()
    (tmp_path / "round" / "mpiexec").symlink_to("mpiexec")
    assert dialects.called_as(str(tmp_path / "round" / "mpiexec")) == "mpiexec"


def test_a_link_made_by_the_user_works(tmp_path):
    script = tmp_path / "mslaunch"
    script.write_text(CONSOLE.format(sys.executable))
    script.chmod(0o755)
    (tmp_path / "mpirun.mpich").symlink_to(script)
    (tmp_path / "else").symlink_to(script)
    assert "HYDRA" in call([tmp_path / "mpirun.mpich", "--version"], tmp_path)
    assert call([tmp_path / "else", "--version"], tmp_path).startswith("mslaunch ")


def test_a_shim_is_distinguished_from_the_real_thing(tmp_path):
    call([sys.executable, "-m", "mslaunch", "--install-shims", "shims", "mpiexec=hydra"], tmp_path)
    assert all(shims.is_ours(str(path)) for path in (tmp_path / "shims").iterdir())
    assert not shims.is_ours("/bin/sh")
    assert not shims.is_ours(str(tmp_path / "none"))


def test_an_interpreter_with_an_odd_path_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / 'a"b' / "python"))
    monkeypatch.setattr(sys, "argv", ["x"])
    with pytest.raises(LaunchError, match="no script can hold this path"):
        shims.install([str(tmp_path / "shims")])


def test_an_interpreter_with_a_blank_in_its_path(tmp_path):
    (tmp_path / "my venv").mkdir()
    python = tmp_path / "my venv" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    words = ["-c", f"import sys; sys.executable = {str(python)!r}; from mslaunch.__main__ import main; main()"]
    call([sys.executable, *words, "--install-shims", "shims", "mpirun"], tmp_path)
    assert call([tmp_path / "shims" / "mpirun", "-n", "1", "echo", "a  b"], tmp_path, PYTHONPATH="") == "a  b\n"


# --- the first words


def test_the_dialect_option_works(tmp_path):
    ours = [sys.executable, "-m", "mslaunch"]
    for words in (["--dialect", "hydra"], ["--dialect=hydra"]):
        assert call([*ours, *words, "-l", "echo", "x"], tmp_path) == "[0] x\n"
    assert call([*ours, "--dialect", "mpirun", "-n", "1", "echo", "x"], tmp_path) == "x\n"
    said = call(
        [
            *ours,
            "--dialect",
            "msrun",
            "--join=True",
            "--worker_num=2",
            "python3",
            "-c",
            "import os; os.write(1, b'x\\n')",
        ],
        tmp_path,
    )
    assert said == "x\nx\n"
    assert sorted(path.read_text() for path in tmp_path.glob("worker_?.log")) == ["x\n", "x\n"]


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        (["--dialect", "hydr"], "did you mean hydra?"),
        (["--dialect"], "write --dialect mpirun, hydra, msrun or torchrun"),
        (["--completion"], "bash, zsh or fish"),
        (["--completion", "bash", "zsh"], "it takes nothing more, got 'zsh'"),
        (["--man", "mpirun"], "it takes nothing more, got 'mpirun'"),
    ],
)
def test_a_bad_first_word_is_refused(tmp_path, words, phrase):
    said = call([sys.executable, "-m", "mslaunch", *words], tmp_path, code=1)
    assert said.startswith(f"mslaunch: {words[0]}: ") and phrase in said


@pytest.mark.parametrize(
    ("called", "name"),
    [
        ("/opt/bin/mpirun", "mpirun"),
        ("mpiexec.hydra", "mpiexec.hydra"),
        ("/x/__main__.py", "__main__.py"),
        ("mpiexec", "mpiexec"),
    ],
)
def test_the_name_of_the_command_says_the_dialect(called, name):
    assert dialects.called_as(called) == name


def test_shims_do_not_cost_a_launch(tmp_path):
    names = "sorted(name for name in sys.modules if name.startswith('mslaunch.cli'))"
    text = (
        "import sys\nfrom mslaunch.cli.main import parse\nfrom mslaunch.host.files import read_text\n"
        "parse(['-n', '1', 'x'], {}, read_text)\n"
        f"print({names})"
    )
    loaded = call([sys.executable, "-S", "-c", text], tmp_path)
    assert "mpirun" in loaded
    assert not any(
        name in loaded
        for name in ("hydra", "msrun", "torchrun", "shims", "ompi_info", "completion", "manpage", "help_text")
    )


def test_the_documentation_of_names_is_that_of_the_table():
    text = (Path(ROOT) / "docs" / "dialects.md").read_text(encoding="utf-8")
    for name in dialects.COMMANDS:
        assert name in text or name.removesuffix(".openmpi") != name or name == "mpirun.hydra"
