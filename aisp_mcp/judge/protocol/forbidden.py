"""The messages by which a worker reports a forbidden operator, and the operators that no policy can remove."""

from __future__ import annotations

CALLED = "forbidden operator: "
UNKNOWN = "no operator that can be forbidden: "
# Used by the judge's own code in a worker, which copies outputs and makes tensors over shared memory.
_NEEDED = """
alias as_strided clone copy copy_ contiguous detach empty empty_like empty_strided fill_ is_pinned item narrow new_empty
numel resize_ select set_ size slice squeeze stride to _to_copy unsqueeze view zero_ zeros
"""
NEEDED = frozenset(_NEEDED.split())


def called(message: str) -> str | None:
    """The operator that an error of a worker names; None if it is another error."""
    return _after(message, CALLED)


def unknown(message: str) -> str | None:
    """The name in a policy that an error of a worker calls unknown; None if it is another error."""
    return _after(message, UNKNOWN)


def _after(message: str, mark: str) -> str | None:
    _, separator, rest = message.partition(mark)
    return rest.split()[0].rstrip(".,:;'\")") if separator and rest.split() else None
