"""Builds of a candidate's extensions that have failed in one of its processes, so that no other one tries them again.

A program may fall back to torch where its extension does not build, and a compiler takes a quarter of a minute to fail.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

RECORD = "failed-build.json"  # in the folder of an extension: digest of what was built, and torch's message
FOLDERS = "TORCH_EXTENSIONS_DIR"
# As compilers and shells write it: the file without its folder, and the line.
REASON = re.compile(r"(?:[^\s/:()]+(?::\d+(?::\d+)?|\(\d+\)): )?\b(?:fatal )?error\s*:\s[^\n]*|\S+: not found\b")
SHOWN, MOST_BYTES = 20_000, 1 << 18  # characters of the output that are kept; of a record that is read
SOURCES = {".cpp", ".cc", ".cu", ".ninja"}


def are_recorded() -> bool:
    """Return True if another process's failed builds were copied to this one."""
    folder = os.environ.get(FOLDERS)
    return folder is not None and any(Path(folder).glob(f"*/{RECORD}"))


def message(record: Path) -> str:
    """Torch's message in a record; empty if another program has written something else there."""
    with suppress(OSError, ValueError), record.open("rb") as file:
        found = json.loads(file.read(MOST_BYTES))
        return str(found["message"]) if isinstance(found, dict) and "message" in found else ""
    return ""


def remember() -> None:
    """Have torch record builds that fail, and raise the recorded error where it would build the same again."""
    from torch.utils import cpp_extension

    build: Any = getattr(cpp_extension, "_run_ninja_build", None)  # the only place where the compiler's words are known
    if build is not None and not isinstance(build, partial):
        cpp_extension._run_ninja_build = partial(_built, build)


def _built(build: Callable[..., None], build_directory: str, verbose: bool, error_prefix: str) -> None:
    record, digest = Path(build_directory, RECORD), _digest(Path(build_directory))
    if record.is_file() and json.loads(record.read_text("utf-8"))["digest"] == digest:
        raise RuntimeError(message(record))
    try:
        build(build_directory, False, error_prefix)  # a message has the compiler's output only if it is not printed
        record.unlink(missing_ok=True)  # of an earlier attempt, with other sources or flags
    except RuntimeError as error:
        if verbose:
            print(error, flush=True)
        output = str(error).removeprefix(f"{error_prefix}: ")
        reason = REASON.search(output)
        first = f"{reason[0].strip()}; the compiler's output: " if reason else ""
        text = f"{error_prefix}: {first}{output[:SHOWN]}"
        with suppress(OSError):
            record.write_text(json.dumps({"digest": digest, "message": text}), "utf-8")
        raise RuntimeError(text) from error


def _digest(folder: Path) -> str:
    """Of the sources in the folder and of the commands that build them."""
    found = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.suffix in SOURCES and path.is_file()):
        found.update(path.read_bytes())
    return found.hexdigest()
