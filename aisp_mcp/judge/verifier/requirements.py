"""Reasons why a benchmark cannot be measured: something this machine lacks, or a fault in the specification.

Runs in the verifier, where torch may be imported.
"""

from __future__ import annotations

import ast
import ctypes.util
import inspect
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from aisp_mcp.bench import Answers, Benchmark, Needs
from aisp_mcp.bench.sizes import settable
from aisp_mcp.errors import AispError, BenchmarkError
from aisp_mcp.judge.native import build
from aisp_mcp.judge.protocol.draws.rng import ENDS, MISSING, MODES, OFFSET, SIZES
from aisp_mcp.judge.protocol.module_loader import LIBRARIES, flatten
from aisp_mcp.judge.verifier.checks import quality
from aisp_mcp.judge.verifier.checks.distribution import LEAST_ELEMENTS
from aisp_mcp.judge.verifier.checks.kinds import Kind, kind_of
from aisp_mcp.judge.verifier.checks.other_orders import OtherOrders
from aisp_mcp.judge.verifier.checks.tolerance import (
    compare,
    components,
    is_compared_by_error,
    near,
    relative_error,
    same_bits,
)
from aisp_mcp.judge.verifier.inputs.bank import InputBank
from aisp_mcp.judge.verifier.walks import is_real
from aisp_mcp.system import cpu, software, topology

TILES = {"amx": "amx_tile"}  # CPU features by their common names
MIN_SM = {"fp8": 89, "fp4": 100}  # lowest compute capability whose tensor cores multiply these types
NAN = re.compile(r"(is_?)?nan\w*|is_?finite|is_?null|(is|not|fill|drop)_?na|(fill|drop)_?nulls?", re.IGNORECASE)
# Times eps of the largest element: outputs for different inputs that differ by no more do not depend on them. Chosen:
# several roundings of a result, and far below the effect of any input that shows.
ROUNDINGS = 16
# Share of its size by which a baseline's output may change between calls on the same inputs: atomic additions change
# roundings alone. Chosen.
MOST_APART = 0.01
# Share of its usual size by which roundings of constant inputs may move an output that can be judged there. Chosen:
# they move normalised numbers by one and more, and a difference from a mean by some eps.
MOST_MOVED = 0.01
# Size of these roundings at least. Chosen: above the cutoffs of a rank, which are some hundreds of eps of float64.
LEAST_NOISE = 2.0**-36
# Draws of plain inputs before a single number is the same for all, which one in 16 bits often is for two; and before
# any other output is, as that of a threshold above whole draws. Chosen.
DRAWS, FEW_DRAWS = 16, 4
# Seconds of a baseline's call up to which it is tried on each kind of adversarial inputs before the comparison; on a
# busy machine, where one of 25 ms may take as long, of its processors' time. Chosen.
TRIED_S, BUSY_TRIED_S = 0.2, 2.0
# Draws of constant inputs until the baseline has a number as an answer: their sign is drawn. Chosen.
CONSTANTS = 6
# Draws of a kind of inputs, of which half must have an answer, and draws until one has: of 16, all fail once in 65,000
# times. Chosen. Bit of a seed above which the number of the draw is.
TRIED, REDRAWN, REDRAW_BIT = 8, 16, 48
# Growth of a baseline's output from plain inputs on, from which its answer there is none. Chosen: a product of three
# inputs grows by 1e6 where some are outliers.
MOST_GROWTH = 1e9
# Times that such inputs are moved by roundings: the last pivot of a singular matrix is below 0 in half of them. Chosen.
MOVES = 4
# Root-mean-square error of a baseline as a share of its output's own, above which rounding decides the output. Chosen
# (commit 72116c3b): an error of `error_ratio` times 0.3 is seven times the output.
MOST_ERROR = 0.3
LINKS = {"p2p": "memory access between two devices", "nvlink": "NVLink between two devices"}
TOOLS = {"nvcc": "the compiler nvcc (CUDA_HOME, PATH, /usr/local/cuda)", "cufile": "the library cuFile"}


