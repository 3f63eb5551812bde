"""The roles of a replicate's processes, and the numbers that identify their workers to the verifier."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """One of the three processes of a replicate. The values appear in logs."""

    BASELINE = "baseline"
    BASELINE_REPEAT = "baseline_repeat"
    CANDIDATE = "candidate"

    @property
    def number(self) -> int:
        """The role's index among the workers of its replicate."""
        return tuple(Role).index(self)

    @property
    def label(self) -> str:
        """The role's name in messages."""
        return self.value.replace("_", " ")


BASELINES = (Role.BASELINE, Role.BASELINE_REPEAT)  # two processes of the same program


def worker_number(replicate: int, role: Role) -> int:
    """The number that identifies a worker to the verifier. replicate: 0 or 1, because two replicates start at once."""
    return replicate * len(Role) + role.number


def replicate_of(worker: int) -> int:
    return worker // len(Role)


def baseline_of(worker: int) -> int:
    """The number of the baseline's worker in the same replicate."""
    return worker_number(replicate_of(worker), Role.BASELINE)
