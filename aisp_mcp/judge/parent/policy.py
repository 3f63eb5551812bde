"""Findings on operators that a policy forbids. worker/forbidden.py removes them from the candidate's process."""

from __future__ import annotations

from collections.abc import Sequence

from aisp_mcp.errors import UsageError
from aisp_mcp.judge.protocol import forbidden
from aisp_mcp.judge.records.verdict import Flag

CODE = "forbidden_operator"


def notes(names: Sequence[str], so_far: Sequence[Flag]) -> list[Flag]:
    """The policy that a candidate complied with, if any."""
    if not names or any(each.severity == "fatal" for each in so_far):
        return []
    message = f"Forbidden here, and not called by the candidate: {', '.join(names)}."
    return [Flag(code="policy", severity="note", message=message, evidence={"forbidden": list(names)})]


def flag(original: Flag) -> Flag:
    """The flag, or the policy's own flag if the candidate raised at a forbidden call. Raises UsageError NO_OPERATOR."""
    if name := forbidden.unknown(original.message):
        message = f"{name!r} names no operator that can be forbidden."
        raise UsageError("NO_OPERATOR", message, "Name torch.matmul, F.softmax, aten::mm or a function of a package.")
    name = forbidden.called(original.message)
    if name is None:
        return original
    message = f"The candidate calls {name}, which is forbidden here."
    return Flag(code=CODE, severity="fatal", message=message, evidence={"operator": name})
