"""Record a problem of another suite in a fork of a process that has loaded torch and has not calculated yet.

A fork of the test process would wait for ever for the threads of tensor operations that the process had once run.
"""

from __future__ import annotations

import multiprocessing
import sys

RECORDER = "aisp_mcp.suites.adapters.recording.recorder"


def record(words: list[str], printed: str) -> None:
    """Run the recorder with these arguments and write what it prints to a file. It starts without isolation."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["torch", RECORDER])
    process = server.Process(target=_main, args=(words, printed))
    process.start()
    process.join()


def _main(words: list[str], printed: str) -> None:
    from aisp_mcp.suites.adapters.recording import recorder

    sys.argv = ["recorder", *words]
    with open(printed, "w") as sys.stdout:
        recorder.main()
