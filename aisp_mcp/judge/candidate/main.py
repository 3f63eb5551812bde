"""The only code in a candidate's process: load it, answer each go(n) with done, copy its outputs into shared memory.

Nothing that this process reports is trusted. Its durations count only if the parent's clock agrees; its outputs are
compared byte by byte with the verifier's; a byte on the pipe means only "this round is over".

Protocol on two pipes: inwards, one JSON line of set-up, then 4-byte counts; outwards, single bytes: L libraries are
loaded, R ready, D done, X raised, S an output shares an input's memory (for X and S, the message is in the control
block). A count of zero ends the process. Bits of a count request another kind of round:

DUMMY     dummy calls, which show the cost of the rest of the loop; only baselines make them
WARM      on a GPU, without flushes and events
TRACE     on a GPU, under a profiler whose summary is left in the control block; on a CPU the names of imported modules
NO_COPY   without copies: outputs stay where they are, and the control block says where (outputs.py), on a CPU perhaps
          only after SETTLE; on a GPU inputs lie in memory of the worker's own, which the control block named before
STORE     on a GPU, with NO_COPY: outputs are copied into the arena after all, because they overlap
GATE      on a GPU, with calls that wait in the stream until the parent opens the gate: Q says that all of them wait
ISOLATED  with inputs that come one call at a time (timing/cpu.py, verifier/handoff_gpu.py)
TOUCH     no calls; only their memory is touched (outputs.py), or allocated again on a GPU (device_turns.py)
CONVERT   no calls; the next round's inputs become the arguments of two functions, such as lists (outputs.py)
DROP      with NO_COPY on a CPU: inputs are read before each call, and its output released after it; nobody compares it
SETTLE    no calls; the outputs of the last round become tensors, and the control block says where (outputs.py)
ARGUMENTS no calls; the count is the number of a call of the last round, from 1 on, and the control block says which of
          its arguments, such as a list, it has changed
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from typing import Any

from aisp_mcp.judge.candidate import dummy
from aisp_mcp.judge.candidate.cupti import traced
from aisp_mcp.judge.candidate.forbidden import forbid
from aisp_mcp.judge.candidate.outputs import (
    HeldOutputs,
    OutputRules,
    OutputStrides,
    SharedOutputError,
    check_contract,
    check_form,
    extent,
    refuse_shared,
    touch_memory,
)
from aisp_mcp.judge.candidate.serving import ServingWorker
from aisp_mcp.judge.protocol.device_turns import give_back, regain, renew
from aisp_mcp.judge.protocol.layout import TEXT, Layout
from aisp_mcp.judge.protocol.messages import (
    ARGUMENTS,
    BITS,
    CALLING,
    CONVERT,
    DONE,
    DROP,
    DUMMY,
    GATE,
    ISOLATED,
    LOADED,
    NO_COPY,
    QUEUED,
    RAISED,
    READY,
    SETTLE,
    SHARED,
    STORE,
    TOUCH,
    TRACE,
    WARM,
)
from aisp_mcp.judge.protocol.module_loader import copied, entry, flatten, import_all, imported_by, users_line
from aisp_mcp.judge.protocol.shared_memory import (
    ANSWERED,
    CAN_WAIT,
    ELAPSED_NS,
    HANDED_OVER,
    REFUSED,
    SCHEDULED,
    ControlBlock,
    Gate,
    attach,
    cudart,
    device_allocations,
    l2_reset,
    own_inputs,
)


class Worker:
    """A baseline or candidate in its own process. say: writes one byte to the parent."""

    def __init__(self, setup: dict[str, Any], control_fd: int, arena_fd: int, say: Callable[[bytes], object]) -> None:
        import torch

        self.torch, self.say = torch, say
        torch.set_num_threads(setup["threads"])
        self.cuda = setup["device"] == "cuda"
        self.layout = Layout.from_json(setup["layout"])
        self.control = ControlBlock(control_fd, self.layout)
        self.arena = attach(setup, self.layout, arena_fd)
        example = self.layout.with_paths({name: tensor.clone() for name, tensor in self.inputs[0].items()})
        # One output of the baseline, for dummy calls to copy; a candidate keeps none.
        self.kept: list[Any] | None = [] if setup["baseline"] else None
        self.held: list[Any] = []  # the outputs of a round, read from outside
        self.given: tuple[int, Any] | None = None  # last call of a round that copies outputs, and its arguments
        rules = setup["output_rules"]
        apart = not (rules["shares_outputs"] or setup["baseline"])
        self.rules = OutputRules(rules["contract"], rules["layout_strict"], apart, frozenset(rules["changed"]))
        self.strides = OutputStrides(self.control, self.arena, rules["layout_any"] and not setup["baseline"])
        if not rules["shares_inputs"]:
            self.rules.off_limits.append(extent(self.arena.flat))
        import_all(setup["imports"])
        self.run = entry(setup, self.arena.params(), example)
        if rules["lists"] and CALLING in sys.modules:
            sys.modules[CALLING].LISTS["demanded"] = True
        if rules["values"]:
            calling = importlib.import_module(CALLING)
            calling.VALUES.update(rules["values"])
            if not isinstance(getattr(self.run, "steps", None), calling.ValueSteps):
                self.run = calling.with_values(self.run, rules["made"])
            self.run = calling.with_left(self.run, rules["left"])
        del example  # a large one leaves no memory for others
        if self.cuda:
            give_back(self.layout)  # or a small tensor that is kept would keep all of its memory
            self._prepare_cuda(setup["flush_bytes"], setup["ipc"])
        self.at_rest = HeldOutputs(self.rules, self.strides, self.arena, self.control, self.copy_into_strides)

    @cached_property
    def inputs(self) -> list[dict[str, Any]]:
        return [self.arena.inputs(call) for call in range(self.layout.capacity)]

    @property
    def outputs(self) -> list[list[Any]]:
        """Memory of the arena for the outputs of each call."""
        return self.strides.targets

    def _prepare_cuda(self, flush_bytes: int, handle: str) -> None:
        cuda = self.torch.cuda
        self.stream = cuda.current_stream()
        # Memory opened from another process has smaller pages; the candidate works on its own tensors, refreshed
        # in place, so that captured graphs and static buffers are legitimate.
        self.local = self.copy_inputs() if not self.layout.tight else {}
        self.flush = self.torch.empty(flush_bytes, dtype=self.torch.uint8, device="cuda")
        self.reset_l2 = l2_reset()
        self.spot = self.torch.zeros(1, device="cuda").zero_()  # its kernel is loaded by now
        dummy.load(self.layout)
        self.events = [(cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)) for _ in self.inputs]
        self.own: Any = None
        self.gate: Any = None
        try:
            self.own, self.own_inputs, self.own_handle = own_inputs(self.arena, handle)
            if self.rules.off_limits:
                self.rules.off_limits.append(extent(self.own))
            for inputs in self.own_inputs:
                self.refresh(inputs, self.inputs[0])  # some rounds run before anything has been written there
            self.local = self.local or self.own_inputs[0]
            self.reserved = -1
            self.show_memory()
        except OSError:  # no room for its own inputs
            cudart().cudaGetLastError()  # or the next launch would report it
            self.local = self.local or self.copy_inputs()
        try:
            self.gate = Gate(self.control)
            self.control.stats[CAN_WAIT] = 1
        except (OSError, AttributeError):  # the driver does not support the gate
            cudart().cudaGetLastError()
        give_back(self.layout)

    def copy_inputs(self) -> dict[str, Any]:
        """The candidate's own copies of the inputs, on the device."""
        local = {name: tensor.clone() for name, tensor in self.inputs[0].items() if name not in self.layout.host}
        if self.rules.off_limits:
            self.rules.off_limits += [extent(tensor) for tensor in local.values()]
        return local

    def show_memory(self) -> None:
        """Report the device memory, with that of the inputs first, if it has changed."""
        if self.own is not None and self.reserved != (reserved := self.torch.cuda.memory_reserved()):
            self.reserved = reserved
            own = (self.own.data_ptr(), len(self.own), self.own_handle)
            self.control.write_allocations([own, *device_allocations()])

    def store(self, call: int, output: Any) -> None:
        """Copy one output into the harness's memory. Raises ContractError."""
        if self.kept == []:
            self.kept.append(self.outputs[call] if self.layout.tight else copied(output))
        self.examine(output)
        named = flatten(output)
        check_form(named, self.layout.outputs)
        for (name, tensor), spec, target in zip(named, self.layout.outputs, self.outputs[call], strict=True):
            if self.rules.checked:
                check_contract(name, tensor, spec, target.device, self.rules.strict)
            target.copy_(tensor)

    def hold(self, _: int, output: Any) -> None:
        """Keep one output alive."""
        self.held.append(output if self.examine(output) else self.strides.whole(output))

    def examine(self, output: Any) -> bool:
        """Refuse an output in memory of an input or of another output. Return False if it must be copied into other
        strides: from the next call on, that copy is timed. Raises SharedOutputError.
        """
        refuse_shared(output, self.rules)
        if not self.rules.checked or self.strides.fit(output):
            return True
        self.copy_into_strides()
        return False

    def copy_into_strides(self) -> None:
        """From now on, copy outputs into the strides that count as part of each call."""
        self.run = self.strides.copied(self.run)

    def show(self) -> None:
        """Write the addresses of the held outputs to the control block; their values are read from outside."""
        tensors = [tensor for output in self.held for _, tensor in flatten(output)]
        self.held.append(tensors)
        for index, tensor in enumerate(tensors):
            self.control.addresses[index] = tensor.data_ptr()
        self.show_memory()

    def await_inputs_on_stream(self, count: int, gated: bool) -> Iterator[int]:
        """As await_inputs() on a GPU: the stream waits for inputs and reports that a call is done (handoff_gpu.py).
        Ungated, the host also waits until its process has its turn on the device; otherwise it would run ahead.
        """
        stats, gate, stream = self.control.stats, self.gate, self.stream
        gate.say(stream, ANSWERED, 1)
        stats[SCHEDULED] = 0
        for call in range(count):
            gate.wait(stream, HANDED_OVER, call + 1)
            if not gated:
                self.spot.zero_()
                gate.say(stream, SCHEDULED, call + 1)
                while stats[SCHEDULED] <= call:
                    pass
            yield call
            gate.say(stream, ANSWERED, call + 2)

    def round_cpu(self, count: int, run: Callable[..., Any], isolated: bool) -> None:
        """Time `count` calls, each on new inputs."""
        clock, durations, steps = time.perf_counter_ns, self.control.durations, getattr(run, "steps", None)
        for call in await_inputs(self.control.stats, count) if isolated else range(count):
            inputs = self.layout.with_paths(self.inputs[call])
            args, kwargs = steps.arguments(**inputs) if steps else ((), inputs)
            begin = clock()
            output = steps.function(*args, **kwargs) if steps else run(**kwargs)
            end = clock()
            self.store(call, steps.tensors(output) if steps else output)
            del output
            durations[call] = end - begin
        self.given = call, (args, kwargs)

    def round_cuda(self, count: int, run: Callable[..., Any]) -> None:
        """The same with a pair of device events per call after an L2 flush that lets the host run ahead."""
        stream, inputs = self.stream, self.local
        for call, (begin, end) in enumerate(self.events[:count]):
            self.refresh(inputs, self.inputs[call])
            self.reset_l2()
            self.flush.zero_()
            begin.record(stream)
            output = run(**inputs, **self.on_host(call))
            end.record(stream)
            self.store(call, output)
            del output
        self.refresh(self.inputs[count - 1], inputs)  # the inputs as the call left them, for the verifier to compare
        self.torch.cuda.synchronize()
        self.note_durations(count)

    def note_durations(self, count: int) -> None:
        """Record the time between the events of each call."""
        for call, (begin, end) in enumerate(self.events[:count]):
            self.control.durations[call] = int(begin.elapsed_time(end) * 1e6)

    def round_bare(self, count: int, run: Callable[..., Any], bits: int) -> None:
        """Run calls on a GPU for the parent's clock alone, without events: gated, or as fast as they are launched."""
        no_copy, gated = bool(bits & NO_COPY), bool(bits & GATE)
        keep = self.store if bits & STORE else self.hold
        inputs, self.control.stats[REFUSED] = self.local, 0
        if gated:
            self.gate.shut(self.stream)
        for call in self.await_inputs_on_stream(count, gated) if bits & ISOLATED else range(count):
            if not no_copy:
                self.refresh(inputs, self.inputs[call])
                self.store(call, run(**inputs, **self.on_host(call)))
                continue
            try:
                keep(call, run(**{**self.own_inputs[call], **self.on_host(call)}))
            except Exception:  # it may depend on the tensors it was prepared for, or need too much memory
                self.control.stats[REFUSED], self.held = 1, []
                break
        if not no_copy:
            self.refresh(self.inputs[count - 1], inputs)
        elif gated:
            self.show()
        if self.gate:
            self.gate.end(self.stream)
        if gated:
            self.say(QUEUED)
        self.torch.cuda.synchronize()
        self.control.stats[ELAPSED_NS] += time.perf_counter_ns()
        if no_copy and not gated:
            self.show()

    def on_host(self, call: int) -> dict[str, Any]:
        """Inputs of a call that are in host memory although the call runs on a GPU."""
        inputs = self.layout.with_paths(self.inputs[call])
        return {name: inputs[name] for name in self.layout.host}

    @staticmethod
    def refresh(targets: dict[str, Any], values: dict[str, Any]) -> None:
        """Copy the values of the tensors that both have, by name."""
        for name in targets.keys() & values.keys():
            targets[name].copy_(values[name])

    def changed_argument(self, call: int) -> str:
        """The first argument that a call of the last round has changed against its contract, in words; empty if none.
        Where outputs were copied, of its last call.
        """
        call, given = self.given or (call, self.at_rest.arguments[call])
        steps: Any = self.run.steps  # type: ignore[attr-defined]
        calling = sys.modules[CALLING]
        inputs = self.layout.with_paths(self.inputs[call])
        for at, place in calling.changes(steps.arguments(**inputs), given).items():
            if at not in self.rules.changed:
                return f"{calling.argument_name(steps.function, given, at)}{place}"
        return ""

    def dummy(self, count: int) -> Callable[..., Any]:
        """A dummy call in place of `run`."""
        [example] = self.kept or []
        return dummy.on_gpu(example, self.events, self.stream, count) if self.cuda else dummy.on_cpu(example)

    def trace(self, count: int, run: Callable[..., Any]) -> None:
        """Write what the calls start on a GPU, or import on a CPU, to the control block."""
        if self.cuda:
            trace: Any = traced(lambda: self.round_cuda(count, run))
        else:
            trace = imported_by(lambda: self.round_cpu(count, run, isolated=False), TEXT - 100)
        self.control.write_text(json.dumps(trace))

    def round(self, message: int) -> None:
        """Run one round with the garbage collector disabled, on either device."""
        if self.cuda:
            self.torch.cuda.set_stream(self.stream)  # the capture of a graph may have failed and left its own
            self.control.stats[ELAPSED_NS] = -time.perf_counter_ns()
        count = message & ~BITS
        if message & TOUCH:
            self.held, self.reserved = [], -1  # reported anew
            renew(self.layout, self.control.stats[0]) if self.cuda else touch_memory(self.layout, count)
            return
        if message & CONVERT:
            self.at_rest.convert(count, self.run)
            return
        if message & SETTLE:
            self.at_rest.settle()
            return
        if message & ARGUMENTS:
            self.control.write_text(self.changed_argument(count - 1))
            return
        run = self.dummy(count) if message & DUMMY else self.run
        if message & TRACE:
            self.trace(count, run)
            return
        self.held, self.given = [], None
        self.at_rest.clear()
        gc.collect(0)
        gc.disable()
        if self.cuda:
            regain(self.layout, self.control.stats[0])
            held = self.torch.cuda.memory_allocated()
            self.torch.cuda.reset_peak_memory_stats()
        try:
            if not self.cuda and message & NO_COPY:
                self.at_rest.round_at_rest(count, run, bool(message & DROP))
                self.kept = [self.at_rest.last] if self.kept == [] else self.kept
            elif not self.cuda:
                self.round_cpu(count, run, bool(message & ISOLATED))
            elif message & WARM:
                self.round_bare(count, run, message)
            else:
                self.round_cuda(count, run)
        finally:
            gc.enable()
        if self.cuda and message & DUMMY and not self.control.stats[REFUSED]:
            self.note_durations(count)
        if self.cuda:
            self.note_memory(held, bool(message & NO_COPY))

    def note_memory(self, held: int, is_mapped: bool) -> None:
        """Record the peak above the memory held before the round, and release memory that others may need.

        is_mapped: the verifier reads the outputs of a candidate where they are.
        """
        if not is_mapped:
            self.control.stats[0] = max(self.control.stats[0], self.torch.cuda.max_memory_allocated() - held)
            self.control.stats[1] = self.torch.cuda.max_memory_reserved()
        if self.kept is not None or not is_mapped:
            self.held = []  # nobody reads a baseline's
            give_back(self.layout)


