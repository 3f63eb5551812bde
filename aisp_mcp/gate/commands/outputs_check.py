"""Compare the outputs of two programs, byte by byte or by the user's checker, and try that one out first."""

from __future__ import annotations

import filecmp
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from aisp_mcp.errors import BenchmarkError
from aisp_mcp.gate.commands import process
from aisp_mcp.gate.commands.process import Limits, Ran, run

TOOL_S = 120.0  # time limit of an input generator or a checker
NUMBER = re.compile(rb"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
STRICT = "Let it fail for missing values and files, and for NaN: `if not abs(x - y) <= tolerance: sys.exit(1)`."


class Difference(NamedTuple):
    """Why an output is refused: the code of a flag, and words."""

    code: str
    message: str


def _without_numbers(content: bytes) -> bytes:
    """The content with NaN in place of each number; of a file that is no text, in all of its bytes."""
    return NUMBER.sub(b"nan", content) if b"\0" not in content else b"\xff" * len(content)


def _half(content: bytes) -> bytes:
    """The first half of the content; of a single number, its first digit, since its half may be close to it."""
    return content[: len(content) // 2 if len(content.split()) > 1 else 1]


# Outputs that no checker may accept, by what is wrong with them.
SPOILED: dict[str, Callable[[bytes], bytes]] = {
    "whose files are empty": lambda _: b"",
    "with nan in place of each number": _without_numbers,
    "whose files end in the middle": _half,
}


def try_out(check: Path | None, source: Path, output: Path, again: Path) -> None:
    """Refuse a check that accepts nonsense, or that refuses another run of the baseline on the same input. Raises
    BenchmarkError CHECKER_ACCEPTS, BASELINE_VARIES.
    """
    if different := compared(check, source, output, again):
        why = f": {different.message}" if check else "."
        message = f"Two runs of the baseline on one input differ{why}"
        raise BenchmarkError("BASELINE_VARIES", message, "Compare what must be equal with --check.")
    for number, (words, spoil) in enumerate(SPOILED.items() if check else ()):
        spoiled = output.with_name(f"{output.name}.spoiled-{number}")
        shutil.copytree(output, spoiled, symlinks=True)
        changed = [_rewrite(file, spoil) for file in spoiled.rglob("*") if file.is_file() and not file.is_symlink()]
        if any(changed):
            _refuse_lenient(check, source, output, spoiled, words)


def try_other(check: Path, source: Path, output: Path, other: Path) -> None:
    """Refuse a checker that accepts the output for another input, unless that is the same. Raises BenchmarkError
    CHECKER_ACCEPTS.
    """
    if compared(None, source, output, other):
        _refuse_lenient(check, source, output, other, "for another input")


def _refuse_lenient(check: Path | None, source: Path, expected: Path, found: Path, words: str) -> None:
    if not compared(check, source, expected, found):
        name = check.name if check else ""
        raise BenchmarkError("CHECKER_ACCEPTS", f"{name} accepts an output {words}, so it cannot decide.", STRICT)


def _rewrite(file: Path, spoil: Callable[[bytes], bytes]) -> bool:
    """Change the content of a file. Return False if that leaves it as it is."""
    content = file.read_bytes()
    changed = spoil(content)
    file.write_bytes(changed)
    return changed != content


def compared(check: Path | None, source: Path, expected: Path, found: Path) -> Difference | None:
    """The first difference of the output found, or None. check: the user's program, `check INPUT EXPECTED FOUND`."""
    if check is None:
        return _bytes_differ(expected, found)
    folder = found.with_name(f"{found.name}.check-{os.urandom(4).hex()}")
    folder.mkdir()
    done = helper(check, [str(source), str(expected), str(found)], folder)
    if done.code == 0:
        return None
    return Difference("incorrect_output", f"{check.name} refused the output: {done.stderr.strip()[-300:] or done.code}")


def _bytes_differ(expected: Path, found: Path) -> Difference | None:
    first, second = process.entries(expected), process.entries(found)
    for name in sorted(first.keys() | second.keys()):
        if not (name in first and name in second):
            return Difference("incorrect_files", f"Only one of the two programs wrote {name}.")
        if first[name] != second[name]:
            return Difference("incorrect_files", f"{name} is {second[name]}, the baseline's is {first[name]}.")
        file = expected / name
        if file.is_file() and not filecmp.cmp(file, found / name, shallow=False):
            return Difference("incorrect_output", f"The candidate's {name} differs from the baseline's.")
    return None


def helper(path: Path, words: Sequence[str], folder: Path) -> Ran:
    """Run a generator or a checker, untimed, on all cores."""
    argv = [sys.executable, str(path)] if path.suffix == ".py" else [str(path)]
    return run([*argv, *words], folder, "L1", Limits(frozenset(os.sched_getaffinity(0)), None, TOOL_S), {})
