"""One comparison, in the trusted parent, which owns clock, seeds, log and verdict and never imports a candidate.

To follow one on a CPU, read compare() below and then parent/opening; parent/timing/{replicate,driver,cpu};
parent/processes/process, which has the parent's clock; candidate/main, the untrusted side; verifier/main and its
checks; and verdict/.
"""

from __future__ import annotations

import hashlib
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from aisp_mcp.bench import sizes
from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge import candidate_needs, distributed, presets, source_facts
from aisp_mcp.judge.audit_log import ChainLog
from aisp_mcp.judge.evidence import Replicate
from aisp_mcp.judge.lease import Lease
from aisp_mcp.judge.native import build
from aisp_mcp.judge.options import Nodes, Options
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.parent import hints, opening
from aisp_mcp.judge.parent.kernel_cache import Kernels, names_a_compiler
from aisp_mcp.judge.parent.opening import Request
from aisp_mcp.judge.parent.processes import confined, placement, verifier_client
from aisp_mcp.judge.parent.processes.cluster import nodes
from aisp_mcp.judge.parent.processes.confined import Placement
from aisp_mcp.judge.parent.processes.forked import kept_folder, loaded_in
from aisp_mcp.judge.parent.session import ComparisonAborted, NoAnswerThere, PhaseTimer, Session
from aisp_mcp.judge.parent.telling import Report, Telling
from aisp_mcp.judge.parent.timing.cold import ColdRun
from aisp_mcp.judge.parent.timing.cpu import CpuStrategy
from aisp_mcp.judge.parent.timing.driver import Driver
from aisp_mcp.judge.parent.timing.energy import EnergyRun
from aisp_mcp.judge.parent.timing.gpu.strategy import GpuStrategy
from aisp_mcp.judge.parent.timing.ranks import RankStrategy
from aisp_mcp.judge.parent.timing.replicate import ReplicateRun, started_replicates
from aisp_mcp.judge.parent.timing.serving import ServingRun
from aisp_mcp.judge.parent.timing.strategy import Strategy
from aisp_mcp.judge.parent.timing.trial import PATIENCE_S, PRESET, CallTimes, TrialRun, call_times
from aisp_mcp.judge.presets import Place, Preset, for_kind
from aisp_mcp.judge.protocol.layout import FILE
from aisp_mcp.judge.protocol.messages import OpenAnswer
from aisp_mcp.judge.protocol.module_loader import common_of, own_files, project_folders
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.records import CANDIDATE_NEEDS, Skip
from aisp_mcp.judge.records.verdict import Comparison, Flag
from aisp_mcp.judge.verdict import replay
from aisp_mcp.judge.verdict.conclude import conclude, is_settled
from aisp_mcp.judge.verifier.inputs import files
from aisp_mcp.process import isolation

__all__ = ["CallTimes", "Options", "Pair", "Report", "compare", "loaded_in", "time_calls"]

Result = TypeVar("Result")

RAISED = "incorrect_raised"
# The steps that differ between places, and the sequence of one replicate by the benchmark's goal or kind; the others
# time calls.
STRATEGIES: dict[Place, type[Strategy]] = {"cpu": CpuStrategy, "cuda": GpuStrategy, "ranks": RankStrategy}
SEQUENCES: dict[str, type[ReplicateRun]] = {"cold": ColdRun, "energy": EnergyRun, "serving": ServingRun}


def load_libraries(options: Options) -> None:
    """Start the fork servers for verifiers and workers, without waiting until they have loaded.

    For callers that have other work to do before they compare. Raises Unavailable ISOLATION_LEVEL.
    """
    with _libraries_placement(options) as (where, cpus), placement.aside(cpus):
        verifier_client.fork_server(where)
        confined.fork_server(replace(where, level=placement.usable_level(options.isolation, options.device)))


def keep_libraries_loaded(options: Options, folder: Path, seconds: float, baseline: Path | None = None) -> bool:
    """Start fork servers for comparisons that other processes make within forked.loaded_in(folder). baseline: of all
    of them.

    They end when none came for that long, or the folder is removed. Returns False below L2, where none is started
    because candidates could reach them.
    """
    level = placement.usable_level(options.isolation, options.device)
    if level not in isolation.NAMESPACES:
        return False
    with _libraries_placement(options) as (where, cpus), placement.aside(cpus):
        verifiers, workers = verifier_client.libraries(where), confined.libraries(replace(where, level=level))
        verifiers.keep_loaded(folder, seconds, opening.of_baseline(baseline) if baseline else ())
        workers.keep_loaded(folder, seconds, opening.likely(baseline, options.device) if baseline else ())
    return True


