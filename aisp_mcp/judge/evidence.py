"""Records of one replicate: rounds, overhead, and evidence about the device. No I/O."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aisp_mcp.judge.protocol.roles import BASELINES, Role

# --- calibrated constants

# Share of a call that always remains when a cost is subtracted that a candidate may skip. Chosen: such a cost can make
# a call look at most twice as fast, and the worker's own clock and isolated calls bound that.
MIN_NET_SHARE = 0.5
# Share of a round on a CPU that always remains of it. Chosen: less remains only if calls are far too short to judge.
NET_FLOOR = 0.1
# Share of a round that its worker must have run. Chosen: if other programs took more, the round is not evidence.
MIN_RUNNING_SHARE = 0.1
# Seconds of a round's fixed cost (0.2 to 0.4 ms, docs/harness.md) that are spent in the worker's process, where a
# candidate could skip them. Chosen: the rest is spent in the parent and in the kernel.
SKIPPABLE_S = 50e-6

# Seconds of the loop around each call, at least, which a candidate could skip: the round's fixed cost varies more than
# all loops of a round take. Measured on 3 GHz cores: 0.2 µs.
LOOP_S = 0.25e-6

LOG_NAMES = {"busy_probes_s": "busy", "late_rounds": "late", "candidate_calls": "calls"}  # of DeviceEvidence

SecondsByRole = dict[Role, float]
ValuesByRole = dict[Role, float]


@dataclass(frozen=True)
class Account:
    """Totals of a process tree as the kernel counts them: CPU seconds, page faults, threads and processes.

    delayed_s: seconds that the first thread of the first process was ready to run while its core ran another program.
    first_s: CPU seconds of that thread.
    """

    cpu_s: float = 0.0
    minor_faults: int = 0
    major_faults: int = 0
    threads: int = 0
    processes: int = 0
    delayed_s: float = 0.0
    first_s: float = 0.0

    @property
    def disturbed_s(self) -> float:
        """Seconds that other programs took from the first thread: the delays, minus the time that its own tree worked
        elsewhere, since it may have waited for that.
        """
        return max(self.delayed_s - max(self.cpu_s - self.first_s, 0.0), 0.0)

    def since(self, earlier: Account) -> Account:
        """Growth of the counters since an earlier reading; threads and processes as they are now."""
        grown = {name: value - getattr(earlier, name) for name, value in vars(self).items()}
        return Account(**{**grown, "threads": self.threads, "processes": self.processes})


@dataclass(frozen=True)
class RoundTiming:
    """One round as the parent measured it. elapsed_s: on the parent's raw monotonic clock. durations_ns: of each call,
    on the worker's own clock. copied_s: time between calls spent on copying outputs, as the worker reports it. late_s:
    time that other programs took from the parent itself, at both ends of the round. converted_s, settled_s: what it
    took before to make `converted` arguments of inputs, and afterwards to make tensors of outputs, on the parent's
    clock. apart_ns: of several ranks, how much longer the slowest one took for each call than the fastest one, on their
    own clocks; in a log, the median alone.
    """

    count: int
    elapsed_s: float
    durations_ns: list[int]
    account: Account
    copied_s: float = 0.0
    late_s: float = 0.0
    converted_s: float = 0.0
    settled_s: float = 0.0
    converted: int = 0
    apart_ns: list[int] = field(default_factory=list)

    @property
    def running_s(self) -> float:
        """Seconds on the parent's clock minus those that other programs took; at least the time that the worker's first
        thread was seen to compute.
        """
        undisturbed_s = self.elapsed_s - self.late_s - self.account.disturbed_s
        return max(undisturbed_s, min(self.account.first_s, self.elapsed_s), MIN_RUNNING_SHARE * self.elapsed_s)

    @property
    def cost(self) -> RoundCost:
        """The input of fit_overhead() from one round of a baseline."""
        elapsed_s = self.elapsed_s - self.late_s - self.copied_s
        return RoundCost(elapsed_s, sum(self.durations_ns) / 1e9, self.count)

    @property
    def settling(self) -> RoundCost:
        """The input of fit_overhead() from the conversion of outputs after the round."""
        return RoundCost(self.settled_s, 0.0, self.count)


class RoundCost(NamedTuple):
    """Seconds of a whole round, and of the calls in it."""

    elapsed_s: float
    inside_s: float
    calls: int


@dataclass(frozen=True)
class Round:
    """One timed round. net_s: seconds per call on the parent's clock, without overhead. median_s: of its calls, on the
    worker's clock.
    """

    role: Role
    net_s: float
    median_s: float
    timing: RoundTiming


@dataclass(frozen=True)
class Overhead:
    """Seconds that a CPU round takes beyond its calls: once (resume, pipe, wake-up), and per call (the loop, and copies
    of outputs if the parent cannot read them). credited_s: the excess of the candidate's timed rounds over its calls,
    by the parent's clock, because it copies outputs that it returns repeatedly in one buffer. settling_s: what the
    message costs with which outputs are converted after a round.
    """

    fixed_s: float
    per_call_s: float
    credited_s: float = 0.0
    settling_s: float = 0.0

    def net(self, running_s: float, count: int) -> float:
        """Seconds per call on the parent's clock, without overhead."""
        raw = running_s / count
        return max(raw - self.fixed_s / count - self.per_call_s, NET_FLOOR * raw)

    def resolution(self, net_s: float, count: int) -> float:
        """The fraction of such a call's time that is subtracted although a candidate could have skipped it."""
        return (max(self.per_call_s, LOOP_S) + min(SKIPPABLE_S, self.fixed_s) / count) / net_s


