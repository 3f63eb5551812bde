"""Typed requests and answers between parent, verifier and workers; all travel as JSON."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

DeviceAllocation = tuple[int, int, str]  # address in its own process, bytes, CUDA IPC handle in hexadecimal


class OpenAnswer(TypedDict):
    """Facts of the specification that the verifier has opened. missing: needs that this machine does not meet; then
    nothing else is there. layout: of the shared memory, see ipc/layout.py. call_s: roughly, in the verifier. probe_s:
    seconds of its smallest kernel on the idle GPU. output_rules: "layout_strict", strides count;
    "shares_inputs", outputs may lie in inputs.
    """

    missing: NotRequired[list[str]]
    layout: dict[str, Any]
    call_s: float
    goal: str
    work: dict[str, float]
    error_ratio: float
    in_place: list[str]
    output_rules: dict[str, bool]
    facts: dict[str, Any]
    oracle: str
    probe_s: NotRequired[float]


class WorkerSetup(TypedDict):
    """Line of JSON that a worker reads before it prepares itself. ipc: handle of its arena on a GPU, else empty; of
    several ranks a list.
    """

    path: str
    baseline: bool
    size: str
    device: str
    threads: int
    flush_bytes: int
    layout: dict[str, Any]
    contract: bool
    output_rules: dict[str, bool]
    imports: list[str]
    freeze: bool
    ipc: NotRequired[str | list[str]]


class CheckAnswer(TypedDict):
    """Findings on the outputs of a round. ratio: worst error in units of the baseline's own."""

    failure: str | None
    code: str | None
    checked: int
    ratio: float | None


class StageRequest(TypedDict):
    """Inputs to draw where no worker sees them. counts: calls by worker number. sample: calls that are compared."""

    counts: dict[int, int]
    seed: int
    sample: list[int]


class MapRequest(TypedDict):
    """Device memory of a worker that the verifier is asked to open. apart: outputs are taken call by call."""

    allocations: list[DeviceAllocation]
    addresses: list[int]
    apart: bool


class MapAnswer(TypedDict):
    """Result of a MapRequest. own: inputs can be written there. whole: all outputs can be read from there."""

    own: bool
    whole: bool


class WatchAnswer(TypedDict):
    """End of a watched round. at_s: clock when it was done. probe_s: wait of the smallest kernel. seconds: of each
    isolated call.
    """

    at_s: float
    probe_s: NotRequired[float]
    seconds: NotRequired[list[float]]
