"""Comparison of outputs with float64, element by element, in units of the baseline's own error.

This unit makes one threshold fit all operations, shapes and dtypes: honest float32 variants measured up to 9.4 times
the baseline's error, TF32 and float16 inputs at least 64 times, bfloat16 at least 485 times.
"""

from __future__ import annotations

import math
from typing import Any

from aisp_mcp.bench import Tolerance
from aisp_mcp.judge.verifier.checks import row_fit
from aisp_mcp.judge.verifier.checks.pieces import pieces
from aisp_mcp.judge.verifier.checks.small_elements import count_lost

# On adversarial inputs rounding is systematic (a sum of equal numbers), so honest orders of summation differ far more
# than on random ones; a skipped or wrong step is still thousands of times off.
ADVERSARIAL_SLACK = 64.0
# In 16 bits that would exceed the largest element several times; there, sums are rounded once, at the end.
NARROW_ADVERSARIAL_SLACK = 4.0
# Honest methods that mix rows (transforms, split products) leave errors of the whole tensor's size in small rows.
ROW_SLACK = 256.0
# Elements far smaller than the rest of their row, or of a vector, which is a single row, could all be zero. So no more
# than this share of the elements, and some in any case (sums may cancel), may be off by as much as LOST of their size,
# where that is more than the baseline's own errors of elements of that size explain, with some slack.
SMALL_SHARE, SMALL_COUNT, LOST, SIZE_SLACK = 0.05, 16, 0.1, 4.0
# In 16 bits the same slack would be a sixth of the element.
NARROW_EPS, NARROW_SLACK = 1e-4, 48.0
# Over at least SPREAD_COUNT elements, the average error of bfloat16 rounded to 8 bits (e4m3) is 10 to 14 times the
# baseline's in all calls; that of shipped pairs is 8 times or more in a twentieth of the calls of an attention (H100).
NARROW_SPREAD, SPREAD_COUNT = 8.0, 256
TF32_SPREAD = 6.0  # that of bfloat16 operands is 8 to 10 times that of a baseline in TF32
LARGE = 1 << 29  # elements
START = 1 << 16


def compare(
    out: Any, base: Any, ref: Any, tolerance: Tolerance, slack: float = 1.0, usual: float = 0.0, allowed: Any = None
) -> tuple[float, str | None]:
    """Return (error ratio over slack, None) or (error ratio or inf, description of the failure). All three have the
    same shape.

    out: the candidate's output. base: the baseline's on the same inputs. ref: the float64 reference. usual: the
    magnitude of elements whose float32 rounding is forgiven although they cancel to nothing (x - mean(x) of equal
    numbers). allowed: None, or an error of each element that is always allowed.
    The ratio is the larger of the ratios of maximum and of root-mean-square error, or another rule's share of its
    limit, in units of the error ratio: the contract is broken from `tolerance.error_ratio` on.
    """
    import torch

    if out.numel() == 0:
        return 0.0, None
    if tolerance.exact or not (out.is_floating_point() or out.is_complex()):
        wrong = int((out != base).sum())
        message = f"{wrong} of {out.numel()} elements differ; the contract demands exact equality"
        return (math.inf, message) if wrong else (0.0, None)
    kind = torch.finfo(out.dtype)
    out, base, ref = map(components, (out, base, ref))
    error, own, truth = _distance(out, ref), _own(base, ref, allowed, tolerance.error_ratio * slack), ref
    if not math.isfinite(float(error.max() + own.max())):
        if mismatch := _mask_mismatch(out, base, ref):
            return math.inf, mismatch
        usable = torch.isfinite(base) & torch.isfinite(ref) & torch.isfinite(out)
        error, own, truth = (values.where(usable, 0.0) for values in (error, own, ref))
    sums = min(kind.eps, torch.finfo(torch.float32).eps)  # of narrower results are not narrower
    forgiven = max(tolerance.absolute, tolerance.error_ratio * 0.5 * sums * usual)
    if forgiven:
        error.mul_(error > forgiven)
    if tolerance.approximate is not None:
        return _approximate(error, truth, tolerance.approximate)
    ratio = _error_ratio(error, own, truth, kind, slack)
    if ratio > tolerance.error_ratio:
        index = int(error.argmax())
        value, true = float(out.flatten()[index]), float(ref.flatten()[index])
        return ratio, (
            f"error is {ratio * slack:.3g} times the baseline's own (allowed {tolerance.error_ratio * slack:g}); "
            f"worst element {index} of {out.numel()}: {value:.6g}, truth {true:.6g}"
        )
    share, failure = _elements_and_rows(out, base, ref, (error, own, truth), tolerance, slack)
    return max(ratio, share * tolerance.error_ratio), failure if share > 1.0 else None