@dataclass
class DeviceEvidence:
    """Evidence of one replicate on a GPU; empty on a CPU. SecondsByRole are seconds per call."""

    # On the parent's clock, with the stream gate, as measured (verdict/estimate.with_usable_seconds).
    device_only: SecondsByRole = field(default_factory=dict)
    # On the parent's clock in rounds that include host time; measured only if the worker's clock disagrees with
    # device_only.
    with_host: SecondsByRole = field(default_factory=dict)
    # The candidate's rounds include copies that the baselines' do not.
    copying: bool = False
    # Why the parent's clock includes more than the candidate's work; empty if it does not.
    overcounted: str = ""
    # Counts of the candidate's profiler (candidate/cupti.py).
    activity: dict[str, int] = field(default_factory=dict)
    # Seconds of the verifier's smallest kernel, before each round in which it took far longer than on an idle device.
    busy_probes_s: list[float] = field(default_factory=list)
    # Number of rounds of each role after whose end the device was still working.
    late_rounds: dict[Role, int] = field(default_factory=dict)
    # As device_only, of isolated calls; includes what all roles share (verifier/handoff_gpu.py).
    isolated: SecondsByRole = field(default_factory=dict)
    # As with_host, of isolated calls; includes what all roles share.
    isolated_with_host: SecondsByRole = field(default_factory=dict)
    # On each worker's own clock, in the rounds of with_host.
    worker_with_host: SecondsByRole = field(default_factory=dict)
    # device_only excludes the host.
    gated: bool = False
    # Calls of the candidate in parent-timed rounds.
    candidate_calls: int = 0
    # Seconds of copies in each call of device_only, of roles whose copies the others do not have: of baselines, in
    # their isolated calls as well.
    copies_s: SecondsByRole = field(default_factory=dict)
    # The same of with_host.
    copies_with_host_s: SecondsByRole = field(default_factory=dict)
    # Parent-timed rounds of the candidate that were discarded because the device was not idle before them.
    discarded_rounds: int = 0

    def log_fields(self) -> dict[str, Any]:
        """The fields under their names in the log."""
        return {LOG_NAMES.get(name, name): value for name, value in vars(self).items()}


@dataclass(kw_only=True)
class Checks:
    """Findings of one replicate's comparisons. checked: number of timed calls that were compared. worst_ratio: largest
    error, in the tolerance's unit. measures: the worst value of each further figure of the contract. edge: largest
    share of the contract's limit, if it is close to the limit, and the inputs that show it.
    """

    checked: int = 0
    worst_ratio: float = 0.0
    measures: dict[str, float] = field(default_factory=dict)
    edge: tuple[float, str] = (0.0, "")


