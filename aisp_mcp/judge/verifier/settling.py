"""Before a pair with values of its own is measured: sizes of frames, a generator without luck, a checker that refuses.

Nothing here runs beside a candidate: the verifier draws, calls the baseline, and tries the checker with nonsense.
"""

from __future__ import annotations

import inspect
import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aisp_mcp.bench import Benchmark
from aisp_mcp.errors import BenchmarkError
from aisp_mcp.judge.protocol import values as written
from aisp_mcp.judge.protocol.messages import CALLING
from aisp_mcp.judge.verifier.checks import values
from aisp_mcp.judge.verifier.inputs import made

DRAWS, TRIED, SECONDS = 8, 3, 2.0  # draws at most, those that a checker is tried on, and time for them
NAN = "NaN"
NOTHING = object()  # nonsense that cannot be made of an answer


def settle(spec: Benchmark, draw: Callable[[int], dict[str, Any]]) -> None:
    """Fix the sizes of frames, and refuse a generator or a checker that cannot decide. Raises BenchmarkError
    MAKER_VARIES, MADE_OTHERS, CHECKER_ACCEPTS, CHECKER_REFUSES, CHECKER_RAISED.
    """
    made.forget()
    _refuse_varying(draw(0), draw(0))
    cases, sizes, plain, end = [], [0], True, time.monotonic() + SECONDS
    for number in range(DRAWS):
        inputs = draw(number)
        if spec.answers is not None:
            args, kwargs = spec.run.steps.arguments(**inputs)  # type: ignore[attr-defined]
            if "made" in inputs:  # by a generator of the user's
                _refuse_others(spec, args)
            answer = spec.run.steps.function(*args, **kwargs)  # type: ignore[attr-defined]
            plain = plain and written.is_plain(answer)
            data = _encoded(answer)
            sizes.append(len(data))
            cases.append((values.given(spec, inputs), written.decode(data)))
        if number >= TRIED - 1 and time.monotonic() > end:
            break
    made.settle()
    if spec.answers is not None:
        sys.modules[CALLING].VALUES.update(capacity=made.room_for(max(sizes)), plain=plain)
        if spec.answers.check is not None:
            accepts_nan = try_out(values.checked(spec.answers), spec.answers.check[1], cases)
            spec.answers = replace(spec.answers, refuses_nan=accepts_nan)  # type: ignore[misc]


def _refuse_others(spec: Benchmark, args: tuple[Any, ...]) -> None:
    """Raise BenchmarkError MADE_OTHERS for a generator's arguments that the function does not take."""
    function = spec.run.steps.function  # type: ignore[attr-defined]
    try:
        takes = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        takes.bind(*args)
    except TypeError as error:
        kinds = ", ".join(type(each).__name__ for each in args)
        message = f"The generator makes {len(args)} argument(s) ({kinds}), and the baseline takes {takes}: {error}."
        raise BenchmarkError("MADE_OTHERS", message, "Return a tuple of all arguments.") from error


def _encoded(answer: Any) -> bytes:
    try:
        return written.encode(answer)
    except written.UnknownValueError as error:
        raise BenchmarkError(
            "BAD_OUTPUT", f"The baseline's answer cannot be compared: {error}.", written.RETURN
        ) from error