def missing_needs(needs: Needs, threads: int, cores: int) -> list[str]:
    """Each unmet need as a phrase; empty if the benchmark can run. threads: of each worker, as declared. cores: that
    the comparison may use. Raises BenchmarkError BAD_NEED for an unknown name.
    """
    known = {*MIN_SM, *LINKS, *TOOLS}
    if unknown := {*needs.gpu, *needs.tools} - known:
        raise BenchmarkError("BAD_NEED", f"Unknown need {min(unknown)!r}.", f"Known are {', '.join(sorted(known))}.")
    lacks = [f"package {name}" for name in needs.packages if software.version(name) is None]
    if cores < (needed := max(needs.cores, threads)):
        lacks.append(f"{needed} cores, found {cores}")
    lacks += _missing_on_host(needs)
    sm = max([needs.sm, *(MIN_SM[name] for name in needs.gpu if name in MIN_SM)])
    links = [name for name in needs.gpu if name in LINKS]
    gpus = max(needs.gpus, 2 if links else 0)
    if gpus or sm or needs.memory_gb:
        lacks += _missing_device(gpus, sm, needs.memory_gb)
    return [*lacks, *_missing_links(links)]


def _missing_on_host(needs: Needs) -> Iterator[str]:
    if needs.numa and (available := max(len(cpu.numa()), 1)) < needs.numa:
        yield f"{needs.numa} NUMA nodes, found {available}"
    features = cpu.read().isa if needs.cpu else []
    yield from (f"processor feature {name}" for name in needs.cpu if TILES.get(name, name) not in features)
    yield from (TOOLS[name] for name in needs.tools if not _has_tool(name))


def _has_tool(name: str) -> bool:
    if name == "nvcc":
        return build.compiler(".cu") is not None
    return ctypes.util.find_library("cufile") is not None


def _missing_links(links: list[str]) -> Iterator[str]:
    pair = next(iter(topology.read().pairs), None) if links else None
    there = {"p2p": pair is not None and pair.read == "ok", "nvlink": pair is not None and bool(pair.nvlink)}
    yield from (LINKS[name] for name in links if not there[name])


def _missing_device(gpus: int, sm: int, memory_gb: float) -> list[str]:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count < max(1, gpus):
        return [f"{max(1, gpus)} CUDA device(s), found {count}"]
    lacks = []
    major, minor = torch.cuda.get_device_capability()
    if major * 10 + minor < sm:
        lacks.append(f"compute capability {sm / 10:.1f}, found {major}.{minor}")
    free = torch.cuda.mem_get_info()[0] / 2**30
    if free < memory_gb:
        lacks.append(f"{memory_gb:g} GiB of free device memory, found {free:.1f}")
    return lacks


def is_tried(seconds: float, processor_s: float) -> bool:
    """Return True if a baseline is quick enough to be tried on each kind of inputs. processor_s: of its call, or as
    many seconds as it took where the work is another device's.
    """
    return seconds <= TRIED_S or (seconds <= BUSY_TRIED_S and processor_s <= TRIED_S)


def kinds_with_an_answer(bank: InputBank, seed: int, output: Any) -> tuple[list[str], dict[str, str]]:
    """Kinds of adversarial inputs to try a candidate on; and, for the others, why not: the baseline raises, as a
    candidate may, or its output is not finite. seed: of the inputs. output: of other ones. Raises BenchmarkError
    VARYING_SHAPE.
    """
    why_not = partial(_without_answer, bank, seed, output)
    modes = [*MODES[1:], *(ENDS if _has_ranges(bank, seed) else ())]
    untested = {mode: why for mode in modes if (why := why_not(mode))}
    kinds = [mode for mode in modes if mode not in untested]
    spec = bank.reference.spec
    is_elements = kind_of(spec) is Kind.ELEMENTS
    if not is_elements and spec.answers != Answers():
        return kinds, untested
    large, bounded = _floats(bank, seed)
    if large and (why := why_not(OFFSET)):
        untested[OFFSET] = why
    elif large:
        kinds.append(OFFSET)
    if not is_elements:
        return kinds, untested
    if bounded:
        untested["larger"] = f"{', '.join(bounded)} {'has' if len(bounded) == 1 else 'have'} a declared range"
    if not large:
        return kinds, untested
    if _names_nan(spec):
        if why := why_not(MISSING):
            untested[MISSING] = why
        else:
            kinds.append(MISSING)
    if why := why_not("thousands"):
        return kinds, {**untested, "thousands": why}
    largest = next((mode for mode in ("huge", "large") if not why_not(mode)), None)
    return [*kinds, "thousands", *([largest] if largest else [])], untested


