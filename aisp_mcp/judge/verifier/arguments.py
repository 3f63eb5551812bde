"""Arguments such as lists and frames that the baseline itself changes: their content is then a part of its answer.

Tensors and arrays are in memory that the verifier compares; what they hold after a call is declared in `in_place`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aisp_mcp.bench import Benchmark
from aisp_mcp.judge.protocol import values
from aisp_mcp.judge.protocol.messages import CALLING

DRAWS, SECONDS = 4, 0.2  # calls that are tried at most, and time for them


@dataclass
class Changed:
    """positions: of the arguments that the baseline changes, which a candidate may change as well. left: those whose
    content must be the same after a call, by name. It is not of an argument that the baseline returns, since its caller
    takes what is returned, and not where the user's own checker decides or the content cannot be compared.
    """

    positions: list[int] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)


def changed(spec: Benchmark, draw: Callable[[int], dict[str, Any]]) -> Changed:
    """The arguments that the baseline changes in its first calls. Errors that it raises are left to those calls."""
    steps, found, end = getattr(spec.run, "steps", None), Changed(), time.monotonic() + SECONDS
    if steps is None or not steps.is_copied:
        return found
    calling, has_checker = sys.modules[CALLING], spec.answers is not None and spec.answers.check is not None
    for number in range(DRAWS):
        try:
            inputs = draw(number)
            given = steps.arguments(**inputs)
            answer = steps.function(*given[0], **given[1])
        except Exception:
            return Changed()
        every = (*given[0], *given[1].values())
        for at in calling.changes(steps.arguments(**inputs), given):
            found.positions = sorted({*found.positions, at})
            if not (has_checker or _is_returned(every[at], answer)) and _is_comparable(every[at]):
                found.left[calling.argument_name(steps.function, given, at)] = at
        if time.monotonic() > end:
            break
    return found


def changes(spec: Benchmark, inputs: dict[str, Any]) -> dict[int, str]:
    """The places at which the baseline changes its arguments in a call on these inputs, by the argument's position."""
    steps: Any = spec.run.steps  # type: ignore[attr-defined]
    given = steps.arguments(**inputs)
    steps.function(*given[0], **given[1])
    found: dict[int, str] = sys.modules[CALLING].changes(steps.arguments(**inputs), given)
    return found


def _is_returned(argument: Any, answer: Any) -> bool:
    return any(each is argument for each in (answer, *(answer if isinstance(answer, tuple | list) else ())))


def _is_comparable(value: Any) -> bool:
    try:
        values.encode(value)
    except values.UnknownValueError:
        return False
    return True
