"""Read untrusted pickles with an unpickler that refuses every global, so that nothing in the file can be called.

A file may still expand to gigabytes: use it only in a process limited by `bounded`.
"""

from __future__ import annotations

import io
import pickle
import resource
from typing import Any, NoReturn

from aisp_mcp.profile.readers.files import File, read

REFUSED = 3  # exit code of a child that refuses a file, with a line on standard error
_MEMORY = 4 * 2**30
_CPU_S = 120


class _Plain(pickle.Unpickler):
    """Unpickler without classes and functions; the base class refuses objects outside the file."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names the global {module}.{name}")


def bounded() -> None:
    """Limit the memory and processor time of this process."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))


def plain(file: File) -> Any:
    """Containers, texts and numbers. Raises UnpicklingError for anything else, and any error of a broken pickle."""
    return _Plain(io.BytesIO(read(file))).load()