def _elements_and_rows(
    out: Any, base: Any, ref: Any, sizes: tuple[Any, Any, Any], tolerance: Tolerance, slack: float
) -> tuple[float, str]:
    """Wrong small elements and rows, in units of their own size, as a share of the allowed number; and their
    description.

    sizes: of errors, the baseline's own errors, and the truth.
    """
    import torch

    eps, ratio = torch.finfo(out.dtype).eps, tolerance.error_ratio * slack
    most = SIZE_SLACK * ratio
    most = min(most, NARROW_SLACK) if eps > NARROW_EPS and slack == 1.0 else most
    lost = count_lost(*sizes, min(0.5 * eps * ROW_SLACK * ratio, LOST), most)
    share = lost / max(SMALL_SHARE * out.numel(), SMALL_COUNT)
    if share > 1.0 or slack != 1.0:
        return share, f"{lost} of {out.numel()} elements, all of them small, are wrong relative to their own size"
    rows, failure = _off_as_a_whole(out, base, ref, tolerance, eps)
    return max(share, rows), failure


def exceeds_average(in_tf32: bool, out: Any, base: Any, ref: Any) -> float | None:
    """The factor by which the average error at least exceeds the baseline's own, where rounding in the baseline's types
    hardly explains that; else None. One such call proves nothing. in_tf32: the baseline rounds to about 10 bits.
    """
    import torch

    is_tf32 = in_tf32 and out.dtype == torch.float32 and out.numel() >= SPREAD_COUNT
    most = TF32_SPREAD if is_tf32 else NARROW_SPREAD
    if not ((is_tf32 or _is_narrow(out)) and all(bool(torch.isfinite(values).all()) for values in (out, base, ref))):
        return None
    return most if _spread(_distance(out, ref), _distance(base, ref), ref, torch.finfo(out.dtype)) > most else None


def _is_narrow(out: Any) -> bool:
    return bool(out.is_floating_point() and out.itemsize == 2 and out.numel() >= SPREAD_COUNT)


def _spread(error: Any, own: Any, truth: Any, kind: Any) -> float:
    """The root-mean-square error in units of the baseline's own."""
    unit: float = max(float(_rms(own)), 0.25 * kind.eps * float(_rms(truth)), 4 * kind.smallest_normal * kind.eps)
    return float(_rms(error)) / unit


def _off_as_a_whole(out: Any, base: Any, ref: Any, tolerance: Tolerance, eps: float) -> tuple[float, str]:
    """Whole-row errors found by row_fit in the finite elements; differences below the contract's floor never count."""
    import torch

    if not row_fit.is_tested(out):
        return 0.0, ""
    usable = torch.isfinite(out) & torch.isfinite(base) & torch.isfinite(ref)
    error, own = ((tensor.double() - ref).where(usable, 0.0) for tensor in (out, base))
    error = error.where(error.abs() > tolerance.absolute, 0.0) if tolerance.absolute else error
    return row_fit.beyond(error, own, ref.where(usable, 0.0), 0.5 * eps)


def adversarial_slack(dtype: Any) -> float:
    """Factor by which the limit is raised on adversarial inputs, for outputs of that type."""
    import torch

    is_narrow = dtype.is_floating_point and torch.finfo(dtype).eps > NARROW_EPS
    return NARROW_ADVERSARIAL_SLACK if is_narrow else ADVERSARIAL_SLACK


def _error_ratio(error: Any, own: Any, truth: Any, kind: Any, slack: float) -> float:
    """The error in units of the baseline's own: the largest of the ratios for maximum, root-mean-square and
    worst row.
    """
    least = 4 * kind.smallest_normal * kind.eps
    errors, owns, truths = (_row_peaks(values) for values in (error, own, truth))
    unit_max = max(float(owns.max()), 0.5 * kind.eps * float(truths.max()), least)
    ratio: float = max(float(errors.max()) / unit_max, _spread(error, own, truth, kind)) / slack
    return max(ratio, _worst_row(errors, owns, truths, 0.5 * kind.eps, least) / (slack * ROW_SLACK))


def distance_type(ref: Any) -> Any:
    """Type of the distances from this tensor: its own; of gigabytes, float32, which is precise enough for an error."""
    import torch

    return torch.float32 if ref.is_floating_point() and ref.numel() >= LARGE else ref.dtype


def _distance(values: Any, ref: Any) -> Any:
    """Errors in float64; of gigabytes, in float32."""
    import torch

    if values.numel() < LARGE:
        return values.to(torch.float64, copy=True).sub_(ref).abs_()
    error = torch.empty(values.shape, dtype=distance_type(ref), device=values.device)
    for part, value, exact in pieces(error, values, ref):
        part.copy_((value.double() - exact).abs_())
    return error


