"""The trusted process that owns inputs and reference: it writes the workers' inputs and compares their outputs.

It loads the baseline file (the specification) and no candidate. Seeds come from the parent and reach no worker.
Requests and answers are lines of JSON: serve() calls the method of Verifier that a request names.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aisp_mcp.bench import Answers, Benchmark, ServingBenchmark
from aisp_mcp.bench.sizes import settable
from aisp_mcp.errors import AispError, BenchmarkError
from aisp_mcp.judge.options import Protections
from aisp_mcp.judge.protocol.clock import clock
from aisp_mcp.judge.protocol.cuda_ipc import MappedMemory, Staged
from aisp_mcp.judge.protocol.device_turns import begin_peak, give_back, peak, synchronize
from aisp_mcp.judge.protocol.draws import drawing
from aisp_mcp.judge.protocol.draws.rng import MODES, OFFSET, CallRng
from aisp_mcp.judge.protocol.messages import CALLING, CheckAnswer, DeviceAllocation, PlannedRequest
from aisp_mcp.judge.protocol.module_loader import load_spec
from aisp_mcp.judge.protocol.roles import replicate_of
from aisp_mcp.judge.protocol.shared_memory import Arena, ControlBlock, Gate
from aisp_mcp.judge.verifier import arguments, handoff_cpu, handoff_gpu, settling
from aisp_mcp.judge.verifier.checks import quality
from aisp_mcp.judge.verifier.checks.kinds import Kind, kind_of
from aisp_mcp.judge.verifier.checks.round_checker import POISON, RoundChecker
from aisp_mcp.judge.verifier.checks.tolerance import can_be_near
from aisp_mcp.judge.verifier.evaluation import is_out_of_memory
from aisp_mcp.judge.verifier.frames import SHARE_OF_DEVICE, layout_of, leave_room, replicates_at_once, turn_bytes
from aisp_mcp.judge.verifier.group import arena, group_facts, missing_devices, of_all_ranks
from aisp_mcp.judge.verifier.handoff_gpu import SmallestKernel, await_answer, await_bandwidth
from aisp_mcp.judge.verifier.inputs import files, made
from aisp_mcp.judge.verifier.inputs.bank import InputBank, RoundInputs, given_in_turn
from aisp_mcp.judge.verifier.reference import ReferenceEvaluator, shared_memory
from aisp_mcp.judge.verifier.requirements import (
    Redraws,
    has_answer,
    is_tried,
    kinds_with_an_answer,
    missing_needs,
    outgrows,
    rehearse,
    reject_changing_results,
    reject_degenerate,
    reject_untestable,
)
from aisp_mcp.judge.verifier.serving import ServingTruth

# Of answers computed ahead for all replicates that start together
# (docs/decisions/0024-compute-reference-answers-ahead.md).
AHEAD_BYTES = 4 << 30
OF_ANY_FORM = ("VARYING_SHAPE", "LARGE_INTEGER", "LABELLED")  # errors about outputs that only frames can hold
_WITHOUT_MEMORY = "Inputs, outputs and their float64 reference do not fit into memory at this size: {}"
_SMALLER = "Choose a smaller size (--size NAME=VALUE). Checking takes over fifteen times the memory of one call."


class Verifier:
    """State of one comparison; each public method handles one message of the parent."""

    def __init__(self, fds: list[tuple[int, int]]) -> None:
        self.fds = fds  # descriptors of control block and arena, per rank of each worker of two replicates
        self.controls: dict[int, ControlBlock] = {}
        self.arenas: dict[int, Arena] = {}
        self.rounds: dict[int, RoundInputs] = {}
        self.banks: dict[int, InputBank] = {}
        self.handles: dict[int, str | list[str]] = {}
        self.snapshots: dict[int, Arena] = {}
        self.mapped: dict[int, MappedMemory] = {}
        self.gates: dict[int, Gate] = {}
        self.staged: Staged | None = None
        self.files = files.InputFiles({})
        self.turn_bytes = 0  # of device memory, that a worker may need in its turn
        self.arguments = arguments.Changed()
        self.redraws = False

    def open(
        self,
        path: str,
        size: str,
        device: str,
        protections: dict[str, bool],
        seed: int,
        budget: int,
        round_s: float,
        files_at: dict[str, str] | None = None,
        cpus: Sequence[int] = (0,),
        ranks: int = 1,
        redraws: bool = False,
    ) -> dict[str, Any]:
        """Load the specification, try it once, and fix the layout. If the machine lacks something, only the missing
        needs are answered. files_at: folders for warm and cold files of the workers. cpus: that the comparison may use.
        redraws: unusual inputs on which the baseline has no answer are drawn again.
        """
        import torch

        # It runs on the cores that are not measured; more threads than cores would wait for each other.
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        drawing.use_cores(cpus)
        spec = of_all_ranks(made.drawn(load_spec(Path(path), size)), ranks)
        if missing := missing_needs(spec.needs, spec.threads, len(cpus)) + missing_devices(ranks, device):
            return {"missing": missing}
        self.smallest = SmallestKernel(device)
        self.spec, self.device, self.ranks, self.protections = spec, device, ranks, Protections(**protections)
        self.redraws = redraws
        bank = self._bank(0, seed)
        if isinstance(spec, ServingBenchmark):
            return self._open_serving(spec, bank, seed + 1)
        fields = seed, budget, round_s, files_at or {}
        self.arguments = arguments.changed(spec, lambda number: bank.inputs(seed + 1 + number, "plain"))
        if self.arguments.left:
            _compare_as_values(spec)
            spec.run = sys.modules[CALLING].with_left(spec.run, self.arguments.left)  # type: ignore[method-assign]
        try:
            return self._open_calls(spec, bank, *fields)
        except BenchmarkError as error:
            if error.code not in OF_ANY_FORM or device != "cpu" or not hasattr(spec.run, "steps"):
                raise
        # Results of two functions that fit into no tensor of one shape are compared as Python's values are.
        _compare_as_values(spec)
        return self._open_calls(spec, self._bank(0, seed), *fields)

    def _open_calls(
        self, spec: Benchmark, bank: InputBank, seed: int, budget: int, round_s: float, files_at: dict[str, str]
    ) -> dict[str, Any]:
        if spec.answers is not None and bank.reference.params:
            raise BenchmarkError("BAD_CONTRACT", "With make, check, rtol or atol, params() must be empty.")
        made.forget()
        inputs = bank.inputs(seed + 1, "plain")
        if made.SEEN or spec.answers is not None:
            settling.settle(spec, lambda number: bank.inputs(seed + 7 + number, "plain"))
            inputs = bank.inputs(seed + 1, "plain")  # in frames of the settled sizes
        begin_bytes = begin_peak(self.device)
        output, seconds, processor_s = bank.reference.first_calls(inputs, self.device)
        call_bytes = peak(self.device) - begin_bytes
        self.layout = layout_of(bank, inputs, output, seconds, budget, round_s)
        self.turn_bytes = turn_bytes(self.layout, call_bytes)
        if missing := files.lacks(inputs, files_at, self.layout.capacity):
            return {"missing": missing}
        del inputs  # large ones would leave too little memory
        self.files = files.InputFiles(files_at)
        tried = is_tried(seconds, processor_s)
        if not spec.tolerance.stochastic and tried:
            reject_changing_results(output, bank.reference.baseline(bank.inputs(seed + 1, "plain")))
        kinds, untested = list(MODES[1:]), dict[str, str]()
        if self.protections.adversarial and tried:
            kinds, untested = kinds_with_an_answer(bank, seed + 6, output)
        is_constant = reject_degenerate(bank, seed + 2, output, kinds)
        reject_untestable(bank, seed + 5, output)
        last_only = self.device == "cuda" and self.ranks == 1
        state = self.protections, self.arenas, self.rounds, last_only, self.files
        self.checker = RoundChecker(spec, self.layout, *state)
        rehearse(bank, seed + 3, output, self.checker.orders, kinds)
        del output
        with_inputs, with_outputs = shared_memory(bank.reference, bank.inputs(seed + 4, "plain"))
        with_inputs = with_inputs or spec.shares_inputs or bool(spec.in_place)
        give_back(self.layout)
        described = self._described(with_inputs, with_outputs)
        described["facts"] |= {"input_kinds": kinds} | ({"inputs_not_tested": untested} if untested else {})
        described["facts"] |= {"same_output": True} if is_constant else {}
        described["facts"] |= {"python_inputs": True} if made.SEEN else {}
        return {
            **described,
            "layout": self.layout.to_json(),
            "call_s": seconds,
            "oracle": oracle(spec),
            "replicates_at_once": replicates_at_once(self.device, self.layout, call_bytes) if self.ranks == 1 else 2,
            **self.idle(times=3),
        }

    def _described(self, shares_inputs: bool, shares_outputs: bool) -> dict[str, Any]:
        """The part of an OpenAnswer that depends only on the specification."""
        spec = self.spec
        return {
            "goal": spec.goal,
            "converts": getattr(getattr(spec.run, "steps", None), "is_copied", False),
            "cold": {"from": spec.cold, "caches": spec.caches},
            "workers": {"threads": spec.threads, "files_at": self.files.make() if self.layout.files else []},
            **work(spec),
            "error_ratio": spec.tolerance.error_ratio,
            "in_place": list(spec.in_place),
            "output_rules": {
                "layout_strict": spec.layout == "strict",
                "layout_any": spec.layout == "any" and self.ranks == 1,  # ranks copy theirs into the baseline's strides
                "shares_inputs": shares_inputs,
                "shares_outputs": shares_outputs,
                "lists": CALLING in sys.modules and sys.modules[CALLING].LISTS["seen"],
                "values": sys.modules[CALLING].VALUES if spec.answers else None,
                "made": spec.make is not None,
                "left": self.arguments.left,
                "changed": self.arguments.positions,
            },
            "facts": {**facts(self.device, spec), **group_facts(self.ranks, self.device)},
        }

    def _open_serving(self, spec: ServingBenchmark, bank: InputBank, seed: int) -> dict[str, Any]:
        self.serving = ServingTruth(spec, self.device)
        opened = self.serving.open(bank.reference, seed)
        self.layout = self.serving.layout
        return {**self._described(shares_inputs=False, shares_outputs=True), **opened, **self.idle(times=3)}

    def changes_arguments(self, worker_id: int, call: int) -> dict[str, Any]:
        """Answer if the baseline, too, changes an argument in this call of the worker's round, though it does not in
        most.
        """
        filled = self.rounds[worker_id]
        inputs = self.banks[replicate_of(worker_id)].inputs(filled.at(call), filled.mode)
        return {"changes": bool(arguments.changes(self.spec, inputs).keys() - self.arguments.positions)}

    def lacks_answer(self, worker_id: int, wrong_call: int | None = None) -> dict[str, Any]:
        """Answer if the baseline has no answer on the inputs of one of the calls of the worker's round, or it does not
        matter, because what is wrong there is only named. wrong_call: one whose output is wrong; of that, only the size
        of the baseline's is asked, since roundings also move what lies on a bound.
        """
        filled, bank = self.rounds[worker_id], self.banks[replicate_of(worker_id)]
        if wrong_call is not None:
            seed, modes = filled.at(wrong_call), (filled.mode, "plain")
            return {
                "lacks": outgrows(filled.mode, *(bank.reference.baseline(bank.drawn(seed, each)) for each in modes))
            }
        if filled.mode == OFFSET:
            return {"lacks": True}
        output = bank.reference.baseline(bank.drawn(filled.seed, "plain"))
        seeds = map(filled.at, range(filled.count))
        return {"lacks": not all(has_answer(bank, seed, filled.mode, output) for seed in seeds)}

    def draw_trace(self, seed: int) -> dict[str, Any]:
        """The requests of a new trace, for the parent to hand out."""
        return {"requests": self.serving.draw(seed)["requests"]}

    def check_trace(self, worker_id: int, requests: list[PlannedRequest], answers: list[list[int]]) -> CheckAnswer:
        """Compare all tokens that a worker emitted for a trace."""
        return self.serving.check(self.banks[replicate_of(worker_id)].reference, requests, answers)

    def sizes(self, path: str, size: str) -> dict[str, Any]:
        """The replaceable values of a specification. varied: names of those that its presets give."""
        spec = load_spec(Path(path), size)
        named = {name for preset in spec.sizes.values() for name in preset}
        values = settable(spec)
        return {"values": values, "varied": [name for name in values if name in named]}

    def _bank(self, number: int, seed: int) -> InputBank:
        """New secrets for a replicate."""
        reuses_memory = any(bank.reference.reuses_memory for bank in self.banks.values())
        self.banks.pop(number, None)  # before memory for others is needed
        params = dict(self.spec.params(CallRng(self.device, seed, secret_statistics=False)))
        self.banks[number] = bank = InputBank(self.device, ReferenceEvaluator(self.spec, params, reuses_memory))
        bank.drawn_as = Redraws(bank) if self.redraws else None
        return bank

    def attach(self, worker_id: int) -> dict[str, Any]:
        """Make the arena of a worker, or share the only one; on a GPU the answer carries its handle."""
        if worker_id not in self.arenas:  # the replicate after the next uses the same memory again
            fds = self.fds[worker_id * self.ranks :][: self.ranks]
            if self.ranks == 1:
                self.controls[worker_id] = ControlBlock(fds[0][0], self.layout)
            first = next(iter(self.arenas), None) if self._is_shared else None
            shared = None if first is None else (self.arenas[first], self.handles[first])
            arenas = [fd for _, fd in fds]
            self.arenas[worker_id], self.handles[worker_id] = arena(arenas, self.layout, self.device, shared)
        return {"ipc": self.handles[worker_id]}

    def params(self, worker_ids: list[int], seed: int) -> dict[str, Any]:
        """Write new static tensors, the same for every worker, and one example of inputs."""
        bank = self._bank(replicate_of(worker_ids[0]), seed)
        example = bank.inputs(seed ^ 0x5A5A, "plain")
        self.files.clear(*worker_ids)
        for worker_id in worker_ids:
            _write(self.arenas[worker_id].params(), bank.reference.params)
            _write(self.arenas[worker_id].inputs(0), self.files.written(worker_id, 0, example))
        del example
        synchronize(self.device)
        give_back(self.layout)
        return {}

    def look_ahead(self, worker_ids: list[int], seed: int, number: int, seconds: float) -> dict[str, Any]:
        """On a GPU, compute the baseline's outputs of up to `number` calls per replicate while time and memory last;
        rounds mix these inputs with others. worker_ids: one per replicate. known: how many outputs are ready.
        """
        import torch

        for bank in self.banks.values():
            bank.ahead.clear()  # of finished replicates
        end, room = clock() + seconds, min(AHEAD_BYTES, torch.cuda.mem_get_info()[0] // SHARE_OF_DEVICE)
        banks = [self.banks[replicate_of(worker_id)] for worker_id in worker_ids]
        number = min(number * len(banks), room // max(sum(spec.nbytes for spec in self.layout.outputs), 1))
        with contextlib.suppress(torch.OutOfMemoryError):  # another process may have allocated it meanwhile
            for call in range(number if can_be_near(self.spec.tolerance) else 0):
                # Each has its own seed, which alone determines the draw.
                banks[call % len(banks)].look_ahead(seed + call)
                synchronize(self.device)  # or the device would still be computing them
                if clock() > end:
                    break
        return {"known": [len(bank.ahead) for bank in banks]}

    def map_memory(
        self, worker_id: int, allocations: list[DeviceAllocation], addresses: list[int], apart: bool = False
    ) -> dict[str, Any]:
        """Open the device memory that a worker names. own: inputs can be written into some of it. whole: the round's
        outputs can be read from these addresses. apart: each call's separately.
        """
        shared = self.arenas[worker_id].inputs_alone() if self._is_shared else None
        mapped = self.mapped.setdefault(worker_id, MappedMemory(self.layout, shared))
        own = mapped.update(allocations)
        whole = bool(addresses) and mapped.map_outputs(self.rounds[worker_id].count, addresses, apart)
        return {"own": own, "whole": whole}

    def stage(self, counts: dict[str, int], seed: int, sample: Sequence[int] = ()) -> dict[str, Any]:
        """Draw the inputs of a round where no worker sees them, the same for all workers, and poison its outputs.
        sample: the calls to be compared.
        """
        self.staged = self.staged or Staged(self.layout, self.device)
        bank = self.banks[replicate_of(int(next(iter(counts))))]
        rounds = bank.begin(counts, seed, "plain", sample, self.device == "cuda")
        self.files.clear(*(filled.worker_id for filled in rounds))
        for call in range(max(counts.values())):
            inputs = bank.round_inputs(rounds[0], call, sample)
            worker_ids = [filled.worker_id for filled in rounds if call < filled.count]
            given = [self.files.written(worker_id, call, inputs) for worker_id in worker_ids]
            _write(self.staged.arena.inputs(call), given[0])
            for worker_id, values in zip(worker_ids, given, strict=True):  # inputs in host memory: not staged
                _write(self.arenas[worker_id].host_inputs(call), values)
            del inputs, given, values  # large ones leave too little memory for the next ones, and for workers
        for filled in rounds:
            self._poison(filled)
        synchronize(self.device)
        self._leave_room()
        return {}

    def handoff_cpu(self, worker_id: int, deadline_s: float) -> dict[str, Any]:
        """Hand these inputs to a worker on a CPU one call at a time, and take the outputs (see handoff_cpu.py)."""
        assert self.staged is not None
        count, control = self.rounds[worker_id].count, self.controls[worker_id]
        self.files.redirect(worker_id, self.staged.arena)
        arenas = self.staged.arena, self.arenas[worker_id]
        self.snapshots[worker_id], seconds, delayed_s = handoff_cpu.run(*arenas, control, count, deadline_s)
        return {"seconds": seconds, "delayed_s": delayed_s}

    def handoff_gpu(self, worker_id: int, own: bool, taken: bool, stored: bool, deadline_s: float) -> dict[str, Any]:
        """The same on a GPU. own: inputs are in the worker's own memory. taken, stored: as in handoff_gpu.Handoff."""
        assert self.staged is not None
        control = self.controls[worker_id]
        try:
            if worker_id not in self.gates:
                self.gates[worker_id] = Gate(control)
            mapped = self.mapped[worker_id] if own else None
            held = handoff_gpu.Handoff(self.arenas[worker_id], mapped, self.rounds[worker_id].count, taken, stored)
            seconds = handoff_gpu.run(self.staged, held, control, self.gates[worker_id], self.smallest.spot, deadline_s)
        except Exception:
            control.end_handoff()  # or the worker would wait and be reported as hung
            raise
        at_s = clock()
        if taken:
            self.snapshots[worker_id] = held.whole()
        return {"seconds": seconds, "at_s": at_s}

    def write_staged(self, worker_id: int, own: bool) -> dict[str, Any]:
        """Write the staged inputs to where the calls expect them, and probe. own: in the worker's own memory."""
        memory = self.mapped[worker_id].own if own else self.arenas[worker_id]
        assert self.staged is not None
        assert memory is not None
        self._restore(worker_id)
        self.staged.write(memory, self.rounds[worker_id].count)
        synchronize(self.device)
        await_bandwidth(self.layout)
        return self.probe(worker_id)

    def fill(
        self, counts: dict[str, int], seed: int, mode: str, sample: Sequence[int] = (), battery: bool = False
    ) -> dict[str, Any]:
        """Write a round's inputs, the same for all workers, and poison its outputs. sample: as in stage(). battery:
        these inputs decide whether the program is correct.
        """
        bank = self.banks[replicate_of(int(next(iter(counts))))]
        drawn = given_in_turn(self.rounds.values(), seed, mode) if self._is_shared else None
        rounds = bank.begin(counts, seed, mode, sample, drawn=drawn)
        for filled in rounds:
            filled.battery = battery
        self.files.clear(*(filled.worker_id for filled in rounds))
        for call in range(max(counts.values())):
            inputs = bank.round_inputs(rounds[0], call, sample)
            for filled in rounds:
                if call < filled.count:
                    written = self.files.written(filled.worker_id, call, inputs)
                    _write(self.arenas[filled.worker_id].inputs(call), written)
            del inputs, written
        for filled in rounds:
            self._restore(filled.worker_id)
            self._poison(filled)
        synchronize(self.device)
        self._leave_room()
        return self.idle()

    @property
    def _is_shared(self) -> bool:  # all workers use one arena in turn
        return self.layout.tight and self.ranks == 1

    def _leave_room(self) -> None:
        leave_room(self.layout, self.turn_bytes, self.rounds.values())

    def _restore(self, worker_id: int) -> None:
        """Write the static tensors again where another worker could have changed them."""
        if self._is_shared:
            _write(self.arenas[worker_id].params(), self.banks[replicate_of(worker_id)].reference.params)

    def _poison(self, filled: RoundInputs) -> None:
        """Poison the outputs of the worker's next round, and fill the guards around them."""
        for part in self.arenas[filled.worker_id].parts:
            frames, spans = part.frames(filled.count), list(part.layout.frame_guards())
            if self.protections.poison:
                spans = [(spans[0][0], part.layout.frame)]
            for begin, size in spans:
                frames[:, begin : begin + size].fill_(POISON)
        self.rounds[filled.worker_id] = filled

    def idle(self, times: int = 1) -> dict[str, Any]:
        """Seconds of the smallest kernel, the best of several; far longer where contexts take turns. Empty on a CPU."""
        return {"probe_s": min(self.smallest.run()["probe_s"] for _ in range(times))} if self.device == "cuda" else {}

    def probe(self, worker_id: int, **watched: Any) -> dict[str, Any]:
        """Time the smallest kernel now, or after an answer; see snapshot()."""
        await_answer(self.controls[worker_id], **watched)
        return self.smallest.run()

    def snapshot(self, worker_id: int, own: bool = False, **watched: Any) -> dict[str, Any]:
        """Copy a worker's device memory directly after its `done`: a stopped process does not stop work in flight.

        own: read outputs from the worker's own memory. watched: the arguments of await_answer(), if the answer is still
        to come. Returns the time of the smallest kernel just before; it is long if the device was still working for the
        worker.
        """
        await_answer(self.controls[worker_id], **watched)
        memory, mapped = self.arenas[worker_id], self.mapped[worker_id] if own else None
        memory = memory.outputs_alone() if self._is_shared else memory
        used = memory.layout.params_bytes + self.rounds[worker_id].count * memory.layout.frame

        def copy() -> None:
            if mapped:
                mapped.copy()
            self.snapshots[worker_id] = Arena(memory.flat[:used].clone(), memory.layout)

        seconds = self.smallest.run(copy)
        if mapped:
            mapped.scatter(self.snapshots[worker_id])
        synchronize(self.device)
        return seconds

    def check(self, worker_id: int, sample: list[int], stored: list[int] | None = None) -> CheckAnswer:
        """Check a finished round (see round_checker.py). stored: the calls whose outputs are there; None for all."""
        held = self.snapshots.pop(worker_id, self.arenas[worker_id])
        if control := self.controls.get(worker_id):
            held = held.in_orders(control.orders)
        self.staged = None if self.layout.tight else self.staged
        self._leave_room()
        found = self.checker.check(self.banks[replicate_of(worker_id)], held, self.rounds[worker_id], sample, stored)
        del held  # a snapshot may have gigabytes
        self._leave_room()
        return found


