"""Start a probe's child and read its answer."""

from __future__ import annotations

import json
import os
from typing import Any

from aisp_mcp.errors import ProcessError, Unavailable
from aisp_mcp.machine.probes.children.child import MARK


def argv(name: str) -> list[str]:
    """The command; it reads its parameters from standard input."""
    from aisp_mcp.process import python

    return python.module("aisp_mcp.machine.probes.children.child", name)


def ask(
    name: str,
    params: dict[str, Any],
    timeout_s: float,
    command: list[str] | None = None,
    environ: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Run the child and return its answer. Raises Unavailable NOT_INSTALLED without torch; ProcessError TIMEOUT,
    CRASHED, PROBE_FAILED.
    """
    from aisp_mcp.process.python import SAFE
    from aisp_mcp.process.run import run
    from aisp_mcp.system.software import version

    if version("torch") is None:
        raise Unavailable(
            "NOT_INSTALLED",
            "torch is not installed in this environment; this probe computes with it.",
            "pip install 'aisp-mcp[bench]'",
            (("aisp_system_dependencies", {}), ("aisp_hw_disk", {})),
        )
    done = run(
        command or argv(name),
        timeout_s=timeout_s,
        env={**(environ or os.environ), **SAFE},
        cwd="/",
        stdin=json.dumps(params),
        max_output=4_000_000,
    )
    reply = answer(done.stdout)
    if reply is None:
        if done.timed_out:
            raise ProcessError("TIMEOUT", f"The {name} probe took longer than {timeout_s:g} s.", "Raise timeout_s.")
        last_lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        message = (
            f"The {name} probe ended with code {done.returncode}: {last_lines[-1][:300] if last_lines else 'no output'}"
        )
        raise ProcessError("CRASHED", message)
    if "error" in reply:
        raise ProcessError("PROBE_FAILED", f"The {name} probe: {reply['error']}")
    return reply


def answer(stdout: str) -> dict[str, Any] | None:
    """The last marked line, decoded."""
    for line in reversed(stdout.splitlines()):
        if line.startswith(MARK):
            reply: dict[str, Any] = json.loads(line[len(MARK) :])
            return reply
    return None


def ask_ranks(params: dict[str, Any], ranks: int, timeout_s: float) -> dict[str, Any]:
    """Run the collectives probe under torchrun, one process per rank. Errors as `ask`."""
    from aisp_mcp.machine.probes.children import nccl

    # One thread per rank: ranks with a thread pool each would compete for the processors.
    environ = {**os.environ, "AISP_PROBE_PARAMS": json.dumps(params), "OMP_NUM_THREADS": "1"}
    return ask("nccl", {}, timeout_s, nccl.argv(ranks), environ)