def _own(base: Any, ref: Any, allowed: Any, times: float) -> Any:
    """The baseline's errors, but at least what is allowed divided by `times`."""
    own = _distance(base, ref)
    if allowed is not None:
        for part, least in pieces(own, allowed):
            part.copy_(part.maximum(least / times))
    return own


def near(out: Any, base: Any, tolerance: Tolerance) -> bool:
    """Decide without the reference, at a fraction of the cost, whether compare() must accept `out` on plain inputs.

    The error is at most the distance to the baseline plus the baseline's own error, and no unit is smaller than that
    own error or half an eps of the truth. So a small enough distance suffices. False means only that the reference is
    needed.
    """
    import torch

    if tolerance.exact or not (out.is_floating_point() or out.is_complex()) or out.numel() == 0:
        return bool(torch.equal(components(out), components(base)))
    if not can_be_near(tolerance):
        return False
    eps = torch.finfo(out.dtype).eps * 0.98  # the truth may be smaller, by the baseline's error
    out, base = components(out), components(base)
    if out.numel() >= LARGE and _is_same(out, base):
        return bool(_row_peaks(base).max() < math.inf)
    apart = out.sub(base) if out.itemsize > 2 else out.float().sub_(base)
    signed = apart.clone() if row_fit.is_tested(out) else apart
    rows, sizes = _row_peaks(apart), _row_peaks(base)
    most, size = rows.max(), sizes.max()
    allowed = tolerance.error_ratio - 1
    is_near = size < math.inf  # a single transfer: each one from a device takes as long as a short kernel
    is_near &= most <= allowed * 0.5 * eps * size
    average = min(allowed, NARROW_SPREAD - 1) if _is_narrow(out) else allowed
    is_near &= _rms(apart) <= average * 0.25 * eps * _rms(base)
    rowwise = (tolerance.error_ratio * ROW_SLACK - 1) * 0.5 * eps
    is_near &= (rows <= rowwise * sizes).all()
    share = min(rowwise, 0.8 * LOST)
    excesses = (part.abs_().sub_(base_part.abs(), alpha=share) for part, base_part in pieces(apart, base))
    far = sum(excess.gt_(0).sum() for excess in excesses)  # numbers: booleans take several times as long to add
    is_near &= far <= max(SMALL_SHARE * out.numel(), SMALL_COUNT)
    if row_fit.is_tested(out):
        is_near &= row_fit.near(signed, base.to(signed.dtype), 0.5 * eps)
    return bool(is_near)


def _is_same(out: Any, base: Any) -> bool:
    """Return True if all bits are equal. If anything differs, the start usually does, and is compared first."""
    if not (out.is_contiguous() and base.is_contiguous()):
        return False
    out, base = out.view(-1), base.view(-1)
    return same_bits(out[:START], base[:START]) and same_bits(out, base)


def compare_steps(out: Any, base: Any, ref: Any, tolerance: Tolerance, slack: float = 1.0) -> tuple[float, str | None]:
    """Compare an output whose first dimension counts dependent steps: each step separately.

    The unit of a step is the baseline's largest error up to it, plus half an eps of each step so far.
    """
    import torch

    error, own = (_peak_of_steps(tensor.double() - ref) for tensor in (out, base))
    if not bool(torch.isfinite(error + own).all()):
        mismatch = _mask_mismatch(out, base, ref)
        return (math.inf, mismatch) if mismatch else (0.0, None)
    unit = own.cummax(0).values.maximum(_rounding_of_steps(ref, out.dtype)).clamp_min(1e-300)
    ratios = error / unit / slack
    step = int(ratios.argmax())
    ratio = float(ratios[step])
    if ratio <= tolerance.error_ratio:
        return ratio, None
    allowed = f"(allowed {tolerance.error_ratio * slack:g})"
    return ratio, f"error of step {step} is {ratio * slack:.3g} times the baseline's own up to it {allowed}"


def near_steps(out: Any, base: Any, tolerance: Tolerance) -> bool:
    """near() for outputs of steps."""
    if not can_be_near(tolerance):
        return False
    allowed = (tolerance.error_ratio - 1) * 0.98 * _rounding_of_steps(base.double(), out.dtype)
    return bool((_peak_of_steps(out.double() - base.double()) <= allowed).all())


def _peak_of_steps(values: Any) -> Any:
    return values.abs().reshape(len(values), -1).amax(1)


def _rounding_of_steps(values: Any, dtype: Any) -> Any:
    """Half an eps of each step's largest value, for each step up to it."""
    import torch

    count = torch.arange(1, len(values) + 1, device=values.device)
    return 0.5 * torch.finfo(dtype).eps * _peak_of_steps(values) * count