def _write(targets: dict[str, Any], values: dict[str, Any]) -> None:
    for name, target in targets.items():
        target.copy_(values[name])


# Facts that are disclosed with a comparison


def facts(device: str, spec: Benchmark) -> dict[str, Any]:
    """Settings that affect speed and that software cannot judge; baseline and candidate start with the same ones."""
    import torch

    versions: dict[str, Any] = {
        "torch": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "allocator": _allocator(device, spec.goal),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }
    if device == "cuda":
        versions |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
        versions["device"] = torch.cuda.get_device_name()
        if spec.goal == "energy":
            versions["uuid"] = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    if checked := quality.contract(spec):
        versions |= {"compared": "quality", "quality": asdict(checked.quality)}
    elif spec.tolerance.format:
        versions |= {"compared": spec.tolerance.format}
    return versions | ({"judged_by": by} if spec.answers and (by := judged_by(spec.answers)) else {})


def _compare_as_values(spec: Benchmark) -> None:
    """Compare the results of two functions as Python's values are, of any form and length."""
    if spec.answers is None:
        spec.answers = Answers()  # type: ignore[misc]
        spec.run = sys.modules[CALLING].with_values(spec.run, False)  # type: ignore[method-assign]


def judged_by(answers: Answers) -> str:
    """The checker or the tolerances that the user chose, in words; empty without them."""
    if answers.check is not None:
        path, name = answers.check
        also = ", which accepts NaN, and NaN refused" if answers.refuses_nan else ""
        return f"answers judged by your {name} of {Path(path).name}{also}"
    given = [
        f"{name} {value:g}" for name, value in (("rtol", answers.rtol), ("atol", answers.atol)) if value is not None
    ]
    return f"floats compared within your {' and '.join(given)}" if given else ""