def _names_nan(spec: Benchmark) -> bool:
    """Return True if the specification's file, or that of a function which it calls, names NaN: what it does then is
    meant, where the order of a comparison with NaN is chance elsewhere.
    """
    own = [value for value in vars(type(spec)).values() if inspect.isfunction(value)]
    called = [each.__globals__.get(name) for each in own for name in each.__code__.co_names]
    files = {each.__code__.co_filename for each in (*own, *called) if inspect.isfunction(each)}
    return any(_mentions_nan(Path(file)) for file in files if not file.startswith(LIBRARIES))


def _mentions_nan(path: Path) -> bool:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    names = (getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(tree))
    return any(NAN.fullmatch(str(name)) for name in names)


def _has_ranges(bank: InputBank, seed: int) -> bool:
    """Return True if inputs are integers of a declared range."""
    one, other = (bank.inputs(seed, mode) for mode in ENDS)
    return not all(same_bits(value, other[name]) for name, value in one.items() if hasattr(value, "dtype"))


def _floats(bank: InputBank, seed: int) -> tuple[list[str], list[str]]:
    """Names of the inputs in floating point that follow the kinds which say how large values are, and of the others."""
    one, other = (bank.inputs(seed, mode) for mode in ("huge", "thousands"))
    names: tuple[list[str], list[str]] = [], []
    for name, value in one.items():
        if hasattr(value, "dtype") and (value.is_floating_point() or value.is_complex()):
            names[same_bits(value, other[name])].append(name)
    return names


def _without_answer(bank: InputBank, seed: int, output: Any, mode: str) -> str:
    """Why a candidate cannot be tried on this kind of inputs; empty if it can. Raises BenchmarkError VARYING_SHAPE."""
    try:
        outputs = bank.reference.baseline(bank.inputs(seed, mode))
    except AispError:
        raise
    except Exception as error:
        return f"the baseline raises there ({type(error).__name__}: {str(error)[:200]})"
    reject_varying_shapes(output, outputs)
    number = bank.redrawn(_with_a_number(bank, seed), mode) if mode == "constant" else seed
    if mode == "constant" and _is_left_to_rounding(bank, number, mode, [output]):
        return "there rounding alone decides the baseline's output, or it is not finite"
    if bank.drawn_as and 2 * sum(has_answer(bank, seed + more, mode, output) for more in range(TRIED)) < TRIED:
        return "on most of these the baseline raises, or rounding alone decides its output"
    if mode in (*SIZES, MISSING, OFFSET) and not _is_as_finite(outputs, output):
        return "the baseline's output is not finite there"
    if mode == OFFSET and bank.drawn_as:
        return "a program raises there"
    return ""


def _is_finite(output: Any) -> bool:
    return all(bool(components(tensor).isfinite().all()) for _, tensor in flatten(output))


def _is_as_finite(outputs: Any, usual: Any) -> bool:
    """Return True if outputs are finite wherever they are on usual inputs: the first of a rolling mean never are."""
    pairs = zip(flatten(outputs), flatten(usual), strict=True)
    return all(
        bool((components(one).isfinite() | ~components(other).isfinite()).all()) for (_, one), (_, other) in pairs
    )


def has_answer(bank: InputBank, seed: int, mode: str, output: Any) -> bool:
    """Return True unless the baseline raises on these inputs, its output is not finite there alone or outgrows(), or
    rounding alone decides it, as that of a solver for a singular matrix. output: on plain inputs.
    """
    try:
        there = bank.reference.baseline(bank.drawn(seed, mode))
        if (_is_finite(output) and not _is_finite(there)) or outgrows(mode, there, output):
            return False
        return not _is_left_to_rounding(bank, seed, mode, [output, there], MOVES)
    except AispError:
        raise
    except Exception:
        return False


def outgrows(mode: str, there: Any, usual: Any) -> bool:
    """Return True if the baseline's output is many times as large as on plain inputs, on inputs that are not large
    themselves: that of a recurrence which grows from step to step, or the inverse of a matrix that is all but singular.
    """
    pairs = zip(flatten(there), flatten(usual), strict=True)
    return mode not in (*SIZES, OFFSET) and any(
        0 < MOST_GROWTH * _largest(other) < _largest(one) for (_, one), (_, other) in pairs
    )


