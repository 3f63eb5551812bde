"""Builds of a candidate's extensions that have failed in one of its processes, so that no other one tries them again.

A program may fall back to torch where its extension does not build, and a compiler takes a quarter of a minute to fail.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

EXTENSION = re.compile(r"cpp_extension|load_inline")  # in the text of a program that builds one
RECORD = "failed-build.json"  # in the folder of an extension: what was built, torch's message, the first error in it
# As compilers and shells write it: the file without its folder, and the line.
REASON = re.compile(r"(?:[^\s/:()]+(?::\d+(?::\d+)?|\(\d+\)): )?\b(?:fatal )?error\s*:\s[^\n]*|\S+: not found\b")
SHOWN, MOST_BYTES = 20_000, 1 << 18  # characters of the output that are kept; of a record that is read
SOURCES = {".cpp", ".cc", ".cu", ".ninja"}


def read(record: Path) -> dict[str, str]:
    """Digest, message and reason of a record; empty if another program has written something else there."""
    with suppress(OSError, ValueError), record.open("rb") as file:
        found = json.loads(file.read(MOST_BYTES))
        if isinstance(found, dict):
            return {str(key): str(value) for key, value in found.items()}
    return {}


def remember() -> None:
    """Have torch record builds that fail, and raise the recorded error where it would build the same again."""
    try:
        from torch.utils import cpp_extension
    except ImportError:  # of setuptools, which the program may never ask for
        return
    build: Any = getattr(cpp_extension, "_run_ninja_build", None)  # the only place where the compiler's words are known
    if build is not None and not isinstance(build, partial):
        cpp_extension._run_ninja_build = partial(_built, build)


def _built(build: Callable[..., None], build_directory: str, verbose: bool, error_prefix: str) -> None:
    record, digest = Path(build_directory, RECORD), _digest(Path(build_directory))
    earlier = read(record)
    if earlier.get("digest") == digest:
        raise RuntimeError(earlier["message"])
    try:
        build(build_directory, False, error_prefix)  # a message has the compiler's output only if it is not printed
        record.unlink(missing_ok=True)  # of an earlier attempt, with other sources or flags
    except RuntimeError as error:
        if verbose:
            print(error, flush=True)
        output = str(error).removeprefix(f"{error_prefix}: ")
        found = REASON.search(output)
        reason = found[0].strip() if found else ""
        message = f"{error_prefix}: {f'{reason}; ' if reason else ''}the compiler's output: {output[:SHOWN]}"
        with suppress(OSError):
            record.write_text(json.dumps({"digest": digest, "message": message, "reason": reason}), "utf-8")
        raise RuntimeError(message) from error


def _digest(folder: Path) -> str:
    """Of the sources in the folder and of the commands that build them."""
    found = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.suffix in SOURCES and path.is_file()):
        found.update(path.read_bytes())
    return found.hexdigest()