def work(spec: Benchmark) -> dict[str, Any]:
    """Work of one call, and the name of its items."""
    declared = spec.work()
    return {"work": {"flops": declared.flops, "bytes": declared.bytes, "items": declared.items}, "unit": declared.unit}


def oracle(spec: Benchmark) -> str:
    """Name the reference that outputs are compared with."""
    kind = kind_of(spec)
    if kind in (Kind.DISTRIBUTION, Kind.QUALITY):
        return str(kind)
    if spec.answers is not None:
        return "the baseline's answer" if spec.answers.check is None else "the user's checker"
    return "float64" if type(spec).reference is Benchmark.reference else "second method"


def _allocator(device: str, goal: str) -> str:
    if device != "cpu":
        return "torch"
    keeps = "returns" if goal == "memory" else "keeps"
    return f"glibc {keeps} freed memory (MALLOC_TRIM_THRESHOLD_)"


# Requests and answers


def serve(verifier: object, lines: Iterable[str], reply: Callable[[str], object]) -> None:
    """Answer requests, which name public methods of the verifier, until the input ends."""
    verbs = {name: getattr(verifier, name) for name in vars(type(verifier)) if not name.startswith("_")}
    for line in lines:
        request = json.loads(line)
        verb = verbs[request.pop("verb")]
        reply(json.dumps(_answer(lambda verb=verb, request=request: verb(**request))) + "\n")  # type: ignore[misc]


def _answer(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return call()
    except AispError as error:
        return {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
    except Exception as error:
        traceback.print_exc()
        if is_out_of_memory(error):
            return {
                "error": {"code": "NO_MEMORY", "message": _WITHOUT_MEMORY.format(_first_line(error)), "hint": _SMALLER}
            }
        frame = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {error} at {Path(frame.filename).name}:{frame.lineno}"
        answer = {"code": "RAISED", "message": message[:500], "hint": "The baseline file or its inputs raised."}
        return {"error": answer}


def _first_line(error: Exception) -> str:
    return str(error).partition(" GPU ")[0].partition("\n")[0][:200]


def main() -> None:
    """python -m aisp_mcp.judge.verifier.main CONTROL_FD ARENA_FD… Output of benchmarks goes to standard error."""
    private = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    # Workers write no bytecode: this trusted process compiles the library for all of them, and no user files.
    import torch  # noqa: F401

    sys.dont_write_bytecode = True
    with contextlib.suppress(BrokenPipeError):
        fds = [int(arg) for arg in sys.argv[1:]]
        serve(Verifier(list(zip(fds[::2], fds[1::2], strict=True))), sys.stdin, private.write)


if __name__ == "__main__":
    main()
