"""Run one comparison in the trusted parent, which owns clock, seeds, log and verdict and never imports a candidate.

To follow one comparison on a CPU, read these files in order: this module; parent/timing/startup, replicate and driver;
parent/processes/process, which has the parent's clock; worker/main, the untrusted side; verifier/main and
verifier/checks/round_checker; verdict/conclude, estimate, bound and verdict.
"""

from __future__ import annotations

import hashlib
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from aisp_mcp.bench import sizes
from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge import candidate_needs, distributed, presets, source_facts
from aisp_mcp.judge.audit_log import ChainLog
from aisp_mcp.judge.evidence import Replicate
from aisp_mcp.judge.native import build
from aisp_mcp.judge.options import Nodes, Options
from aisp_mcp.judge.pair import Pair
from aisp_mcp.judge.parent import hints, opening
from aisp_mcp.judge.parent.kernel_cache import Kernels, names_a_compiler
from aisp_mcp.judge.parent.opening import Request
from aisp_mcp.judge.parent.processes import confined, placement, verifier_client
from aisp_mcp.judge.parent.processes.cluster import nodes
from aisp_mcp.judge.parent.processes.confined import Placement
from aisp_mcp.judge.parent.processes.forked import loaded_in
from aisp_mcp.judge.parent.session import ComparisonAborted, PhaseTimer, Session
from aisp_mcp.judge.parent.timing.cold import ColdRun
from aisp_mcp.judge.parent.timing.cpu import CpuStrategy
from aisp_mcp.judge.parent.timing.driver import Driver
from aisp_mcp.judge.parent.timing.energy import EnergyRun
from aisp_mcp.judge.parent.timing.gpu.strategy import GpuStrategy
from aisp_mcp.judge.parent.timing.ranks import GroupStrategy
from aisp_mcp.judge.parent.timing.replicate import ReplicateRun, started_replicates
from aisp_mcp.judge.parent.timing.serving import ServingRun
from aisp_mcp.judge.parent.timing.strategy import Strategy
from aisp_mcp.judge.protocol.layout import FILE
from aisp_mcp.judge.protocol.messages import OpenAnswer
from aisp_mcp.judge.protocol.module_loader import common_of, project_folders
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.records import CANDIDATE_NEEDS, Skip
from aisp_mcp.judge.records.verdict import Comparison, Flag
from aisp_mcp.judge.verdict import replay
from aisp_mcp.judge.verdict.conclude import conclude, is_settled
from aisp_mcp.judge.verifier.inputs import files
from aisp_mcp.process import isolation

__all__ = ["Options", "Pair", "Report", "compare", "loaded_in"]

STRATEGIES: dict[str, type[Strategy]] = {"cpu": CpuStrategy, "cuda": GpuStrategy}
# Of one replicate, by the benchmark's goal, or its kind; the others time calls.
SEQUENCES: dict[str, type[ReplicateRun]] = {"cold": ColdRun, "energy": EnergyRun, "serving": ServingRun}
RAISED = "incorrect_raised"
Report = Callable[[float, float, str], None]


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

    They end after that time, or when the folder is removed. Returns False below L2, where none is started because
    candidates could reach them.
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


def compare(pair: Pair, options: Options, report: Report = lambda *_: None) -> Comparison | Skip:
    """Measure one pair and judge it.

    report(done, total, message) is called as replicates finish. Returns a Skip that names missing needs. Raises
    BenchmarkError if the specification itself cannot be used or a candidate cannot be compiled, Unavailable
    ISOLATION_LEVEL if the requested level is unavailable, and nothing for other errors of a candidate.
    """
    options = _on_declared_device(pair, options)
    ranks = distributed.ranks(pair.baseline, options.size)
    options = options if ranks > 1 else replace(options, nodes=Nodes())
    strategy = GroupStrategy() if ranks > 1 else STRATEGIES[options.device]()
    options = replace(options, preset=strategy.adapt(options.preset))
    begin = time.monotonic()
    with ExitStack() as stack:
        isolation.demand(options.isolation)  # first: an unavailable level must not end a running comparison
        if missing := _lacks(pair, options):
            return Skip(target=pair.label, code="NEEDS", missing=missing)
        sources, source, (pair, built) = pair.sources(), pair.path, pair.compiled()
        log = ChainLog(options.folder / f"{pair.label.replace(':', '-').replace('/', '-')}.rounds.jsonl")
        stack.callback(log.close)
        if built:
            log.append("build", **built)
        session = _open(pair, options, strategy, log, stack, report, ranks)
        if isinstance(session, Skip):
            return session
        if "serving" in session.opened:
            # An engine runs its own rounds on any device: there are no calls to prepare or trace.
            strategy = CpuStrategy()
        replicates, flags = _replicates(session, strategy, report)
        raised = [flag.message for flag in flags if flag.code == RAISED]
        if raised and (missing := candidate_needs.told_by(raised[0], options.device)):
            return Skip(target=pair.label, code=CANDIDATE_NEEDS, missing=missing)
        flags = [hints.flag(flag) for flag in flags]
        flags += session.kernels.unbuilt() if session.kernels and not raised else []
        flags += hints.notes(options.policy.forbidden, flags)
        flags += [*distributed.note(options.variables), *nodes.note(session.placement.relays)]
        terms, flags = session.terms(), [*flags, *hints.hints(source)]
        result = conclude(terms, replicates, flags)
        for kind, fields in replay.records(terms, replicates, flags, sources):
            log.append(kind, **fields)
        disclosed = {"size": options.size, **({"build": built} if built else {}), **_common(pair)}
        disclosed |= {"forbidden": list(options.policy.forbidden)} if options.policy.forbidden else {}
        seconds = time.monotonic() - begin
        log.append("verdict", verdict=result.verdict, ratio=result.ratio, disclosed=disclosed, seconds=seconds)
        where = {"log_path": str(log.path), "log_sha256": log.head, "seconds": seconds}
        return result.model_copy(update={"disclosed": {**result.disclosed, **disclosed}, **where})


