"""Read untrusted pickles with an unpickler that refuses every global, so that nothing in the file can be called.

A file may still expand to gigabytes, so a process with limits on memory and time reads it (`in_child`):

    python -P -m aisp_mcp.profile.readers.pickles READER FILE...

READER is a module whose `printed`, of pairs of a file and its content, is the output. A refusal is a line on standard
error, exit code 3.
"""

from __future__ import annotations

import importlib
import io
import pickle
import resource
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from aisp_mcp.errors import AispError
from aisp_mcp.process.run import run
from aisp_mcp.profile.readers.files import ProfileFile, bad, look, read
from aisp_mcp.profile.readers.text import clean

_REFUSED = 3
_MEMORY, _CPU_S = 4 * 2**30, 120
_CHILD_S, _CHILD_BYTES = 300.0, 256 * 2**20


class _PlainUnpickler(pickle.Unpickler):
    """Unpickler without classes and functions; the base class refuses objects outside the file."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names the global {module}.{name}")


def in_child(reader: str, files: Sequence[ProfileFile], what: str, hint: str | None = None) -> str:
    """The output of READER for these files. Raises UsageError BAD_PROFILE: they are not `what`."""
    argv = [sys.executable, "-P", "-m", __name__, reader, *(str(file.path) for file in files)]
    done = run(argv, timeout_s=_CHILD_S, cwd="/", max_output=_CHILD_BYTES)
    if not done.ok or done.truncated:
        why = clean(done.stderr.strip().splitlines()[-1], 300) if done.stderr.strip() else "their reader was ended"
        raise bad(f"Not {what}: {why}.", hint)
    return done.stdout


def main() -> int:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    reader, *paths = sys.argv[1:]
    files: list[ProfileFile] = []

    def pairs() -> Iterator[tuple[ProfileFile, Any]]:
        for path in paths:
            files.append(look(path))
            yield files[-1], _PlainUnpickler(io.BytesIO(read(files[-1]))).load()

    try:
        print(importlib.import_module(reader).printed(pairs()))
    except AispError as error:
        print(error.message, file=sys.stderr)
        return _REFUSED
    except Exception as error:  # any error of a broken pickle
        print(f"{files[-1].path.name!r} cannot be read: {type(error).__name__}: {error}", file=sys.stderr)
        return _REFUSED
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
