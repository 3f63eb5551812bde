"""Read flight recorder dumps that are pickles, in a separate process with limits on memory and time.

python -P -m aisp_mcp.profile.hangs.flight_child DUMP...

Prints the facts as JSON. A refusal is a line on standard error, exit code 3.
"""

from __future__ import annotations

import json
import sys

from aisp_mcp.errors import AispError
from aisp_mcp.profile.hangs.flight import dump
from aisp_mcp.profile.readers.files import look
from aisp_mcp.profile.readers.input.pickles import REFUSED, bounded, plain


def main() -> int:
    bounded()
    path = ""
    try:
        rows = []
        for index, path in enumerate(sys.argv[1:]):
            file = look(path)
            rows.append(dump(file.path.name, plain(file), index).model_dump(mode="json"))
        print(json.dumps(rows))
    except AispError as error:
        print(error.message, file=sys.stderr)
        return REFUSED
    except Exception as error:  # any error of a broken pickle
        print(f"{path.rpartition('/')[2]!r} cannot be read: {type(error).__name__}: {error}", file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