def _on_declared_device(pair: Pair, options: Options) -> Options:
    """The options with the device that the specification asks for, if it does, and that device's sizes."""
    needs = source_facts.read(pair.baseline.read_bytes(), pair.baseline.suffix, baseline=True).needs
    if options.device == "cpu" or needs.get("device") != "cpu":
        return options
    return replace(options, device="cpu", size=replace(sizes.read(options.size), preset="small").text())


def _lacks(pair: Pair, options: Options) -> str | None:
    """A requirement of the pair that this machine does not meet, judged from its files without running them."""
    if build.is_native(pair.path) and (missing := build.lacks(pair.path, options.device)):
        return missing
    own = [pair.baseline.parent, *project_folders(pair.baseline), *project_folders(pair.path)]
    missing = candidate_needs.lacks(pair.path, options.device, own)
    return missing or distributed.lacks(pair.baseline, options.size, bool(options.variables), options.nodes.count)


def _common(pair: Pair) -> dict[str, str]:
    """The hash of the common file that both baseline and candidate may import, if there is one."""
    path = common_of(pair.baseline)
    return {"common_sha256": hashlib.sha256(path.read_bytes()).hexdigest()} if path.is_file() else {}


def _open(
    pair: Pair, options: Options, strategy: Strategy, log: ChainLog, stack: ExitStack, report: Report, ranks: int
) -> Session | Skip:
    """Start the verifier and have it open the specification. The stack closes everything that is started."""
    draw, timer = random.Random(os.urandom(32)), PhaseTimer()
    afterwards = stack.enter_context(_after_success())
    temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="aisp-", ignore_cleanup_errors=True))
    where = before = _placements(Path(temporary).resolve(), options, ranks // options.nodes.count)
    files_at = {"warm": stack.enter_context(_in_memory()), "cold": str(where.root / "files")}
    report(0, options.preset.replicates, f"{pair.label}: preparing")
    with timer.phase("load"):
        relays = nodes.started(options.nodes)
    options = replace(options, preset=nodes.adapt(options.preset, relays))
    request = _request(pair, options, strategy.round_bytes, files_at, ranks, where.make("verifier"))
    with timer.phase("load"), placement.aside(where.cpus):
        level = _load_workers(pair, where, request, relays, options)
        opening = request.left() or request.begun()
    stack.callback(opening.close)
    with timer.phase("open"):
        where = replace(where, level=level)
        kernels = None
        if ranks == 1 and level in isolation.NAMESPACES and (options.device == "cuda" or names_a_compiler(pair)):
            kernels = Kernels(pair, options, where, opening.placement, strategy.caches)
            stack.callback(kernels.close)
        opened = opening.answer(request)
    if "missing" in opened:
        return Skip(target=pair.label, code="NEEDS", missing=", ".join(opened["missing"]))
    unmeasured = distributed.unmeasured(opened["goal"], ranks, options.device, options.nodes.count)
    if lacking := unmeasured or _sequence(opened).lacks(opened, options, where.level):
        return Skip(target=pair.label, code="NEEDS", missing=lacking)
    cpus = placement.worker_cpus(opened["workers"]["threads"], where.ranks)
    where = replace(where, lean=opened["goal"] == "memory", cpus=cpus, variables=options.variables, relays=relays)
    if lacking := _ready_nodes(pair, where, opened):
        return Skip(target=pair.label, code="NEEDS", missing=lacking)
    log.append("open", target=pair.label, preset=options.preset.name, opened=opened)
    options = replace(options, preset=_sequence(opened).adapt(options.preset))
    thorough = draw.randrange(options.preset.first_look)
    if ranks == 1 and not any(spec["kind"] == FILE for spec in opened["layout"]["inputs"]):
        afterwards.append(partial(request.leave, before))
    memory = opening.verifier, opening.fds
    return Session(pair, options, opened, where, *memory, log, draw, timer, thorough, kernels=kernels)


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


def _ready_nodes(pair: Pair, where: placement.PlacementFactory, opened: OpenAnswer) -> str:
    """Prepare the other nodes for their ranks; return the need that one of them does not meet, in words."""
    if where.relays and opened["workers"]["files_at"]:
        return "one node: inputs that are files"
    nodes.require_same_files(where.relays, [pair.baseline, pair.path, common_of(pair.baseline)])
    for node in where.relays:
        if lacking := distributed.lacks_cores(where.ranks, node.cores):
            return f"{lacking} on {node.name}"
    _open_nodes(where, 2 * len(Role), opened["workers"]["threads"])
    opened["facts"] |= nodes.facts(where.relays)
    return ""


def _open_nodes(where: placement.PlacementFactory, workers: int = 0, threads: int = 0) -> None:
    """Tell the other nodes how to run their ranks; without workers, only to load libraries."""
    for node in where.relays:
        how = {"level": where.level, "clean": where.clean, "variables": where.variables}
        hidden = list(map(str, where.hidden))
        node.open(workers=workers, ranks=where.ranks, threads=threads, hidden=hidden, **how)


def _sequence(opened: OpenAnswer) -> type[ReplicateRun]:
    """The sequence of a replicate for the specification's kind or goal."""
    return SEQUENCES.get("serving" if "serving" in opened else opened["goal"], ReplicateRun)


def _request(
    pair: Pair, options: Options, budget: int, files_at: dict[str, str], ranks: int, where: Placement
) -> Request:
    """The request to open the pair's specification. where: of the verifier."""
    fields = {
        "path": str(pair.baseline),
        "size": options.size,
        "device": options.device,
        "protections": asdict(options.protections),
        "seed": options.battery_seed(pair.baseline),  # what it finds is the same every time
        "budget": budget,
        "round_s": options.preset.round_s,
        "files_at": files_at,
        "cpus": sorted(os.sched_getaffinity(0)),
        "ranks": ranks,
    }
    file_bytes = 0 if options.protections.sealed else 2 * CpuStrategy.round_bytes
    return Request(fields, where, tuple(opening.of_baseline(pair.baseline)), 2 * len(Role) * ranks, file_bytes)


def _replicates(session: Session, strategy: Strategy, report: Report) -> tuple[list[Replicate], list[Flag]]:
    """Measure all replicates, or stop at the finding that ends the comparison."""
    done: list[Replicate] = []
    pair, total = session.pair, session.options.preset.replicates
    running: Driver | None = None
    sequence = _sequence(session.opened)
    try:
        with started_replicates(session, strategy, sequence.starts_ready) as drivers:
            strategy.note_imports(session)
            for index, running in enumerate(drivers):
                report(index, total, f"{pair.label}: replicate {index + 1} of {total}")
                with placement.watching(session.placement.cpus):
                    done.append(sequence(running, strategy).run())
                if is_settled(session.terms(), done):
                    break
    except ComparisonAborted as aborted:
        flag = _fatal_flag(session, aborted)
        if running and not any(running.result is replicate for replicate in done):
            done.append(running.result)
        return done, [flag]
    report(total, total, f"{pair.label}: judging")
    return done, []


def _fatal_flag(session: Session, aborted: ComparisonAborted) -> Flag:
    """The flag of a finding on the candidate. Raises BenchmarkError for one on the baseline."""
    if aborted.code.startswith("baseline_"):
        hint = "The baseline is the specification; it must run and agree with its own reference."
        message = f"{session.pair.target}: {aborted.message}"
        raise BenchmarkError(aborted.code.upper(), message, hint) from aborted
    session.log.append("aborted", code=aborted.code, message=aborted.message, evidence=aborted.evidence)
    return Flag(code=aborted.code, severity="fatal", message=aborted.message, evidence=aborted.evidence)


def estimate_s(pair: Pair, chosen: presets.Preset) -> float:
    """Upper estimate of the wall seconds of one pair; several ranks take longer to start and to run."""
    if distributed.declared(pair.baseline) == 1:
        return presets.estimate_s(chosen)
    return presets.estimate_s(GroupStrategy().adapt(chosen), start_s=5.0)