def read_exactly(fd: int, count: int) -> bytes:
    """Read exactly that many bytes; return none if the pipe ends earlier."""
    data = b""
    while len(data) < count:
        piece = os.read(fd, count - len(data))
        if not piece:
            return b""
        data += piece
    return data


def await_inputs(stats: Any, count: int) -> Iterator[int]:
    """Yield the number of each call once its inputs have arrived (see handoff_cpu.py)."""
    for call in range(count):
        stats[ANSWERED] = call + 1
        while stats[HANDED_OVER] <= call:
            pass
        yield call
    stats[ANSWERED] = count + 1


def write_error(control: ControlBlock) -> None:
    """Write the error where the parent can show it. It is evidence only, and not trusted."""
    kind, error, _ = sys.exc_info()
    line = users_line(error) if error else ""
    where = f" at {line}" if line else ""
    control.write_text(f"{kind.__name__ if kind else 'Error'}: {error}{where}"[: TEXT // 2])


def main() -> None:
    """python -m aisp_mcp.judge.candidate.main CMD_FD DONE_FD CONTROL_FD ARENA_FD"""
    # This is slow; meanwhile the parent prepares the setup that is read below. If it fails, Worker reports it.
    with suppress(Exception):
        import torch  # noqa: F401
    serve(Worker, *(int(arg) for arg in sys.argv[1:5]))


def serve(kind: type[Worker], cmd: int, done: int, control_fd: int, arena_fd: int) -> None:
    """Prepare as the setup says, then run rounds until a count of zero or the end of the pipe."""
    os.write(done, LOADED)
    setup = json.loads(read_exactly(cmd, struct.unpack("<I", read_exactly(cmd, 4))[0]))
    control = ControlBlock(control_fd, Layout.from_json(setup["layout"]))
    try:
        forbid(setup.get("forbidden", ()), setup.get("rules", ()))
        if setup["layout"]["ring"]:
            worker: Worker | ServingWorker = ServingWorker(setup, control_fd, arena_fd)
        else:
            worker = kind(setup, control_fd, arena_fd, lambda byte: os.write(done, byte))
    except BaseException:
        write_error(control)
        os.write(done, RAISED)
        raise
    os.write(done, READY)
    while (message := read_exactly(cmd, 4)) and (count := struct.unpack("<I", message)[0]):
        try:
            worker.round(count)
        except BaseException as error:
            write_error(control)
            os.write(done, SHARED if isinstance(error, SharedOutputError) else RAISED)
            raise
        os.write(done, DONE)


if __name__ == "__main__":
    main()