@contextmanager
def _libraries_placement(options: Options) -> Iterator[tuple[Placement, frozenset[int]]]:
    """The placement of a process that only loads libraries, and the cores that are measured."""
    with tempfile.TemporaryDirectory(prefix="aisp-") as temporary:
        where = _placements(Path(temporary).resolve(), options, ranks=1)
        yield where.make("libraries"), where.cpus


class _Unmet(Exception):
    """A need that is not met, so that nothing is measured. code: NEEDS, or CANDIDATE_NEEDS."""

    def __init__(self, missing: str, code: str = "NEEDS") -> None:
        super().__init__(missing)
        self.missing, self.code = missing, code


@dataclass(frozen=True)
class _Opened:
    """A specification that a verifier has opened. given: the pair before its candidate was compiled; sources: hashes of
    its files by then; built: facts of the build. leave: begins the opening of the next comparison. ends: actions after
    a success.
    """

    session: Session
    place: Place
    begin: float
    given: Pair
    sources: dict[str, str]
    built: dict[str, Any]
    leave: Callable[[], None]
    ends: list[Callable[[], None]]


@dataclass(frozen=True)
class _Placed:
    """Processes have their cores, and the way of measuring is decided."""

    session: Session
    strategy: Strategy
    sequence: type[ReplicateRun]


@dataclass(frozen=True)
class _Measured:
    """Replicates, and flags beyond what these show."""

    replicates: list[Replicate]
    flags: list[Flag]


def compare(pair: Pair, options: Options, report: Report = lambda *_: None) -> Comparison | Skip:
    """Measure one pair and judge it.

    report(done, total, message) is called as replicates finish. Returns a Skip that names missing needs. Raises
    BenchmarkError if the specification itself cannot be used or a candidate cannot be compiled, Unavailable
    ISOLATION_LEVEL if the requested level is unavailable, and nothing for other errors of a candidate.
    """
    return _where_it_answers(lambda given: _compared(pair, given, report), options)


def _where_it_answers(work: Callable[[Options], Result], options: Options) -> Result:
    """The result; where a program raises or is wrong and the baseline has no answer, of work begun anew without."""
    try:
        return work(options)
    except NoAnswerThere:
        return work(replace(options, redraws=True))


def _compared(pair: Pair, options: Options, report: Report) -> Comparison | Skip:
    with ExitStack() as stack:
        try:
            options = _as_declared(pair, options)
            stack.enter_context(_stays_loaded(options))
            lease = Lease(options.leases, options.device)
            stack.callback(lease.give)
            if options.device == "cuda":
                lease.take()  # its specification is opened on the device that others may be measuring
            opened = _open(pair, options, report, stack)
            placed = _place(opened)
            measured = _measure(placed, opened.given, lease)
            result = conclude(placed.session.terms(), measured.replicates, measured.flags)
            return _record(opened, placed, measured, result)
        except _Unmet as unmet:
            return Skip(target=pair.label, code=unmet.code, missing=unmet.missing)


def time_calls(pair: Pair, options: Options, longest_s: float) -> CallTimes | None:
    """Time a few calls of both functions on a CPU, without a verdict; None if one of the baseline takes longer than
    longest_s.

    Raises BenchmarkError and Unavailable as compare(), and BenchmarkError for a finding on the candidate and for
    missing needs.
    """
    options = _as_declared(pair, replace(options, preset=PRESET, patience_s=PATIENCE_S))
    return _where_it_answers(lambda given: _timed_calls(pair, given, longest_s), options)


def _timed_calls(pair: Pair, options: Options, longest_s: float) -> CallTimes | None:
    with ExitStack() as stack:
        try:
            stack.enter_context(_stays_loaded(options))
            opened = _open(pair, options, lambda *_: None, stack)
            answer = opened.session.opened
            if answer.get("call_s", 0.0) > longest_s:
                return None
            placed = _place(replace(opened, ends=[]))  # the next comparison has other sizes
        except _Unmet as unmet:
            raise BenchmarkError(unmet.code, f"{pair.label} needs {unmet.missing}.") from unmet
        session, strategy = placed.session, placed.strategy
        try:
            with started_replicates(session, strategy) as drivers:
                (result,) = [TrialRun(driver, strategy).run() for driver in drivers]
        except ComparisonAborted as aborted:
            flag = _fatal_flag(session, aborted)
            raise BenchmarkError(flag.code.upper(), flag.message) from aborted
        return call_times(result, varies=not answer["facts"].get("same_output"))


