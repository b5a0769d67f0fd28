"""Errors of the system that reach the command: one line, and the file only if it is the user's."""

from __future__ import annotations

import errno

import pytest

import mslaunch.cli.main as main_module


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (main_module.__file__, "mslaunch: the system refused: Too many open files (ulimit -n is "),
        ("/home/me/hosts", "mslaunch: /home/me/hosts: the system refused: Too many open files (ulimit -n is "),
    ],
)
def test_a_module_of_ours_is_no_file_of_the_user(path, said, capfd):
    """Without descriptors an import fails; its path says nothing to a user."""

    def act():
        raise OSError(errno.EMFILE, "Too many open files", path)

    assert main_module._run_reported(act) == 1
    text = capfd.readouterr().err
    assert text.startswith(said) and "ulimit -a" in text