def _largest(tensor: Any) -> float:
    """The largest finite magnitude of a tensor of floats; 0 if there is none."""
    values = components(tensor)
    if not values.numel() or not values.is_floating_point():
        return 0.0
    return float(values.double().abs().nan_to_num(0.0, 0.0, 0.0).max())


class Redraws:
    """Seeds in place of those on whose unusual inputs the baseline has no answer."""

    def __init__(self, bank: InputBank) -> None:
        self._bank, self._known = bank, dict[tuple[int, str], int]()
        self._output: Any = None

    def __call__(self, seed: int, mode: str) -> int:
        """The seed itself if its inputs have an answer, or none of a few has."""
        if self._output is None:
            self._output = self._bank.reference.baseline(self._bank.drawn(seed, "plain"))
        if (seed, mode) not in self._known:
            others = (seed ^ turn << REDRAW_BIT for turn in range(REDRAWN))
            found = (each for each in others if has_answer(self._bank, each, mode, self._output))
            self._known[seed, mode] = next(found, seed)
        return self._known[seed, mode]


def _with_a_number(bank: InputBank, seed: int) -> int:
    """The first seed from this one on whose constant inputs have a number as an answer, as only those above 0 may have
    of a function that selects; this one if none of a few has.
    """
    for each in range(seed, seed + CONSTANTS):
        with suppress(Exception):  # of the baseline
            output = bank.reference.baseline(bank.inputs(each, "constant"))
            if any(bool(components(tensor).isfinite().any()) for _, tensor in flatten(output)):
                return each
    return seed


def _is_left_to_rounding(bank: InputBank, seed: int, mode: str, outputs: Sequence[Any], times: int = 1) -> bool:
    """Return True if the baseline has no number as an answer on these inputs, or another one once these are off by
    roundings: what is divided by the deviation of constants. A reference of its author's own says what is right there.
    outputs: on the inputs whose outputs' size counts, first other ones. times: the inputs are moved at most.
    """
    import torch

    spec = bank.reference.spec
    is_compared = kind_of(spec) is Kind.ELEMENTS or spec.answers == Answers()
    if not is_compared or type(spec).reference is not Benchmark.reference:
        return False

    def inputs() -> dict[str, Any]:
        return bank.drawn(seed, mode)

    real = {name: value for name, value in inputs().items() if is_real(value)}
    eps = min((torch.finfo(value.dtype).eps for value in real.values()), default=1.0)
    axes = {name: range(value.ndim) for name, value in real.items()}
    eps = min(max(eps, LEAST_NOISE), torch.finfo(torch.float32).eps)
    own, exact = bank.reference.both(inputs())
    once, exact = (bank.numbers(each, own) for each in (own, exact))
    usual = [bank.numbers(each, each) for each in outputs]
    for draw in range(times):
        try:
            moved = bank.numbers(bank.reference.walked(inputs(), axes, eps, seed + draw, straight=False), own)
        except Exception:  # a root of a number that roundings move below 0
            return True
        if any(
            _starts_from_rounding([each.get(at, value) for each in usual], value, exact[at], moved[at])
            for at, value in once.items()
            if value.is_floating_point()
        ):
            return True
    return False


def _starts_from_rounding(usual: Sequence[Any], once: Any, exact: Any, moved: Any) -> bool:
    """Return True if the baseline's output on such inputs has no number, or if roundings move it by much of the size
    of each of the usual ones, or to or from NaN. exact, moved: in float64, without and with roundings.
    """
    if not usual[0].numel() or not bool(usual[0].isfinite().any()):
        return False
    if not bool(once.isfinite().any()) or not bool((exact.isfinite() == moved.isfinite()).all()):
        return True
    most, *sizes = map(_largest, (exact - moved, *usual))
    return all(most > MOST_MOVED * size for size in sizes)


