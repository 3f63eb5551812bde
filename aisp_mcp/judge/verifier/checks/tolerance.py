"""The rule of closeness: how far an output may be from float64, element by element, in units of the baseline's error.

This unit makes one threshold fit all operations, shapes and dtypes: honest float32 variants measured up to 9.4 times
the baseline's error, TF32 and float16 inputs at least 64 times, bfloat16 at least 485 times.

The rule has two uses. compare() measures errors with the reference. near() has only the baseline's output: the error is
at most the distance to the baseline plus the baseline's own error, and no unit is smaller than that own error or half
an eps of the truth. So an output whose distance passes the rule with one unit less must pass with the reference, too
(docs/decisions/0083-accept-outputs-near-the-baseline.md). Both take their limits from ErrorLimits and measure with the
same functions.

A normalisation that uses part of each row is off by a different factor in every row; a sum over a sample, by an offset.
Both may be smaller than the 16-bit tolerance of a single element. But rounding errors have independent signs and
average out over a row, and a wrong factor does not. So in 16-bit outputs, the part of the error of rows and columns
that a gain and an offset explain is limited to a few roundings of one number: as many as computing a statistic in the
narrow type involves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from aisp_mcp.bench import Benchmark, Tolerance
from aisp_mcp.judge.verifier.checks.kinds import Kind, kind_of
from aisp_mcp.judge.verifier.checks.pieces import pieces

# Times `error_ratio`, on adversarial inputs. Rounding is systematic there (a sum of equal numbers), so honest orders of
# summation differ far more than on random ones; a skipped or wrong step is still thousands of times off.
# docs/verdicts.md, "Narrow types"; results/cpu-honest.json: no honest alternative refused.
ADVERSARIAL_SLACK = 64.0
# The same for outputs of 16 bits, where 64 would exceed the largest element several times; sums are rounded once, at
# the end, there. Also for float32 outputs with narrow operands: docs/decisions/0086-limit-what-rounding-excuses.md.
NARROW_ADVERSARIAL_SLACK = 4.0
# Times `error_ratio`, for a row in units of its own size. Honest methods that mix rows (transforms, split products)
# leave errors of the whole tensor's size in small rows. Chosen when the attack corpus was closed (commit 987103a9).
ROW_SLACK = 256.0
# Share of the elements, and number of them in any case (sums may cancel), that may be lost. An element is lost if it is
# off by LOST of its own size and by more than SIZE_SLACK times `error_ratio` times what the baseline's own errors are
# for elements of that size: elements far smaller than the rest of their row could otherwise all be zero. Chosen: in the
# 20,600 runs of results/cpu-honest.json they refuse no honest alternative. docs/verdicts.md states them.
SMALL_SHARE, SMALL_COUNT, LOST, SIZE_SLACK = 0.05, 16, 0.1, 4.0
# eps of a type from which it counts as narrow: between those of float32 (1.2e-7) and float16 (9.8e-4).
NARROW_EPS = 1e-4
# Times the baseline's errors of elements of that size, instead of SIZE_SLACK times `error_ratio`, in narrow outputs: 96
# would be a sixth of the element. From the attack of sampled reductions (commit c7cb5faf).
NARROW_SLACK = 48.0
# Average error in units of the baseline's own, in 16-bit outputs of at least SPREAD_COUNT elements. On an H100, that of
# bfloat16 rounded to 8 bits (e4m3) is 10 to 14 in all calls; that of shipped pairs is 8 or more in a twentieth of the
# calls of an attention (commits d6a95d71, 5be86483). SPREAD_COUNT is chosen: an average of fewer elements scatters.
NARROW_SPREAD, SPREAD_COUNT = 8.0, 256
# The same in float32 outputs of a baseline in TF32: that of bfloat16 operands is 8 to 10.
# docs/decisions/0091-allow-tf32-in-convolutions.md.
TF32_SPREAD = 6.0
# Share of half an eps that is left of it where the truth is unknown, since it may be smaller than the baseline's output
# by the baseline's error; and share of LOST there, for the same reason. Chosen: of 5,699 outputs that near() accepted
# on adversarial inputs, compare() refused none (docs/decisions/0083-accept-outputs-near-the-baseline.md).
UNKNOWN_EPS, UNKNOWN_LOST = 0.98, 0.8
# Of rows and columns in 16-bit outputs. FIT_LEAST elements each, from which on rounding averages out; FIT_ROUNDINGS of
# half an eps of their root mean square, and FIT_OWN times the part of the baseline's error that gain and offset explain
# are allowed, plus FIT_NOISE standard errors of the part that independent errors explain by chance; FIT_SHARE of the
# rows may exceed all of these (sums that cancel). docs/verdicts.md, "Narrow types"; found with the attack of sampled
# reductions (commit c7cb5faf).
FIT_LEAST, FIT_ROUNDINGS, FIT_OWN, FIT_NOISE, FIT_SHARE = 16, 5.0, 8.0, 6.0, 0.05
# Octaves below the largest element by which the baseline's errors are sorted; the last contains all smaller ones. This
# is chosen: float32 has 277 with its subnormal numbers.
OCTAVES = 256
# Elements from which on distances are kept in float32 to save memory
# (docs/decisions/0084-share-one-arena-for-large-calls.md) and elements at their start that are compared first (chosen).
LARGE, START = 1 << 29, 1 << 16


@dataclass(frozen=True)
class ErrorLimits:
    """Limits for the output of one type: the only place where limits are computed.

    error, average, row: of the largest error, of the root-mean-square error and of the worst row relative to its own
    size, in units of the baseline's own. half_eps: of the type; no unit is smaller than that share of the truth. least:
    the smallest unit. element: share of its own size from which an element counts as lost, if its error is also more
    than `element_own` times the baseline's of elements of that size. fit: error of a whole row as a share of its size.
    """

    error: float
    average: float
    row: float
    half_eps: float
    least: float
    element: float
    element_own: float
    fit: float

    @classmethod
    def of(cls, tolerance: Tolerance, dtype: Any, slack: float = 1.0, elements: Any = None) -> ErrorLimits:
        """The limits with the reference. slack: factor of the tolerance's own, on adversarial inputs.

        elements: the type whose eps limits the errors of small elements, if not the output's own. For 8-bit outputs,
        compare() takes that of float32, in which it calculates, so small elements may be off by less than LOST.
        """
        import torch

        kind, small = torch.finfo(dtype), torch.finfo(elements or dtype)
        error, half_eps = tolerance.error_ratio * slack, 0.5 * kind.eps
        own = SIZE_SLACK * error
        return cls(
            error=error,
            average=error,
            row=error * ROW_SLACK,
            half_eps=half_eps,
            least=4 * kind.smallest_normal * kind.eps,
            element=min(0.5 * small.eps * ROW_SLACK * error, LOST),
            element_own=min(own, NARROW_SLACK) if small.eps > NARROW_EPS and slack == 1.0 else own,
            fit=FIT_ROUNDINGS * half_eps,
        )

    def without_reference(self, is_narrow: bool) -> ErrorLimits:
        """The limits for the distance to the baseline's output: one unit less, which its own error may take.

        is_narrow: the average error is limited in several calls, too (exceeds_average()). There is no smallest unit:
        numbers near the smallest of their type are left to the reference.
        """
        half_eps, row = UNKNOWN_EPS * self.half_eps, self.row - 1
        average = min(self.average, NARROW_SPREAD) if is_narrow else self.average
        return replace(
            self,
            error=self.error - 1,
            average=average - 1,
            row=row,
            half_eps=half_eps,
            least=math.ulp(0.0),
            element=min(row * half_eps, UNKNOWN_LOST * LOST),
            fit=0.5 * FIT_ROUNDINGS * half_eps,
        )


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
    if _must_be_equal(out, tolerance):
        wrong = (out != base).flatten()
        return (math.inf, _unequal(out, base, wrong)) if bool(wrong.any()) else (0.0, None)
    kind, type_of_output = torch.finfo(out.dtype), out.dtype
    out, base, ref = map(components, (out, base, ref))
    limits = ErrorLimits.of(tolerance, type_of_output, slack, elements=out.dtype)
    error, own, truth = _distance(out, ref), _own(base, ref, allowed, limits.error), ref
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
    largest, average, row = map(float, _in_units(error, own, truth, limits))
    ratio = max(largest, average, row / ROW_SLACK) / slack
    if ratio > tolerance.error_ratio:
        index = int(error.argmax())
        value, true = float(out.flatten()[index]), float(ref.flatten()[index])
        return ratio, (
            f"error is {ratio * slack:.3g} times the baseline's own (allowed {limits.error:g}); "
            f"worst element {index} of {out.numel()}: {', truth '.join(_distinct(value, true))}"
        )
    lost = count_lost(error, own, truth, limits.element, limits.element_own)
    share = lost / _most_lost(out)
    failure = f"{lost} of {out.numel()} elements, all of them small, are wrong relative to their own size"
    if share <= 1.0 and slack == 1.0:
        rows, failure = _off_as_a_whole(out, base, ref, tolerance, limits)
        share = max(share, rows)
    return max(ratio, share * tolerance.error_ratio), failure if share > 1.0 else None


def _distinct(one: float, other: float) -> tuple[str, str]:
    """Two numbers with as many digits as tell them apart, from six on."""
    pairs = ((f"{one:.{digits}g}", f"{other:.{digits}g}") for digits in range(6, 18))
    return next((pair for pair in pairs if pair[0] != pair[1]), (repr(one), repr(other)))


def _unequal(out: Any, base: Any, wrong: Any) -> str:
    """The number of unequal elements, with the first of them. wrong: of the flat outputs."""
    index = int(wrong.int().argmax())
    value, right = (each.flatten()[index].item() for each in (out, base))
    return (
        f"{int(wrong.sum())} of {out.numel()} elements differ and must be equal; element {index}: {value}, not {right}"
    )


def near(out: Any, base: Any, tolerance: Tolerance) -> bool:
    """Decide without the reference, at a fraction of the cost, whether compare() must accept `out` on plain inputs.
    False means only that the reference is needed.
    """
    import torch

    if _must_be_equal(out, tolerance) or out.numel() == 0:
        return bool(torch.equal(components(out), components(base)))
    if not can_be_near(tolerance):
        return False
    limits = ErrorLimits.of(tolerance, out.dtype)
    out, base = components(out), components(base)
    limits = limits.without_reference(_is_narrow(out))
    if out.numel() >= LARGE and _is_same(out, base):
        return bool(_row_peaks(base).max() < math.inf)
    apart = out.sub(base) if out.itemsize > 2 else out.float().sub_(base)
    signed = apart.clone() if _is_fitted(out) else apart
    largest, average, row = _in_units(apart, None, base, limits)
    is_near = largest <= limits.error  # a single transfer: each one from a device takes as long as a short kernel
    is_near &= average <= limits.average
    is_near &= row <= limits.row
    is_near &= _count_far(apart, base, limits.element) <= _most_lost(out)
    if _is_fitted(out):
        for _, (aparts, bases) in _rows_and_columns((signed, base.to(signed.dtype))):
            _, off = _fitted(aparts, None, bases, limits)
            is_near &= off.sum() <= FIT_SHARE * len(bases)
    return bool(is_near)


def compare_steps(out: Any, base: Any, ref: Any, tolerance: Tolerance, slack: float = 1.0) -> tuple[float, str | None]:
    """Compare an output whose first dimension counts dependent steps: each step separately.

    The unit of a step is the baseline's largest error up to it, plus half an eps of each step so far.
    """
    import torch

    limits = ErrorLimits.of(tolerance, out.dtype, slack)
    error, own = (_peak_of_steps(tensor.double() - ref) for tensor in (out, base))
    if not bool(torch.isfinite(error + own).all()):
        mismatch = _mask_mismatch(out, base, ref)
        return (math.inf, mismatch) if mismatch else (0.0, None)
    ratios = _steps_in_units(error, own, ref, limits) / slack
    step = int(ratios.argmax())
    ratio = float(ratios[step])
    if ratio <= tolerance.error_ratio:
        return ratio, None
    allowed = f"(allowed {limits.error:g})"
    return ratio, f"error of step {step} is {ratio * slack:.3g} times the baseline's own up to it {allowed}"


def near_steps(out: Any, base: Any, tolerance: Tolerance) -> bool:
    """near() for outputs of steps."""
    if not can_be_near(tolerance):
        return False
    limits = ErrorLimits.of(tolerance, out.dtype).without_reference(_is_narrow(out))
    apart = _peak_of_steps(out.double() - base.double())
    return bool((_steps_in_units(apart, None, base.double(), limits) <= limits.error).all())


def exceeds_average(in_tf32: bool, out: Any, base: Any, ref: Any) -> float | None:
    """The factor by which the average error at least exceeds the baseline's own, where rounding in the baseline's types
    hardly explains that; else None. One such call proves nothing. in_tf32: the baseline rounds to about 10 bits.
    """
    import torch

    is_tf32 = in_tf32 and out.dtype == torch.float32 and out.numel() >= SPREAD_COUNT
    most = TF32_SPREAD if is_tf32 else NARROW_SPREAD
    if not ((is_tf32 or _is_narrow(out)) and all(bool(torch.isfinite(values).all()) for values in (out, base, ref))):
        return None
    limits = ErrorLimits.of(Tolerance(), out.dtype)
    return most if float(_average(_distance(out, ref), _distance(base, ref), ref, limits)) > most else None


def adversarial_slack(dtype: Any) -> float:
    """Factor by which the limit is raised on adversarial inputs, for outputs of that type."""
    import torch

    is_narrow = dtype.is_floating_point and torch.finfo(dtype).eps > NARROW_EPS
    return NARROW_ADVERSARIAL_SLACK if is_narrow else ADVERSARIAL_SLACK


def can_be_near(tolerance: Tolerance) -> bool:
    """Return True if the contract allows near() to accept floating-point outputs without a reference."""
    return tolerance.exact or (tolerance.approximate is None and not tolerance.stochastic and not tolerance.format)


def is_compared_by_error(spec: Benchmark) -> bool:
    """Return True if the baseline's own error is the unit of a candidate's."""
    tolerance = spec.tolerance
    return kind_of(spec) is Kind.ELEMENTS and not (tolerance.exact or tolerance.approximate or tolerance.per_step)


def relative_error(out: Any, ref: Any) -> float:
    """Root-mean-square distance from the reference as a share of its own root-mean-square; 0 if that is no number."""
    if not (out.is_floating_point() or out.is_complex()) or not out.numel():
        return 0.0
    out, ref = components(out), components(ref)
    share = float(_rms(_distance(out, ref))) / max(float(_rms(ref)), 1e-300)
    return share if math.isfinite(share) else 0.0


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


def distance_type(ref: Any) -> Any:
    """Type of the distances from this tensor: its own; of gigabytes, float32, which is precise enough for an error."""
    import torch

    return torch.float32 if ref.is_floating_point() and ref.numel() >= LARGE else ref.dtype


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


# Errors in units of the baseline's own


def _in_units(error: Any, own: Any, truth: Any, limits: ErrorLimits) -> tuple[Any, Any, Any]:
    """The largest error, the root-mean-square error and the worst row, as numbers in tensors.

    own: the baseline's errors; None where they are unknown, and half an eps of each size is the unit. truth: then the
    baseline's output.
    """
    errors, units = _precise(_row_peaks(error)), _precise(_row_peaks(truth)) * limits.half_eps
    units = units if own is None else units.maximum(_row_peaks(own))
    largest = errors.max().double() / units.max().double().clamp_min(limits.least)
    return largest, _average(error, own, truth, limits), _worst_row(errors, units, limits.least, own is not None)


def _average(error: Any, own: Any, truth: Any, limits: ErrorLimits) -> Any:
    """The root-mean-square error."""
    unit = (_rms(truth).double() * (0.5 * limits.half_eps)).clamp_min(limits.least)
    return _rms(error).double() / (unit if own is None else unit.maximum(_rms(own)))


def _worst_row(errors: Any, units: Any, least: float, is_known: bool) -> Any:
    """The error of each row in units of that row, from the peaks of rows, so that none hides behind a larger one.

    is_known: the units include the baseline's errors. Then a row whose unit is 0 should be all zeros, and the unit of
    the whole tensor decides. Otherwise the truth of such a row is unknown, so no error is near enough.
    """
    if not errors.ndim:
        return errors.new_zeros(())
    rows = errors / units.clamp_min(least)
    return rows.where(units > 0 if is_known else errors != 0, 0.0).max()


def _steps_in_units(errors: Any, owns: Any, truth: Any, limits: ErrorLimits) -> Any:
    """The error of each step, from the peaks of the errors and of the baseline's (None where they are unknown)."""
    import torch

    count = torch.arange(1, len(truth) + 1, device=truth.device)
    units = limits.half_eps * _peak_of_steps(truth) * count
    units = units if owns is None else units.maximum(owns.cummax(0).values)
    return errors / units.clamp_min(1e-300)


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


