"""The intent of a question beyond its words: results on this machine, or how to measure."""

from __future__ import annotations

import re

# Questions about the user's own results: "my last run", "what did my runs show", "did row_sum get faster".
_MINE = re.compile(
    r"\b(my|our|last|latest|recent|previous|stored|yesterday\S*|today\S*)\s+(\w+\s+)?"
    r"(runs?|verdicts?|results?|measurements?|comparisons?)\b"
    r"|\bwhat (did|have) (i|we)\b[^.?]{0,30}\b(run|measure|benchmark|judge)"
    r"|\b(runs?|verdicts?|results?)\b[^.?]{0,30}\b(on this machine|so far|stored)\b",
    re.IGNORECASE,
)
_HOW = re.compile(
    r"\bhow\b[^.?]{0,40}\b(measure|benchmark|time|compare)\b(?!\s+(to|per)\b)"
    r"|\bhow many (runs|samples|repetitions|iterations)\b"
    r"|\b(right|proper|correct|best|fair) way to (measure|benchmark|time|compare)\b",
    re.IGNORECASE,
)
# Pages about measuring itself, not about something to measure.
METHODOLOGY = frozenset({"measurement-noise", "warm-up", "clocks", "cold-caches", "speedup-claims", "verdicts"})


def about_own_results(question: str) -> bool:
    """Return True if the question is about runs stored on this machine."""
    return bool(_MINE.search(question))


def about_method(question: str) -> bool:
    """Return True if the question asks how to measure."""
    return bool(_HOW.search(question)) and not about_own_results(question)
