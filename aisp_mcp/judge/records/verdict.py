"""The six possible verdicts of a comparison, and the evidence for each."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from pydantic import Field, model_validator

from aisp_mcp.judge.records import renamed
from aisp_mcp.judge.records.measurement import Clocks, Figures, Interval, Verification
from aisp_mcp.records import Record


class Verdict(StrEnum):
    """faster, slower, same and inconclusive describe time; incorrect and invalid mean that the time does not matter."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"
    INCORRECT = "incorrect"
    INVALID = "invalid"


BEST_FIRST = (
    Verdict.FASTER,
    Verdict.SAME,
    Verdict.INCONCLUSIVE,
    Verdict.SLOWER,
    Verdict.INCORRECT,
    Verdict.INVALID,
)


def all_passed(verdicts: Iterable[Verdict]) -> bool | None:
    """False if one must stop a pipeline, else None if nothing is decided: one is inconclusive, or there is none."""
    words = set(verdicts)
    if words & {Verdict.SLOWER, Verdict.INCORRECT, Verdict.INVALID}:
        return False
    return None if Verdict.INCONCLUSIVE in words or not words else True


class Flag(Record):
    """A fact that a reader must know. code is stable; severity is note, warn or fatal (fatal decides the verdict)."""

    code: str
    severity: str
    message: str
    evidence: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _read_former_code(cls, data: Any) -> Any:
        return renamed.with_new_names(data, {}, {"code": renamed.FLAGS})


class PeakShare(Record):
    """A candidate's rate relative to the ceiling that limits it most. kind: the probe that measured the
    ceiling here.
    """

    kind: str
    share: float = Field(description="Above 1 the work, the contract or the candidate needs an audit.")
    rate: float = Field(description="FLOP/s or bytes/s, from the declared work.")
    ceiling: float

    @property
    def is_product(self) -> bool:
        """Return True for the rate of matrix products, False for that of memory."""
        return self.kind.startswith("gemm_")

    @property
    def what(self) -> str:
        """The ceiling in words: bfloat16 products, memory bandwidth (triad)."""
        first, _, rest = self.kind.partition("_")
        return f"{rest} products" if self.is_product else f"memory bandwidth ({rest})" if rest else first

    @property
    def headroom(self) -> float:
        """Factor by which the candidate would be faster at the ceiling; below 1 asks for an audit."""
        return self.ceiling / self.rate


NO_TIME = ("memory", "energy")  # goals whose ratio is not one of seconds


class Comparison(Record):
    """One candidate against one baseline. ratio is baseline over candidate: above 1 the candidate is better."""

    target: str
    candidate: str = Field(description="Variant name, empty for the plain one.")
    verdict: Verdict
    sentence: str = Field(description="The verdict as one line for a person.")
    goal: str = "speed"
    ratio: float | None = None
    interval: Interval | None = None
    margin: float | None = None
    noise_floor: float | None = Field(default=None, description="Half-width of this run's own A/A comparison.")
    p_value: float | None = None
    baseline: Figures | None = None
    optimized: Figures | None = None
    clocks: Clocks | None = None
    peak: PeakShare | None = Field(default=None, description="None without declared work or a measured ceiling.")
    isolation: str
    replicates: int
    verification: Verification | None = None
    flags: list[Flag] = Field(default_factory=list)
    disclosed: dict[str, Any] = Field(
        default_factory=dict, description="Facts about both programs that no software can judge."
    )
    phases: dict[str, float] = Field(default_factory=dict, description="Wall seconds by phase: where the time went.")
    log_path: str | None = None
    log_sha256: str | None = None
    seconds: float = Field(default=0.0, description="Wall time this comparison took.")

    def __str__(self) -> str:
        return self.sentence

    @property
    def at_least(self) -> bool:
        """True if the ratio is a lower bound: the part of a larger gain that the parent's clock proves."""
        return self.clocks is not None and self.clocks.bound(self.ratio)

    @property
    def decided(self) -> Verdict:
        """The verdict; inconclusive if the further looks of a gate left it open."""
        return Verdict.INCONCLUSIVE if self.disclosed.get("outcome") == "could_not_judge" else self.verdict

    @property
    def subject(self) -> str:
        """The target in another run: of functions, their baseline's code, whatever its file is called."""
        return self.disclosed.get("baseline_function") or self.target

    @property
    def label(self) -> str:
        """Name that selects the candidate: `ch07:row_sum_tiled`."""
        return f"{self.target}_{self.candidate}" if self.candidate else self.target

    @property
    def identity(self) -> str:
        """The target, of one's own functions with the digest by which their history is kept."""
        return str(self.disclosed.get("identity") or self.target)

    @property
    def known_as(self) -> str:
        """The label, with the target's identity."""
        return f"{self.identity}_{self.candidate}" if self.candidate else self.identity

    @property
    def title(self) -> str:
        """The pair in words."""
        return f"{self.candidate} against {self.identity}" if self.candidate else f"{self.identity}, optimised"


CANDIDATE_NEEDS = "CANDIDATE_NEEDS"


class Skip(Record):
    """A target that was not measured, and the missing requirement. A skip is not a pass."""

    target: str
    code: str = Field(description="NEEDS, or CANDIDATE_NEEDS if an exception of the candidate shows the need.")
    missing: str