def _refuse_varying(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Raise BenchmarkError MAKER_VARIES for a generator that makes two things of one seed."""
    calling = sys.modules[CALLING]
    for name in made.SEEN:
        if (one[name].shape == other[name].shape) and bool((one[name] == other[name]).all()):
            continue
        pair = [calling.as_value(inputs[name]) for inputs in (one, other)]
        try:
            is_same = written.encode(pair[0]) == written.encode(pair[1])
        except written.UnknownValueError:
            is_same = False
        if not is_same:
            message = "The generator returns different arguments for one seed."
            raise BenchmarkError("MAKER_VARIES", message, "Draw everything from random.Random(seed), or numpy's.")


def try_out(check: values.Check, name: str, cases: list[tuple[Any, Any]]) -> bool:
    """Refuse a checker that refuses the baseline's answers, or that accepts nonsense on all inputs that it was tried
    on. cases: arguments and answers. Returns True for one that accepts NaN: `if error > limit: return False` does.
    """
    accepts_nan = False
    for arguments, answer in cases:
        if refused := check(arguments, answer, answer):
            message = f"The checker refuses the baseline's own answer: {refused}."
            raise BenchmarkError("CHECKER_REFUSES", message, "It must accept every right answer.")
    others = [*cases[1:], cases[0]]
    for words, spoil in NONSENSE.items():
        accepted, tried = list[Any](), 0
        for (arguments, answer), (_, other) in list(zip(cases, others, strict=True))[:TRIED]:
            wrong = spoil(answer, other)
            if wrong is NOTHING or values.difference(answer, wrong, 0.0, 0.0) is None:
                continue
            tried += 1
            if _accepts(check, arguments, answer, wrong):
                accepted.append((wrong, answer))
        if tried and len(accepted) == tried and words == NAN:
            accepts_nan = True
        elif tried and len(accepted) == tried:
            wrong, answer = (values.shown(value, 60) for value in accepted[0])
            message = f"{name} accepts {words}, so it cannot decide: {wrong} in place of {answer}."
            raise BenchmarkError("CHECKER_ACCEPTS", message, "Let it return False for everything that is not right.")
    return accepts_nan


def _accepts(check: values.Check, arguments: Any, answer: Any, wrong: Any) -> bool:
    try:
        return check(arguments, answer, wrong) is None
    except BenchmarkError:  # it raised, which refuses
        return False


def _mapped(value: Any, number: Callable[[float], Any], array: Callable[[Any], Any]) -> Any:
    """The value with other numbers in it."""
    import numpy

    if isinstance(value, bool | str | bytes) or value is None:
        return value
    if isinstance(value, int | float | complex):
        return number(value)  # type: ignore[arg-type]
    if type(value).__module__ == "numpy":
        return array(value)
    if isinstance(value, list | tuple | set):
        if isinstance(value, list) and {*map(type, value)} == {float}:  # a matrix has millions
            return array(numpy.array(value)).tolist()
        return type(value)(_mapped(item, number, array) for item in value)
    if isinstance(value, dict):
        return {key: _mapped(item, number, array) for key, item in value.items()}
    return value


def _empty(answer: Any, _: Any) -> Any:
    if isinstance(answer, str | bytes | list | tuple | dict | set):
        return type(answer)()
    if type(answer).__module__ == "numpy":
        return answer[:0] if answer.ndim else NOTHING
    return NOTHING


def _zeros(answer: Any, _: Any) -> Any:
    import numpy

    def zeros(array: Any) -> Any:
        return numpy.zeros_like(array) if array.dtype.kind in "iufc" else array

    return _mapped(answer, lambda number: type(number)(0), zeros)


def _nan(answer: Any, _: Any) -> Any:
    return _mapped(answer, lambda _: math.nan, lambda array: array * math.nan if array.dtype.kind in "iufc" else array)


def _half(answer: Any, _: Any) -> Any:
    import numpy

    def rounded(number: float) -> Any:
        with numpy.errstate(all="ignore"):
            return float(numpy.float16(number)) if isinstance(number, float) else number

    def narrowed(array: Any) -> Any:
        with numpy.errstate(all="ignore"):
            return array.astype("float16").astype(array.dtype) if array.dtype.kind == "f" else array

    return _mapped(answer, rounded, narrowed)


NONSENSE: dict[str, Callable[[Any, Any], Any]] = {
    "None": lambda *_: None,
    "an empty answer": _empty,
    "zeros": _zeros,
    NAN: _nan,
    "the answer to other inputs": lambda _, other: other,
    "the answer rounded to half precision": _half,
}