def components(values: Any) -> Any:
    """Real tensors unchanged; 8-bit floating-point tensors as float32, because torch has no arithmetic for them;
    complex tensors as real and imaginary parts along the last dimension.
    """
    import torch

    if values.is_floating_point() and values.itemsize == 1:
        return values.float()
    if not values.is_complex():
        return values
    parts = torch.view_as_real(values.resolve_conj().resolve_neg())
    return parts.flatten(-2) if values.ndim else parts


def is_compared_by_error(tolerance: Tolerance) -> bool:
    """True if the baseline's own error is the unit of a candidate's."""
    other = tolerance.exact, tolerance.approximate, tolerance.stochastic, tolerance.format, tolerance.per_step
    return not any(other)


def relative_error(out: Any, ref: Any) -> float:
    """Root-mean-square distance from the reference as a share of its own root-mean-square; 0 if that is no number."""
    if not (out.is_floating_point() or out.is_complex()) or not out.numel():
        return 0.0
    out, ref = components(out), components(ref)
    share = float(_rms(_distance(out, ref))) / max(float(_rms(ref)), 1e-300)
    return share if math.isfinite(share) else 0.0


def can_be_near(tolerance: Tolerance) -> bool:
    """Return True if the contract allows near() to accept floating-point outputs without a reference."""
    return tolerance.exact or (tolerance.approximate is None and not tolerance.stochastic and not tolerance.format)


def _worst_row(error: Any, own: Any, truth: Any, eps: float, least: float) -> float:
    """The error of each row in units of that row, from the peaks of rows, so that none hides behind a larger one.

    The unit of rows that should be all zeros is that of the whole tensor.
    """
    if not error.ndim:
        return 0.0
    unit = own.maximum(eps * truth)
    return float((error / unit.clamp_min(least)).where(unit > 0, 0.0).max())


def _row_peaks(values: Any) -> Any:
    """The largest magnitude of each row of the last dimension; NaN if the row contains one."""
    return values.amax(-1).maximum(values.amin(-1).neg())


def _rms(values: Any) -> Any:
    """A number as a tensor, in the precision of the values, float32 at least."""
    import torch

    kind = torch.float32 if values.itemsize < 4 else values.dtype
    return torch.linalg.vector_norm(values, dtype=kind) / math.sqrt(values.numel())


def _approximate(error: Any, truth: Any, allowed: float) -> tuple[float, str | None]:
    """Relative error in the Frobenius norm, in units of the allowance, for contracts that allow an approximation."""
    relative = float(error.norm()) / max(float(truth.norm()), 1e-300)
    if relative <= allowed:
        return relative / allowed, None
    return relative / allowed, f"relative error {relative:.3g} exceeds the contract's {allowed:g}"


def _mask_mismatch(out: Any, base: Any, ref: Any) -> str | None:
    """Check non-finite elements: the output must be finite where the baseline is, and equal where baseline and
    reference are not.
    """
    import torch

    surplus = int((~torch.isfinite(out) & torch.isfinite(base)).sum())
    if surplus:
        return f"{surplus} of {out.numel()} elements are NaN or infinite where the baseline is finite"
    both = ~torch.isfinite(base) & ~torch.isfinite(ref)
    same = (torch.isnan(out) & torch.isnan(base)) | (out == base)
    missing = int((both & ~same).sum())
    return f"{missing} non-finite elements differ from the baseline's" if missing else None


def same_bits(left: Any, right: Any) -> bool:
    """Equal values, with NaN equal to NaN."""
    import torch

    whole = all(
        tensor.is_contiguous()
        and not (tensor.nbytes % 8 or tensor.data_ptr() % 8 or tensor.is_conj() or tensor.is_neg())
        for tensor in (left, right)
    )
    if whole and torch.equal(*(tensor.flatten().view(torch.int64) for tensor in (left, right))):
        return True  # the usual case, in half the time of comparing numbers
    same = (left == right) | ((left != left) & (right != right))
    return bool(same.all())


def is_poison(rows: Any, dtype: str, itemsize: int) -> Any:
    """Per row of bytes: True if an element still has the exact bits of the poison. An honest NaN has others."""
    import torch

    if dtype.startswith("complex"):
        dtype, itemsize = f"float{itemsize * 4}", itemsize // 2
    if itemsize > 1 and not bool(rows.view(getattr(torch, dtype)).amax(1).isnan().any()):
        return rows.new_zeros(1, dtype=torch.bool)  # the poison is NaN, and a search for NaN is much quicker
    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return (rows.view(kinds[itemsize]) == -1).any(1)
