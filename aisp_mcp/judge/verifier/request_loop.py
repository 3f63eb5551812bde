"""Requests to the verifier and its answers, as lines of JSON."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from aisp_mcp.errors import AispError
from aisp_mcp.judge.protocol.shared_memory import NO_DEVICE_MEMORY, UNDESCRIBED

_WITHOUT_MEMORY = "Inputs, outputs and their float64 reference do not fit into memory at this size: {}"
_SMALLER = "Choose a smaller size (--size NAME=VALUE). Checking takes over fifteen times the memory of one call."


def _is_out_of_memory(error: Exception) -> bool:
    """True for out-of-memory errors: torch raises OutOfMemoryError on a device and a plain RuntimeError on the host."""
    words = ("can't allocate memory", "not enough memory", NO_DEVICE_MEMORY, UNDESCRIBED)
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or any(word in str(error) for word in words)
    )


def _first_line(error: Exception) -> str:
    return str(error).partition(" GPU ")[0].partition("\n")[0][:200]


def _answer(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return call()
    except AispError as error:
        return {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
    except Exception as error:
        traceback.print_exc()
        if _is_out_of_memory(error):
            return {
                "error": {"code": "NO_MEMORY", "message": _WITHOUT_MEMORY.format(_first_line(error)), "hint": _SMALLER}
            }
        frame = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {error} at {Path(frame.filename).name}:{frame.lineno}"
        answer = {"code": "RAISED", "message": message[:500], "hint": "The baseline file or its inputs raised."}
        return {"error": answer}


def serve(verifier: object, lines: Iterable[str], reply: Callable[[str], object]) -> None:
    """Answer requests, which name public methods of the verifier, until the input ends."""
    verbs = {name: getattr(verifier, name) for name in vars(type(verifier)) if not name.startswith("_")}
    for line in lines:
        request = json.loads(line)
        verb = verbs[request.pop("verb")]
        reply(json.dumps(_answer(lambda verb=verb, request=request: verb(**request))) + "\n")  # type: ignore[misc]