def _row_peaks(values: Any) -> Any:
    """The largest magnitude of each row of the last dimension; NaN if the row contains one."""
    return values.amax(-1).maximum(values.amin(-1).neg())


def _precise(peaks: Any) -> Any:
    """In float64; in float32 if the rows are so many that memory may be short."""
    return peaks.double() if peaks.numel() < LARGE else peaks.float()


def _peak_of_steps(values: Any) -> Any:
    return values.abs().reshape(len(values), -1).amax(1)


def _rms(values: Any) -> Any:
    """A number as a tensor, in the precision of the values, float32 at least."""
    import torch

    kind = torch.float32 if values.itemsize < 4 else values.dtype
    return torch.linalg.vector_norm(values, dtype=kind) / math.sqrt(values.numel())


# Elements that are wrong relative to their own size, although their errors are small beside those of larger ones


def count_lost(error: Any, own: Any, truth: Any, least: float, most: float) -> int:
    """Number of elements with an error of more than `least` times their size that is also more than `most` times what
    the baseline's errors are for elements of about that size: their root mean square in the same octave.

    error, own: magnitudes of the candidate's and of the baseline's errors. All three have the same shape.
    """
    import torch

    parts = list(pieces(*(values.flatten() for values in (error, own, truth))))
    suspects = [(part > size.abs() * least) & (size != 0) for part, _, size in parts]
    if not any(bool(part.any()) for part in suspects):
        return 0  # the usual case, at a tenth of the cost of sorting by octaves
    highest = torch.stack([_exponent(size).max() for *_, size in parts]).max()
    squares = truth.new_zeros(OCTAVES, dtype=torch.float64)
    count = torch.zeros_like(squares, dtype=torch.int64)
    for _, own_part, size in parts:
        octave = _octave(size, highest)
        squares += torch.bincount(octave, weights=own_part.square(), minlength=OCTAVES)
        count += torch.bincount(octave, minlength=OCTAVES)
    usual = (squares / count.clamp_(min=1)).sqrt_() * most
    lost = torch.zeros_like(count[0])
    for suspect, (error_part, _, size) in zip(suspects, parts, strict=True):
        lost += (error_part[suspect] > usual[_octave(size[suspect], highest)]).sum()
    return int(lost)


