"""Records of a validity issue, of an attack or its honest twin, and of the outcome of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["attack", "honest"]
Finding = Literal["stopped", "through", "passed", "flagged wrongly", "lost", "skipped"]
DEADLINE_S = 240.0


@dataclass(frozen=True)
class Undefended:
    """Gain of an issue's attacks in a harness without defences (tools/undefended.py).

    gain: the largest reported ratio in that harness on that device (cpu, H200, 2xH200). why: the reason if none gained.
    """

    gain: float | None = None
    harness: str = ""
    device: str = ""
    why: str = ""


@dataclass(frozen=True)
class Issue:
    """One of the validity issues.

    kind: B neutralised by construction, D hard signal, N numeric reference, R disclosed. hardware: C any CPU, G one
    GPU, M two or more. isolation: the lowest level at which the control holds. executed_on: devices on which one of its
    attacks was stopped. facts: for kind R, the dotted names of the facts that show it, in a run's environment or among
    a comparison's disclosed facts. reason: why there is no attack. control: by default the paragraph "What we do" of
    its page. file: its path in this folder.
    """

    id: int
    kind: Literal["B", "D", "N", "R"]
    hardware: Literal["C", "G", "M"] = "C"
    isolation: str = "L1"
    control: str = ""
    undefended: Undefended = Undefended()
    executed_on: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    reason: str = ""
    category: str = ""
    title: str = ""
    file: str = ""

    @property
    def attacked(self) -> bool:
        """True if it has attacks and honest twins, and a page that explains them."""
        return not self.reason


@dataclass(frozen=True)
class Case:
    """One candidate against one tiny benchmark, both as source text.

    truth: the true speed ratio, baseline time over candidate time, of work that fulfils the contract; 1.0 if the
    candidate only cheats. needs: "torch.compile"; "g++", a C++ compiler; "namespaces", isolation from level L2 on,
    without which the attack would harm the machine. issue: its number.
    """

    name: str
    kind: Kind
    baseline: str
    candidate: str
    truth: float = 1.0
    device: str = "cpu"
    needs: tuple[str, ...] = ()
    slow: bool = False
    suffix: str = ".py"
    issue: int = 0


@dataclass(frozen=True)
class Outcome:
    """Outcome of one run of a case. comparison: the verdict record as data, or None.

    error: the reason if there is no record. A run that the candidate managed to destroy is "lost", which is also a
    finding.
    """

    case: str
    comparison: dict[str, Any] | None = None
    error: str | None = None
    skipped: str | None = None
    seconds: float = 0.0