@dataclass
class Replicate(Checks):
    """Result of three fresh processes.

    host_peak: bytes that calls added to the prepared process at their worst, as the kernel counts. isolated: seconds of
    isolated calls per role, from some rounds; empty if all rounds are of one call. handoffs_s: what isolated calls took
    beyond these seconds in each of the rounds, for handing over and converting values (timing/cpu.py); empty if these
    are whole rounds of one call. metric: value per role of a goal other than time per call (verdict/conclude.py), the
    smaller the better; empty for other goals. second_s: seconds of each program's second call, if the first one was
    measured alone. idle_w: power of the idle device before and after the calls whose energy
    was counted. kinds: by kind of inputs, plain ones among them, seconds per call of the baseline, of its repeat, and
    of the candidate in its first and its last rounds (verdict/values.py). ended_rounds: on a GPU, rounds of each role,
    timed or not, after whose end the device was probed. dropped_s: on a CPU, seconds of the median call on each
    worker's own clock, in rounds whose inputs were read before each call and whose outputs were released after it.
    """

    index: int
    rounds: list[Round] = field(default_factory=list)
    overhead: Overhead = field(default_factory=lambda: Overhead(0.0, 0.0))
    prepare_s: SecondsByRole = field(default_factory=dict)
    host_peak: dict[Role, int] = field(default_factory=dict)
    isolated: dict[Role, list[float]] = field(default_factory=dict)
    handoffs_s: dict[Role, list[float]] = field(default_factory=dict)
    stats: dict[Role, list[int]] = field(default_factory=dict)
    device: DeviceEvidence = field(default_factory=DeviceEvidence)
    metric: ValuesByRole = field(default_factory=dict)
    second_s: SecondsByRole = field(default_factory=dict)
    idle_w: tuple[float, ...] = ()
    ended_rounds: dict[Role, int] = field(default_factory=dict)
    kinds: dict[str, list[float]] = field(default_factory=dict)
    dropped_s: dict[Role, list[float]] = field(default_factory=dict)


# Ends of names of measures that are no errors: positions in this output pointed to equal elements; it was wrong or
# imprecise on large inputs; counts in it had moved on tiny inputs; the share that the baseline leaves undecided; the
# error as a share of its size on inputs far from 0 for their spread.
TIES, LARGE, TINY, UNDECIDED, CANCELLED = " ties", " large", " tiny", " undecided", " cancelled"
# Names of measures of answers that are Python values: 0 if all numbers are of float32, and not the baseline's; the
# largest difference as a share of the largest value.
NOT_SINGLE, APART = "not_single", "apart"


def merge_measures(worst: dict[str, float], more: Mapping[str, float]) -> None:
    """Keep the worse of each pair of values: the smaller signal-to-noise ratio (`_db`), the larger error."""
    for name, value in more.items():
        keep = min if name.endswith("_db") else max
        worst[name] = keep(worst.get(name, value), value)


def baseline_s(seconds: SecondsByRole) -> float:
    """Mean of both baselines, of seconds per call of each role."""
    return sum(seconds[role] for role in BASELINES) / 2


@dataclass(frozen=True)
class ServedRequest:
    """Delivery of one request on the parent's clock, seconds from the start of its trace. stamps_s: of its tokens."""

    arrived_s: float
    stamps_s: tuple[float, ...]

    @property
    def ttft(self) -> float:
        """Time to first token."""
        return self.stamps_s[0] - self.arrived_s

    @property
    def e2e(self) -> float:
        """Time from arrival to last token."""
        return self.stamps_s[-1] - self.arrived_s

    @property
    def itl(self) -> list[float]:
        """Gaps between tokens."""
        return [later - earlier for earlier, later in itertools.pairwise(self.stamps_s)]

    @property
    def tpot(self) -> float | None:
        """Mean time per token after the first one."""
        further = len(self.stamps_s) - 1
        return (self.stamps_s[-1] - self.stamps_s[0]) / further if further else None


@dataclass(frozen=True)
class ServedTrace:
    """One trace as one worker served it. look_s: 95th percentile of the pauses between polls of the ring."""

    role: Role
    requests: tuple[ServedRequest, ...]
    look_s: float


@dataclass
class ServedReplicate(Replicate):
    """Replicate of a serving benchmark. alone_s: the baseline's median ttft and tpot of single requests."""

    traces: list[ServedTrace] = field(default_factory=list)
    alone_s: dict[str, float] = field(default_factory=dict)