def reject_varying_shapes(one: Any, other: Any) -> None:
    """Refuse outputs for different inputs that differ in shape. Raises BenchmarkError VARYING_SHAPE."""
    shapes, others = ({name: tuple(tensor.shape) for name, tensor in flatten(output)} for output in (one, other))
    if shapes != others:
        name = next(name for name in [*shapes, *others] if shapes.get(name) != others.get(name))
        different = f"{name} is {shapes.get(name, 'absent')} or {others.get(name, 'absent')}"
        raise BenchmarkError(
            "VARYING_SHAPE",
            f"The shape of the baseline's output depends on the values of its inputs: {different}.",
            "Compare it as two functions on a CPU, whose results may have any shape: aisp bench verify A B --inputs …",
        )


def reject_changing_results(one: Any, other: Any) -> None:
    """Refuse a baseline with two results for the same inputs. Raises BenchmarkError NOT_DETERMINISTIC."""
    pairs = zip(flatten(one), flatten(other), strict=False)
    if any(a.shape == b.shape and _apart(a, b) > MOST_APART for (_, a), (_, b) in pairs):
        raise BenchmarkError(
            "NOT_DETERMINISTIC",
            "The baseline's result changes from call to call on the same inputs: it draws its own random numbers, or "
            "keeps a state.",
            "Pass a seed as an input, seed=randint(0, 1000000), declare the tolerance stochastic, or end a module's "
            "training mode: self.eval() in its __init__.",
        )


def _apart(one: Any, other: Any) -> float:
    """Distance as a share of the size of both."""
    if not one.is_floating_point() and not one.is_complex():
        return float((one != other).double().mean()) if one.numel() else 0.0
    return relative_error(one, other)


def reject_degenerate(bank: InputBank, seed: int, output: Any, kinds: Sequence[str]) -> bool:
    """Refuse a problem whose answer does not depend on its inputs, because its outputs cannot show that work was done.
    Returns True if only an exact output on adversarial inputs is another one. seed: of inputs other than those of the
    output. kinds: of adversarial inputs. Raises BenchmarkError DEGENERATE, VARYING_SHAPE.
    """
    is_exact = not any(tensor.is_floating_point() or tensor.is_complex() for _, tensor in flatten(output))
    is_single = sum(tensor.numel() for _, tensor in flatten(output)) == 1
    count = DRAWS if is_single or is_exact else FEW_DRAWS
    draws = [("plain", seed + further) for further in range(count)]
    for mode, drawn in [*draws, *((kind, seed) for kind in kinds if is_exact)]:
        other = bank.reference.baseline(bank.inputs(drawn, mode))
        reject_varying_shapes(output, other)
        if not all(_same(a, b) for (_, a), (_, b) in zip(flatten(output), flatten(other), strict=True)):
            return mode != "plain"
    for mode in ("plain", *kinds):
        bank.reference.both(bank.inputs(seed, mode))
        if bank.reference.left:  # the answer of a function that returns nothing
            return False
    spec = bank.reference.spec
    zeros = [name for name, value in settable(spec).items() if value == 0 and not isinstance(value, bool)]
    if zeros:
        at = f"{', '.join(f'{name}=0' for name in zeros)} of {type(spec).__name__}"
        message = f"The baseline gives the same output for different inputs at the size {at}."
        raise BenchmarkError("DEGENERATE", message, f"Set {' and '.join(zeros)} above 0.")
    raise BenchmarkError(
        "DEGENERATE",
        "The baseline gives the same output for different inputs.",
        "Make inputs that the output depends on; for two functions, a generator of your own can: --make gen.py:make.",
    )


def _same(one: Any, other: Any) -> bool:
    """Return True if outputs for different inputs are equal, or differ only by rounding: then a fixed answer would also
    be correct.
    """
    import torch

    if one.shape != other.shape:
        return False
    if one.dtype not in (torch.float32, torch.float64) or not one.numel():
        return bool((one == other).all())
    allowed = ROUNDINGS * torch.finfo(one.dtype).eps * one.abs().nan_to_num(0.0, 0.0, 0.0).max()
    return bool(((one == other) | ((one - other).abs() <= allowed)).all())


