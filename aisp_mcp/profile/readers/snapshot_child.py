"""Read an allocator snapshot as PyTorch writes it, a pickle, in a process of its own with bounds on memory and time.

    python -P -m aisp_mcp.profile.readers.snapshot_child SNAPSHOT

Prints the profile as JSON. A snapshot holds nothing but containers, texts and numbers, so the unpickler refuses every
global: without one, nothing in the file can be called. A refusal is a line on standard error, exit code 3.
"""

from __future__ import annotations

import io
import pickle
import resource
import sys
from typing import NoReturn

from aisp_mcp.errors import AispError
from aisp_mcp.profile.readers.files import look, read
from aisp_mcp.profile.readers.snapshot import profile

REFUSED = 3
_MEMORY = 4 * 2**30
_CPU_S = 120


class _Plain(pickle.Unpickler):
    """No class and no function; objects outside of the file are refused by the base class."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names the global {module}.{name}")


def main() -> int:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    try:
        file = look(sys.argv[1])
        top = _Plain(io.BytesIO(read(file))).load()
        print(profile(file, top).model_dump_json())
    except AispError as error:
        print(error.message, file=sys.stderr)
        return REFUSED
    except Exception as error:  # whatever a broken pickle makes of itself
        print(f"The pickle cannot be read: {type(error).__name__}: {error}", file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
