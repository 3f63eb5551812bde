"""The known formats, and detection of a path's format."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from aisp_mcp.errors import BenchmarkError, UsageError
from aisp_mcp.suites.adapters.base import (
    MAX_PROBLEMS,
    NATIVE,
    Constants,
    Format,
    Problem,
    has_launch_header,
    owned,
    read_text,
    readable,
    variant,
)

# Formats with distinctive names come first; two of them share a file only on purpose.
NAMES = ("flashinfer", "gpumode", "kernelbench", "get_benchmark", "algotune", "pytest_benchmark")
DISTINCTIVE = NAMES[:5]  # files that nobody writes for other purposes


def load(name: str) -> Format:
    """The module of a format. Raises UsageError UNKNOWN_FORMAT."""
    if name not in NAMES:
        raise UsageError("UNKNOWN_FORMAT", f"No format is named {name[:60]!r}.", f"Known: {', '.join(NAMES)}.")
    return cast(Format, importlib.import_module(f"aisp_mcp.suites.adapters.{name}"))


def split(source: str) -> tuple[str | None, Path]:
    """Split `kernelbench:PATH` into its two parts; the format is None if none is named."""
    name, colon, rest = source.partition(":")
    if colon and name in NAMES:
        return name, Path(rest).expanduser()
    return None, Path(source).expanduser()


def require_readable(*paths: Path) -> None:
    """Refuse paths with nothing to read. Raises UsageError NO_PROBLEM."""
    for path in paths:
        if not readable(path):
            message = f"There is no readable file or folder at {str(path)[:200]!r}."
            raise UsageError("NO_PROBLEM", message, "Give a file or a folder.")


def recognised(source: str) -> str | None:
    """The format of the problems at a path, if its files leave no doubt that it is another suite's."""
    path = split(source)[1] if "\n" not in source else None
    if path is None or not readable(path):
        return None
    for name in DISTINCTIVE:
        try:
            if load(name).find(path, [], {}):
                return name
        except BenchmarkError as error:
            if error.code == "AMBIGUOUS":  # between two readings in this format
                return name
    return None


def find(path: Path, name: str | None, candidates: Sequence[Path], constants: Constants) -> list[Problem]:
    """The problems at a path, in the named format or the first that recognises its files.

    Raises UsageError NO_PROBLEM, UNKNOWN_FORMAT, BenchmarkError UNKNOWN_FILES or as the format does.
    """
    require_readable(path, *candidates)
    native = [file for file in candidates if file.suffix in NATIVE]
    given = [file for file in candidates if file not in native]
    for each in (name,) if name else NAMES:
        if problems := load(each).find(path, given, constants)[:MAX_PROBLEMS]:
            return _with_native(problems, path, native, bool(candidates and not given))
    known = "Recognised by: definition.json; reference.py with task.yml; Model and get_inputs; get_benchmark(); "
    raise BenchmarkError(
        "UNKNOWN_FILES",
        f"{path.name!r} contains no problem of {'the format ' + name if name else 'a known format'}.",
        known + "a class with generate_problem and is_solution; test functions with the fixture benchmark.",
    )


def _with_native(problems: list[Problem], path: Path, given: Sequence[Path], only: bool) -> list[Problem]:
    """The problems with candidates in C++ and CUDA C++: those given, or those with a launch header next to the path.

    only: leave out candidates that were found next to the path, because others were named.
    """
    native_files = sorted(file for file in path.iterdir() if file.suffix in NATIVE) if path.is_dir() else []
    texts = {file: read_text(file) for file in given or native_files}
    files = [file for file, text in texts.items() if file in given or has_launch_header(text)]
    # Rows and workloads share their candidates; each of several problems has those that begin with its name.
    names = [problem.name for problem in problems]
    several = problems[0].format in ("gpumode", "flashinfer")
    owners = {name: files for name in names} if several else owned(names, files)
    all_problems = []
    for problem in problems:
        native = {} if only else dict(problem.native)
        for file in owners[problem.name]:
            native[variant(file.stem, problem.name)] = file.suffix, texts[file]
        all_problems.append(replace(problem, candidates={} if only else problem.candidates, native=native))
    return all_problems
