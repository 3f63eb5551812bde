"""Run one probe: `python -m ... child NAME`, parameters on stdin, one marked JSON line on stdout.

It is a separate process because it imports torch, allocates device memory, and may crash in a driver.
"""

from __future__ import annotations

import importlib
import json
import sys

MARK = "AISP-PROBE "
PROBES = (
    *("attention", "bandwidth", "cache_gpu", "dataloader", "device", "gemm", "launch", "p2p", "pcie"),
    "roofline",
    "transformer",
)


def main() -> int:
    """Return exit code 0 with a result, 3 with {"error": reason} if the probe cannot work here."""
    name = sys.argv[1]
    if name not in PROBES:
        sys.stderr.write(f"unknown probe {name}\n")
        return 2
    params = json.load(sys.stdin)
    try:
        result = importlib.import_module(f"aisp_mcp.machine.probes.children.{name}").main(params)
        code = 0
    except Exception as error:
        result, code = {"error": f"{type(error).__name__}: {str(error)[:600]}"}, 3
    sys.stdout.write(f"\n{MARK}{json.dumps(result)}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
