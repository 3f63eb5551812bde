"""Read an allocator snapshot as PyTorch writes it, a pickle, in a separate process with limits on memory and time.

    python -P -m aisp_mcp.profile.readers.snapshot_child SNAPSHOT

Prints the profile as JSON. A snapshot contains only containers, texts and numbers, so the unpickler refuses every
global: without one, nothing in the file can be called. A refusal is a line on standard error, exit code 3.
"""

from __future__ import annotations

import sys

from aisp_mcp.errors import AispError
from aisp_mcp.profile.readers.files import look
from aisp_mcp.profile.readers.input.pickles import REFUSED, bounded, plain
from aisp_mcp.profile.readers.snapshot import profile


def main() -> int:
    bounded()
    try:
        file = look(sys.argv[1])
        print(profile(file, plain(file)).model_dump_json())
    except AispError as error:
        print(error.message, file=sys.stderr)
        return REFUSED
    except Exception as error:  # any error of a broken pickle
        print(f"The pickle cannot be read: {type(error).__name__}: {error}", file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
