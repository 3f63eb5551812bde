"""The memory of a loop: an append-only file of its steps, its pairs and its identical runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aisp_mcp.errors import StoreError, UsageError
from aisp_mcp.gate.keep import decide
from aisp_mcp.judge.audit_log import ChainLog, continued

LOOP = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")


@dataclass
class Step:
    """One candidate against one incumbent. key: what is decided; what: what is measured. pairs: values of incumbent and
    candidate. required: of the candidate's runs, by condition.

    known: identical pairs of the loop when this step began. outcome: the last answer, None before the first.
    """

    number: int
    incumbent: str
    candidate: str
    key: str
    what: str
    known: list[float]
    pairs: list[tuple[float, float]] = field(default_factory=list)
    required: list[dict[str, float]] = field(default_factory=list)
    outcome: dict[str, Any] | None = None

    @property
    def is_decided(self) -> bool:
        return self.outcome is not None and self.outcome["outcome"] in ("keep", "discard")


class Loop:
    """A loop whose file is locked."""

    def __init__(self, name: str, log: ChainLog, records: list[dict[str, Any]]) -> None:
        self.name = name
        self.steps: list[Step] = []
        self._same: list[tuple[str, float, float]] = []
        self._log = log
        for record in records:
            self._apply(record)

    def repeats(self, what: str) -> int | None:
        """Repeated runs that gave the same number as before; None if one ever gave another."""
        columns = [list(pair) for pair in self.same(what)]
        for step in self.steps:
            columns += [list(column) for column in zip(*step.pairs, strict=True)] if step.what == what else []
        if any(len(set(column)) > 1 for column in columns):
            return None
        return sum(len(column) - 1 for column in columns)

    def same(self, what: str) -> list[tuple[float, float]]:
        """Pairs of identical runs, latest last."""
        return [(first, second) for of, first, second in self._same if of == what]

    def find(self, incumbent: str, candidate: str, key: str) -> Step | None:
        """The step in which this comparison was begun."""
        wanted = (incumbent, candidate, key)
        return next((step for step in self.steps if (step.incumbent, step.candidate, step.key) == wanted), None)

    def begin(self, incumbent: str, candidate: str, key: str, what: str, known: list[float]) -> Step:
        known = known[-decide.REMEMBERED :]
        self.write("step", incumbent=incumbent, candidate=candidate, key=key, what=what, known=known)
        return self.steps[-1]

    def write(self, kind: str, **record: Any) -> None:
        self._log.append(kind, **record)
        self._apply({"kind": kind, **record})

    def _apply(self, record: dict[str, Any]) -> None:
        if record["kind"] == "same":
            self._same.append((record["what"], *record["values"]))
        elif record["kind"] == "step":
            fields = {name: record[name] for name in ("incumbent", "candidate", "key", "what", "known")}
            self.steps.append(Step(len(self.steps) + 1, **fields))
        elif record["kind"] == "pair":
            self.steps[record["step"] - 1].pairs.append(tuple(record["values"]))
            self.steps[record["step"] - 1].required.append(record["required"])
        elif record["kind"] == "answer":
            self.steps[record["step"] - 1].outcome = record["answer"]


@contextmanager
def opened(folder: Path, name: str) -> Iterator[Loop]:
    """The loop of that name, begun if there is none, for this process alone. Raises UsageError, StoreError."""
    if not LOOP.fullmatch(name):
        raise UsageError("BAD_LOOP", f"{name[:80]!r} cannot name a loop.", "Letters, digits, dots and hyphens.")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.jsonl"
    path.touch()
    _drop_torn(path)
    with ExitStack() as stack:
        try:
            loop = Loop(name, *stack.enter_context(continued(path)))
        except (ValueError, KeyError, IndexError, TypeError) as error:
            message = f"{path} was changed: {str(error)[:200]}."
            raise StoreError("LOG_BROKEN", message, "Begin another loop: --loop NAME") from error
        yield loop


def _drop_torn(path: Path) -> None:
    """Remove a last line that a killed step left without its end."""
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        path.write_bytes(data[: data.rfind(b"\n") + 1])
