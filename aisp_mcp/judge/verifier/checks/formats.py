"""Low-precision formats: round operands to them, and measure errors in units of the error that this rounding causes."""

from __future__ import annotations

import math
from typing import Any

from aisp_mcp.bench import Tolerance

INT4_GROUP, FP4_GROUP = 128, 32  # values per scale, as GPTQ's and MXFP4's usual; the others have one scale per row
FP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
FLOAT8 = {"fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}
INTEGER = {"int8_weight": (127, 0), "int4_weight": (7, INT4_GROUP)}  # largest code, group
# Elements of a row from which on rows are compared, and times `error_ratio` for a single element and for a row: these
# may exceed their own rounding error by chance far more than the whole tensor does. Chosen: the largest of a million
# normal numbers is 4.9 standard deviations, and 4 times 1.5 are 6; the next coarser format has twice the error.
SHORT_ROW, ELEMENT_SLACK, ROW_SLACK = 16, 4.0, 2.5


def rounded(values: Any, name: str) -> Any:
    """The values rounded to a format, in their own type. Scales are per row or group of the last dimension."""
    import torch

    wide = values.double()
    if name in FLOAT8:
        kind = getattr(torch, FLOAT8[name])
        scale = _peaks(wide) / torch.finfo(kind).max
        result = (wide / scale).float().to(kind).double() * scale
    elif name in INTEGER:
        most, group = INTEGER[name]
        result = _grouped(wide, group, lambda values: _integer(values, most))
    else:
        result = _grouped(wide, FP4_GROUP, _fp4)
    return result.to(values.dtype)


def rounded_operands(params: dict[str, Any], inputs: dict[str, Any], tolerance: Tolerance) -> dict[str, Any]:
    """Round the operands that the contract allows a candidate to round; by name, without the others."""
    every = inputs | params
    of_format = every if tolerance.format.startswith("fp") else params
    matrices = [name for name, tensor in of_format.items() if tensor.is_floating_point() and tensor.ndim > 1]
    names = tolerance.quantised or matrices
    return {name: rounded(every[name], tolerance.format) for name in names}


def compare(out: Any, ref: Any, exact: Any, tolerance: Tolerance) -> tuple[float, str | None, dict[str, float]]:
    """Return (error in units of the format's, failure or None, signal-to-noise ratios in dB).

    out: the candidate's output. ref: the float64 reference. exact: the same with its operands rounded.
    """
    import torch

    if not out.is_floating_point():
        wrong = int((out != ref).sum())
        return (math.inf, f"{wrong} integers differ", {}) if wrong else (0.0, None, {})
    error, own = (out.double() - ref).abs(), (exact.double() - ref).abs()
    if not bool(torch.isfinite(error).all()):
        return math.inf, "elements are NaN or infinite", {}
    error = error.where(error > tolerance.absolute, 0.0)
    eps = 0.5 * torch.finfo(out.dtype).eps
    least = torch.finfo(out.dtype).smallest_normal * eps
    ratio = _rms(error) / max(_rms(own), eps * _rms(ref), least)
    ratio = max(ratio, float(error.max()) / max(float(own.max()), eps * float(ref.abs().max()), least) / ELEMENT_SLACK)
    if out.ndim > 1 and out.shape[-1] >= SHORT_ROW:
        rows, owns, truths = (values.square().mean(-1).sqrt() for values in (error, own, ref))
        ratio = max(ratio, float((rows / owns.maximum(eps * truths).clamp_min(least)).max()) / ROW_SLACK)
    measures = {"sqnr_db": _db(ref, error), "format_sqnr_db": _db(ref, own)}
    if ratio <= tolerance.error_ratio:
        return ratio, None, measures
    message = (
        f"error is {ratio:.3g} times that of {tolerance.format} (allowed {tolerance.error_ratio:g}); "
        f"{measures['sqnr_db']:.1f} dB, the format has {measures['format_sqnr_db']:.1f} dB"
    )
    return ratio, message, measures


def _db(signal: Any, noise: Any) -> float:
    return round(20.0 * math.log10(max(_rms(signal), 1e-300) / max(_rms(noise), 1e-300)), 2)


def _rms(values: Any) -> float:
    return float(values.norm()) / math.sqrt(max(values.numel(), 1))


def _peaks(values: Any) -> Any:
    """The largest magnitude of each row; 1 for rows of zeros."""
    peaks = values.abs().amax(-1, keepdim=True)
    return peaks.where(peaks > 0, 1.0)


def _grouped(values: Any, group: int, work: Any) -> Any:
    """Apply `work` to groups of the last dimension, or to whole rows if the group size does not divide it."""
    width = values.shape[-1]
    if not group or width % group:
        return work(values)
    return work(values.reshape(*values.shape[:-1], width // group, group)).reshape(values.shape)


def _integer(values: Any, most: int) -> Any:
    scale = _peaks(values) / most
    return (values / scale).round() * scale


def _fp4(values: Any) -> Any:
    """The nearest values of e2m1 with a power of two as the scale of a group, as in MXFP4."""
    import torch

    scale = (_peaks(values) / FP4_VALUES[-1]).log2().ceil().exp2()
    grid = torch.tensor(FP4_VALUES, dtype=values.dtype, device=values.device)
    middle = (grid[1:] + grid[:-1]) / 2
    return grid[torch.bucketize((values / scale).abs(), middle)] * values.sign() * scale