def reject_untestable(bank: InputBank, seed: int, output: Any) -> None:
    """Refuse a random output without an expectation to compare it with, or with too few elements, and a quality
    contract that would miss a skipped step. Raises BenchmarkError.
    """
    spec = bank.reference.spec
    if checked := quality.contract(spec):
        checked.reject_blind(bank, seed)
    if not spec.tolerance.stochastic:
        return
    if type(spec).reference is Benchmark.reference:
        hint = "Define reference(): the expected output for these inputs, in float64."
        raise BenchmarkError("NO_EXPECTATION", "The contract is stochastic, and there is no reference().", hint)
    least = min(tensor.numel() for _, tensor in flatten(output))
    if least < LEAST_ELEMENTS:
        hint = f"Make outputs of {LEAST_ELEMENTS} elements or more."
        raise BenchmarkError("TOO_FEW_DRAWS", f"{least} random elements are too few to test a distribution.", hint)


def rehearse(bank: InputBank, seed: int, other: Any, orders: OtherOrders, kinds: Sequence[str]) -> None:
    """Compare the baseline with its reference once, so that first-use costs do not fall between rounds, and note its
    coarse outputs. seed: of inputs other than those of the output `other`. kinds: of adversarial inputs.

    Raises BenchmarkError UNSTABLE if the baseline's output is far from the reference: its errors are the unit of a
    candidate's, so any output would pass; DEGENERATE if `other` passes on all kinds of inputs.
    """
    import torch

    tolerance = bank.reference.spec.tolerance
    own, truth = baseline_and_truth(bank, seed, "plain")
    for output, exact in () if tolerance.stochastic else zip(own, truth, strict=True):
        near(output, output, tolerance)
        compare(output, output, exact, tolerance)
    shares = baseline_errors(bank, own, truth)
    if (share := max(shares, default=0.0)) > MOST_ERROR:
        raise BenchmarkError(
            "UNSTABLE",
            "Rounding decides the baseline's output, or several outputs are right: it differs from its value in "
            f"float64 by {share:.0%} of its size, and no output of a candidate could be judged wrong.",
            "Return what is unique, such as singular values or a product instead of vectors of either sign; or choose "
            "sizes or inputs for which the computation is stable, such as a larger batch for a batch norm.",
        )
    orders.note_coarse(shares)
    others = [tensor for _, tensor in flatten(other)]
    if shares and not bank.reference.answers_in_inputs and _passes(bank, others, own, truth, orders, "plain"):
        is_exact = not any(tensor.is_floating_point() or tensor.is_complex() for tensor in own)
        del own, truth
        draws = [(mode, seed) for mode in kinds] + [("plain", seed + DRAWS + more) for more in range(DRAWS * is_exact)]
        if all(_passes(bank, others, *baseline_and_truth(bank, at, mode), orders, mode) for mode, at in draws):
            if is_exact:
                raise BenchmarkError(
                    "DEGENERATE",
                    "The baseline gives the same output for most inputs.",
                    "Make inputs that the output depends on, or return the answers to several in one call.",
                )
            raise BenchmarkError(
                "DEGENERATE",
                "The tolerance is too loose to judge: the baseline's output for different inputs would also pass.",
                "Choose sizes or inputs that change the output by more, or a more precise baseline.",
            )
    torch.cuda.empty_cache()  # memory for workers is not allocated by torch; on a CPU this does nothing


def baseline_and_truth(bank: InputBank, seed: int, mode: str) -> tuple[list[Any], list[Any]]:
    baseline, reference = bank.reference.both(bank.inputs(seed, mode))
    return [tensor for _, tensor in flatten(baseline)], [tensor for _, tensor in flatten(reference)]


def baseline_errors(bank: InputBank, own: list[Any], truth: list[Any]) -> list[float]:
    """The relative error of each output of the baseline; empty if errors do not decide."""
    spec = bank.reference.spec
    if not is_compared_by_error(spec):
        return []
    return [relative_error(output, exact) for output, exact in zip(own, truth, strict=True)]


def _passes(
    bank: InputBank, outputs: list[Any], own: list[Any], truth: list[Any], orders: OtherOrders, mode: str
) -> bool:
    """Return True if these outputs would pass on inputs of that kind."""
    tolerance = bank.reference.spec.tolerance
    return all(
        tensors[0].shape == tensors[1].shape
        and compare(*tensors, tolerance, orders.slack(mode, index, tensors[0].dtype))[1] is None
        for index, tensors in enumerate(zip(outputs, own, truth, strict=True))
    )