def _count_far(apart: Any, base: Any, least: float) -> Any:
    """The number of elements, as a tensor, that may be lost as far as their distance to the baseline's shows.

    Changes `apart` to save memory. Zeros of the baseline count, too: their truth is unknown.
    """
    excesses = (part.abs_().sub_(base_part.abs(), alpha=least) for part, base_part in pieces(apart, base))
    return sum(excess.gt_(0).sum() for excess in excesses)  # numbers: booleans take several times as long to add


def _most_lost(out: Any) -> float:
    return float(max(SMALL_SHARE * out.numel(), SMALL_COUNT))


def _octave(values: Any, highest: Any) -> Any:
    """Of each element's size, counted from that of the largest one."""
    return (highest - _exponent(values)).clamp_(max=OCTAVES - 1)


def _exponent(values: Any) -> Any:
    """The exponent of each number, as float64 stores it."""
    import torch

    return values.double().view(torch.int64).bitwise_right_shift(52).bitwise_and_(0x7FF)


# Rows and columns that are off as a whole


def _is_fitted(out: Any) -> bool:
    """Return True for types whose tolerance makes this test necessary."""
    return bool(out.is_floating_point() and out.itemsize == 2 and out.ndim and out.shape[-1])


def _off_as_a_whole(out: Any, base: Any, ref: Any, tolerance: Tolerance, limits: ErrorLimits) -> tuple[float, str]:
    """Return (rows or columns that are off as a whole, as a share of the allowed number; their description). Only
    finite elements count, and no differences below the contract's floor.
    """
    import torch

    most, words = 0.0, ""
    if not _is_fitted(out):
        return most, words
    usable = torch.isfinite(out) & torch.isfinite(base) & torch.isfinite(ref)
    error, own = ((tensor.double() - ref).where(usable, 0.0) for tensor in (out, base))
    error = error.where(error.abs() > tolerance.absolute, 0.0) if tolerance.absolute else error
    for name, (errors, owns, truths) in _rows_and_columns((error, own, ref.where(usable, 0.0))):
        explained, off = _fitted(errors, owns, truths, limits)
        count = int(off.sum())
        if (share := count / (FIT_SHARE * len(explained))) > most:
            worst = float((explained / _rms_of_rows(truths).clamp_min(1e-300)).where(off, 0.0).max())
            most, words = (
                share,
                f"{count} of {len(explained)} {name} are off as a whole, by up to {worst:.2g} of their size, "
                "which rounding does not explain",
            )
    return most, words


