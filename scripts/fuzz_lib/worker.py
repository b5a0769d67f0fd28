"""Runs one decoder under atheris: `python -m fuzz_lib.worker DECODER`, and arguments of libFuzzer."""

from __future__ import annotations

import sys

import atheris

_WATCHED = 5.0  # code that counts its branches is slower


def main() -> None:
    name, *words = sys.argv[1:]
    with atheris.instrument_imports(include=["mslaunch"]):
        from fuzz_lib.judge import Judge

        judge = Judge(name, _WATCHED)
        atheris.Setup([sys.argv[0], *words], judge)
        atheris.Fuzz()  # does not return; what a decoder imports late is watched, too


if __name__ == "__main__":
    main()
