"""Command lines, parsed as the command does it, but without files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mslaunch.cli.main import parse as dispatch
from mslaunch.datamodel.request import Request


def no_files(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


def parse(words: Sequence[str], environ: Mapping[str, str] | None = None, called: str = "mslaunch") -> Request:
    return dispatch(words, environ or {}, no_files, called)


def parse_msrun(words: Sequence[str], environ: Mapping[str, str] | None = None) -> Request:
    return dispatch(["--dialect", "msrun", *words], environ or {}, no_files)
