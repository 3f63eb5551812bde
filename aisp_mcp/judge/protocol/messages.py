"""Messages between the processes of a comparison.

Parent and verifier exchange typed requests and answers as JSON; on the pipes of a worker are commands with flags and
one-byte answers.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

NO_PARAMETERS = "The candidate's parameters do not match the baseline's"  # begins an adapter's error
# As do these, of a candidate beside a problem whose calls are random in the mode that it is constructed in.
NEVER_RANDOM = "As constructed, the candidate's calls never vary"
STILL_RANDOM = "The candidate's calls vary in the mode that is judged"
DeviceAllocation = tuple[int, int, str]  # address in its own process, bytes, CUDA IPC handle in hexadecimal


class Specification(TypedDict):
    """The part of an OpenAnswer that depends only on the baseline's file. cold: "from" and "caches" of a cold start.
    output_rules: "layout_strict", strides count; "layout_any", they are free; "shares_inputs", outputs may share memory
    with inputs; "shares_outputs", with each other; "lists", arrays that a candidate returns become lists; "values", the
    frames of outputs that are any Python values; "left", arguments whose content after a call is part of the answer,
    names by position; "changed", positions of all that the baseline changes. workers:
    "threads", cores of each program, 0 for all; "files_at", folders of their input files, if any. unit: of the work's
    items. converts: arguments, such as lists, are made of inputs before each round.
    """

    goal: str
    converts: bool
    cold: dict[str, str]
    workers: dict[str, Any]
    work: dict[str, float]
    unit: str
    error_ratio: float
    in_place: list[str]
    output_rules: dict[str, Any]


class OpenAnswer(Specification):
    """Facts of the specification that the verifier has opened. missing: needs that this machine does not meet; then all
    other fields are absent. layout: of the shared memory, see protocol/layout.py. call_s: approximate, in the verifier.
    probe_s: seconds of its smallest kernel on the idle GPU. replicates_at_once: those whose processes can have device
    memory at a time.
    """

    missing: NotRequired[list[str]]
    layout: dict[str, Any]
    call_s: float
    facts: dict[str, Any]
    oracle: str
    probe_s: NotRequired[float]
    replicates_at_once: NotRequired[int]
    serving: NotRequired[ServingTerms]


class ServingTerms(TypedDict):
    """Terms of a serving benchmark. metric, percentile: of the latency that decides. slo_ttft, slo_tpot, time_unit,
    max_regression: see aisp_mcp.bench.ServingBenchmark.
    """

    metric: str
    percentile: float
    slo_ttft: float | None
    slo_tpot: float | None
    time_unit: str
    max_regression: float


class PlannedRequest(TypedDict):
    """One request of a trace before it is handed out. at: in the time unit, from the start of the trace on."""

    id: int
    at: float
    prompt: list[int]
    tokens: int


class Program(TypedDict):
    """Files of a baseline or candidate. common: path of the module that baseline and candidates may share."""

    path: str
    common: str
    baseline: bool


class WorkerSetup(Program):
    """Line of JSON that a worker reads before it prepares itself. output_rules: as in OpenAnswer; "contract": outputs
    must meet it. ipc: handle of its arena on a GPU, else empty; a list for several ranks. bytecode: folder for the
    bytecode of the program's own file, if a cold start is measured. forbidden: operators that a policy forbids; rules:
    names that a problem forbids, of which some may be no operators.
    """

    size: str
    device: str
    threads: int
    flush_bytes: int
    layout: dict[str, Any]
    output_rules: dict[str, bool]
    imports: list[str]
    freeze: bool
    ipc: NotRequired[str | list[str]]
    bytecode: NotRequired[str]
    forbidden: NotRequired[list[str]]
    rules: NotRequired[list[str]]


class CheckAnswer(TypedDict):
    """Findings on the outputs of a round. ratio: worst error in units of the baseline's own. measures: the worst of
    each other error of the sampled calls, by name. edge: the largest share of the contract's limit, if it is close to
    the limit, and where.
    """

    failure: str | None
    code: str | None
    checked: int
    ratio: float | None
    measures: NotRequired[dict[str, float]]
    edge: NotRequired[tuple[float, str]]


class StageRequest(TypedDict):
    """Inputs to draw where no worker can see them. counts: calls by worker number. sample: calls to compare."""

    counts: dict[int, int]
    seed: int
    sample: list[int]


class MapRequest(TypedDict):
    """Device memory of a worker for the verifier to open. apart: outputs are copied call by call."""

    allocations: list[DeviceAllocation]
    addresses: list[int]
    apart: bool


class MapAnswer(TypedDict):
    """Result of a MapRequest. own: inputs can be written to the worker's memory. whole: all outputs can be read from
    it.
    """

    own: bool
    whole: bool


class WatchAnswer(TypedDict):
    """End of a watched round. at_s: clock when it was done. probe_s: wait of the smallest kernel. seconds: of each
    isolated call.
    """

    at_s: float
    probe_s: NotRequired[float]
    seconds: NotRequired[list[float]]


CALLING = "aisp_mcp.judge.candidate.calling"  # what the files of two functions import
LOADED, READY, DONE, RAISED, QUEUED, SHARED = b"L", b"R", b"D", b"X", b"Q", b"S"
DUMMY, TRACE, WARM, NO_COPY = 1 << 31, 1 << 30, 1 << 29, 1 << 28
GATE, ISOLATED, STORE, TOUCH = 1 << 27, 1 << 26, 1 << 25, 1 << 24
CONVERT, SETTLE, DROP, ARGUMENTS = 1 << 23, 1 << 22, 1 << 21, 1 << 20
BITS = DUMMY | TRACE | WARM | NO_COPY | GATE | ISOLATED | STORE | TOUCH | CONVERT | SETTLE | DROP | ARGUMENTS