def _rows_and_columns(tensors: tuple[Any, ...]) -> list[tuple[str, list[Any]]]:
    """The tensors as rows of the last dimension, and as columns across them, where there are enough elements."""
    width = tensors[0].shape[-1]
    matrices = [matrix.reshape(-1, width) for matrix in tensors]
    views = [("rows", matrices)] if width >= FIT_LEAST else []
    if len(matrices[0]) >= FIT_LEAST:
        views.append(("columns", [matrix.mT for matrix in matrices]))
    return views


def _fitted(errors: Any, owns: Any, truths: Any, limits: ErrorLimits) -> tuple[Any, Any]:
    """Return (the part of each row's errors that a gain and an offset explain, whether that is too much). owns: the
    baseline's errors; None where they are unknown, and so allow nothing.
    """
    explained, allowed = _explained(errors, truths), limits.fit * _rms_of_rows(truths)
    if owns is not None:
        allowed = allowed.maximum(FIT_OWN * _explained_usually(owns, truths)) + _explained_by_chance(errors, explained)
    return explained, explained > allowed


def _explained(errors: Any, truths: Any) -> Any:
    """Root-mean-square of the part of each row's errors that a gain and an offset explain."""
    offset = errors.mean(1)
    centred = truths - truths.mean(1, keepdim=True)
    spread = _rms_of_rows(centred).clamp_min(1e-300 if errors.itemsize == 8 else 1e-30)
    gain = (errors * centred).mean(1) / spread
    return (offset.square() + gain.square()).sqrt_()