# --- open


def _stays_loaded(options: Options) -> AbstractContextManager[None]:
    """Use the processes in the options' folder, unless the caller has others, or candidates could reach them."""
    if options.warm is None or kept_folder():
        return nullcontext()
    if placement.usable_level(options.isolation, options.device) not in isolation.NAMESPACES:
        return nullcontext()
    return loaded_in(options.warm, asks=options.protections.clean_environment)


def _as_declared(pair: Pair, options: Options) -> Options:
    """The options with the device that the specification asks for, if it does, and that device's sizes; its generator
    and its checker are hidden.
    """
    hidden = (*options.policy.hidden, *own_files(pair.baseline))
    options = replace(options, policy=replace(options.policy, hidden=hidden))
    needs = source_facts.read(pair.baseline.read_bytes(), pair.baseline.suffix, baseline=True).needs
    if options.device == "cpu" or needs.get("device") != "cpu":
        return options
    return replace(options, device="cpu", size=replace(sizes.read(options.size), preset="small").text())


def _open(given: Pair, options: Options, report: Report, stack: ExitStack) -> _Opened:
    """Start the verifier and have it open the specification, while workers' libraries load. The stack closes everything
    that is started.
    """
    begin, timer, ranks = time.monotonic(), PhaseTimer(), distributed.ranks(given.baseline, options.size)
    place: Place = "ranks" if ranks > 1 else "cuda" if options.device == "cuda" else "cpu"
    options = options if ranks > 1 else replace(options, nodes=Nodes())
    isolation.demand(options.isolation)  # first: an unavailable level must not end a running comparison
    if missing := _lacks(given, options):
        raise _Unmet(missing)
    sources, (pair, built) = given.sources(), given.compiled()
    log = ChainLog(options.folder / f"{pair.label.replace(':', '-').replace('/', '-')}.rounds.jsonl")
    stack.callback(log.close)
    if built:
        log.append("build", **built)
    ends = stack.enter_context(_after_success())
    temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="aisp-", ignore_cleanup_errors=True))
    where = _placements(Path(temporary).resolve(), options, ranks // options.nodes.count)
    files_at = {"warm": stack.enter_context(_in_memory()), "cold": str(where.root / "files")}
    telling = Telling(pair.label, options.preset.replicates, report)
    telling.prepare("loading what the programs import")
    with timer.phase("load"):
        relays = nodes.started(options.nodes)
    request = _request(
        pair, options, place, files_at, ranks, [node.round_trip_s for node in relays], where.make("verifier")
    )
    with timer.phase("load"), placement.aside(where.cpus):
        level = _load_workers(pair, where, request, relays, options)
        begun = request.left() or request.begun()
    stack.callback(begun.close)
    leave = partial(request.leave, where)
    with timer.phase("open"):
        where = replace(where, level=level, relays=relays)
        kernels = None
        if ranks == 1 and level in isolation.NAMESPACES and (options.device == "cuda" or names_a_compiler(pair)):
            kernels = Kernels(pair, options, where, begun.placement, STRATEGIES[place].caches)
            stack.callback(kernels.close)
        telling.prepare("drawing inputs, and computing what the baseline answers")
        answer = begun.answer(request)
    draw, process = random.Random(os.urandom(32)), (begun.verifier, begun.fds)
    session = Session(pair, options, answer, where, *process, log, draw, timer, telling, kernels=kernels)
    return _Opened(session, place, begin, given, sources, built, leave, ends)


def _lacks(pair: Pair, options: Options) -> str | None:
    """A requirement of the pair that this machine does not meet, judged from its files without running them."""
    if build.is_native(pair.path) and (missing := build.lacks(pair.path, options.device)):
        return missing
    own = [pair.baseline.parent, *project_folders(pair.baseline), *project_folders(pair.path)]
    missing = candidate_needs.lacks(pair.path, options.device, own)
    return missing or distributed.lacks(pair.baseline, options.size, bool(options.variables), options.nodes.count)


@contextmanager
def _after_success() -> Iterator[list[Callable[[], None]]]:
    """A list of actions for the end of the context; none is taken after an error."""
    actions = list[Callable[[], None]]()
    yield actions
    for act in actions:
        act()


@contextmanager
def _in_memory() -> Iterator[str]:
    """A folder for files that stay in memory."""
    where = files.memory_folder()
    with tempfile.TemporaryDirectory(prefix="aisp-", dir=where, ignore_cleanup_errors=True) as folder:
        yield str(Path(folder).resolve())


def _placements(root: Path, options: Options, ranks: int) -> placement.PlacementFactory:
    """Folders and cores of processes before the specification is known. ranks: of each program on this node."""
    return placement.PlacementFactory(
        root,
        options.device,
        "L1",
        placement.measuring_cpus(ranks),
        options.protections.clean_environment,
        hidden=options.policy.hidden,
        ranks=ranks,
        network=options.nodes.count > 1,
    )


def _request(
    pair: Pair,
    options: Options,
    place: Place,
    files_at: dict[str, str],
    ranks: int,
    round_trips_s: Sequence[float],
    where: Placement,
) -> Request:
    """The request to open the pair's specification. where: of the verifier."""
    fields = {
        "path": str(pair.baseline),
        "size": options.size,
        "device": options.device,
        "protections": asdict(options.protections),
        "seed": options.battery_seed(pair.baseline),  # what it finds is the same every time
        "budget": STRATEGIES["cuda" if options.device == "cuda" else place].round_bytes,
        "redraws": options.redraws,
        "round_s": for_kind(options.preset, place, round_trips_s=round_trips_s).round_s,
        "files_at": files_at,
        "cpus": sorted(os.sched_getaffinity(0)),
        "ranks": ranks,
    }
    file_bytes = 0 if options.protections.sealed else 2 * STRATEGIES["cpu"].round_bytes
    modules, workers = tuple(opening.of_baseline(pair.baseline)), 2 * len(Role) * ranks
    return Request(fields, where, modules, workers, file_bytes, options.patience_s)


def _load_workers(
    pair: Pair,
    where: placement.PlacementFactory,
    request: Request,
    relays: tuple[nodes.Node, ...],
    options: Options,
) -> isolation.Level:
    """Have the fork servers for workers load what the pair imports, here and on the other nodes. Returns the highest
    level that all nodes can provide.
    """
    level = nodes.usable_level(relays, placement.usable_level(options.isolation, options.device), options.isolation)
    workers = confined.fork_server(replace(request.placement, level=level))  # loads while the verifier's server does
    workers.load([*request.modules, *opening.of_candidate(pair)])
    _open_nodes(replace(where, level=level, relays=relays, variables=options.variables))
    return level


def _open_nodes(where: placement.PlacementFactory, workers: int = 0, threads: int = 0) -> None:
    """Tell the other nodes how to run their ranks; without workers, only to load libraries."""
    for node in where.relays:
        how = {"level": where.level, "clean": where.clean, "variables": where.variables}
        hidden = list(map(str, where.hidden))
        node.open(workers=workers, ranks=where.ranks, threads=threads, hidden=hidden, **how)


# --- place


def _place(opened: _Opened) -> _Placed:
    """Decide how to measure, and on which cores."""
    session = opened.session
    answer, options, where = session.opened, session.options, session.placement
    if "missing" in answer:
        raise _Unmet(", ".join(answer["missing"]))
    kind = "serving" if "serving" in answer else answer["goal"]
    sequence = SEQUENCES.get(kind, ReplicateRun)
    # An engine runs its own rounds on any device: there are no calls to prepare or trace.
    strategy = STRATEGIES["cpu" if kind == "serving" else opened.place]()
    round_trips_s = [node.round_trip_s for node in where.relays]
    preset = for_kind(options.preset, opened.place, kind, round_trips_s, answer["call_s"])
    unmeasured = distributed.unmeasured(answer["goal"], session.ranks, options.device, options.nodes.count)
    if lacking := unmeasured or sequence.lacks(answer, options, where.level):
        raise _Unmet(lacking)
    cpus = placement.worker_cpus(answer["workers"]["threads"], where.ranks)
    where = replace(where, lean=answer["goal"] == "memory", cpus=cpus, variables=options.variables)
    _ready_nodes(session.pair, where, answer)
    session.log.append("open", target=session.pair.label, preset=options.preset.name, opened=answer)
    if session.ranks == 1 and not any(spec["kind"] == FILE for spec in answer["layout"]["inputs"]):
        opened.ends.append(opened.leave)
    thorough = session.random.randrange(preset.first_look)
    session = replace(session, options=replace(options, preset=preset), placement=where, thorough=thorough)
    return _Placed(session, strategy, sequence)


def _ready_nodes(pair: Pair, where: placement.PlacementFactory, opened: OpenAnswer) -> None:
    if where.relays and opened["workers"]["files_at"]:
        raise _Unmet("one node: inputs that are files")
    nodes.require_same_files(where.relays, [pair.baseline, pair.path, common_of(pair.baseline)])
    for node in where.relays:
        if lacking := distributed.lacks_cores(where.ranks, node.cores):
            raise _Unmet(f"{lacking} on {node.name}")
    _open_nodes(where, 2 * len(Role), opened["workers"]["threads"])
    opened["facts"] |= nodes.facts(where.relays)


# --- measure


def _measure(placed: _Placed, given: Pair, lease: Lease) -> _Measured:
    """Measure replicates until the preset ends or a finding does, and collect the flags that follow from neither."""
    session, options = placed.session, placed.session.options
    lease.take()
    try:
        replicates, flags = _replicates(placed)
    finally:
        lease.give()
    session.opened["facts"] |= lease.facts()
    raised = [flag.message for flag in flags if flag.code == RAISED]
    if raised and (missing := candidate_needs.told_by(raised[0], options.device)):
        raise _Unmet(missing, CANDIDATE_NEEDS)
    flags = [hints.flag(flag) for flag in flags]
    flags += session.kernels.unbuilt() if session.kernels and not raised else []
    flags += hints.notes(options.policy.forbidden, flags, options.policy.rules)
    flags += [*distributed.note(options.variables), *nodes.note(session.placement.relays)]
    return _Measured(replicates, [*flags, *hints.hints(given.path)])


def _replicates(placed: _Placed) -> tuple[list[Replicate], list[Flag]]:
    """Measure all replicates, or stop at the finding that ends the comparison."""
    session, strategy, sequence = placed.session, placed.strategy, placed.sequence
    done: list[Replicate] = []
    session.telling.begin(session.options.preset.replicates)
    running: Driver | None = None
    try:
        with started_replicates(session, strategy, sequence.starts_ready) as drivers:
            strategy.note_imports(session)
            for index, running in enumerate(drivers):
                session.telling.replicate(index)
                with placement.watching(session.placement.cpus):
                    done.append(sequence(running, strategy).run())
                if is_settled(session.terms(), done):
                    break
    except ComparisonAborted as aborted:
        flag = _fatal_flag(session, aborted)
        if running and not any(running.result is replicate for replicate in done):
            done.append(running.result)
        return done, [flag]
    session.telling.judging()
    return done, []


def _fatal_flag(session: Session, aborted: ComparisonAborted) -> Flag:
    """The flag of a finding on the candidate. Raises BenchmarkError for one on the baseline, and NoAnswerThere until
    inputs without an answer are drawn again.
    """
    if isinstance(aborted, NoAnswerThere) and not session.options.redraws:
        raise aborted
    if aborted.code.startswith("baseline_"):
        hint = "The baseline is the specification; it must run and agree with its own reference."
        message = f"{session.pair.target}: {aborted.message}"
        raise BenchmarkError(aborted.code.upper(), message, hint) from aborted
    session.log.append("aborted", code=aborted.code, message=aborted.message, evidence=aborted.evidence)
    return Flag(code=aborted.code, severity="fatal", message=aborted.message, evidence=aborted.evidence)


# --- record


def _record(opened: _Opened, placed: _Placed, measured: _Measured, result: Comparison) -> Comparison:
    """Write what the verdict follows from into the log, and the log's place into the verdict."""
    log, pair, options = placed.session.log, placed.session.pair, placed.session.options
    for kind, fields in replay.records(placed.session.terms(), measured.replicates, measured.flags, opened.sources):
        log.append(kind, **fields)
    disclosed = {"size": options.size, **({"build": opened.built} if opened.built else {}), **_common(pair)}
    if forbidden := [*options.policy.forbidden, *options.policy.rules]:
        disclosed["forbidden"] = forbidden
    seconds = time.monotonic() - opened.begin
    log.append("verdict", verdict=result.verdict, ratio=result.ratio, disclosed=disclosed, seconds=seconds)
    where = {"log_path": str(log.path), "log_sha256": log.head, "seconds": seconds}
    return result.model_copy(update={"disclosed": {**result.disclosed, **disclosed}, **where})


def _common(pair: Pair) -> dict[str, str]:
    """The hash of the common file that both baseline and candidate may import, if there is one."""
    path = common_of(pair.baseline)
    return {"common_sha256": hashlib.sha256(path.read_bytes()).hexdigest()} if path.is_file() else {}


def estimate_s(pair: Pair, preset: Preset) -> float:
    """Upper estimate of the wall seconds of one pair; several ranks take longer to start and to run."""
    if distributed.declared(pair.baseline) == 1:
        return presets.estimate_s(preset)
    return presets.estimate_s(for_kind(preset, "ranks"), start_s=5.0)