def _explained_usually(owns: Any, truths: Any) -> Any:
    """The part of the baseline's error that gain and offset explain in each row, or in most rows of that size."""
    explained, sizes = _explained(owns, truths), _rms_of_rows(truths)
    usual = _rms_of_rows((explained / sizes.clamp_min(1e-300)).unsqueeze(0))
    return explained.maximum(usual * sizes)


def _explained_by_chance(errors: Any, explained: Any) -> Any:
    """The part that independent errors, as large as the unexplained ones, would explain by chance."""
    rest = (errors.square().mean(1) - explained.square()).clamp_min_(0.0).sqrt_()
    return FIT_NOISE * rest / errors.shape[1] ** 0.5


def _rms_of_rows(rows: Any) -> Any:
    return rows.square().mean(1).sqrt_()


# Other rules, and what decides which one applies


def _must_be_equal(out: Any, tolerance: Tolerance) -> bool:
    return bool(tolerance.exact or not (out.is_floating_point() or out.is_complex()))


def _is_narrow(out: Any) -> bool:
    return bool(out.is_floating_point() and out.itemsize == 2 and out.numel() >= SPREAD_COUNT)


def is_narrow_and_small(out: Any) -> bool:
    """Return True for a 16-bit output with too few elements for a call's average error to say anything."""
    return bool(out.is_floating_point() and out.itemsize == 2 and out.numel() < SPREAD_COUNT)


def eps_of(out: Any) -> float:
    """The relative spacing of numbers of that type."""
    import torch

    return float(torch.finfo(out.dtype).eps)


def _is_same(out: Any, base: Any) -> bool:
    """Return True if all bits are equal. If anything differs, the start usually does, and is compared first."""
    if not (out.is_contiguous() and base.is_contiguous()):
        return False
    out, base = out.view(-1), base.view(-1)
    return same_bits(out[:START], base[:START]) and same_bits(out, base)


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
