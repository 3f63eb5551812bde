"""Verdicts on programs whose outputs have other strides than the baseline's."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness_support import PRODUCT, judge

pytestmark = [pytest.mark.torch]


def test_a_verdict_says_that_outputs_are_copied_into_other_strides(tmp_path: Path) -> None:
    comparison = judge(tmp_path, "def run(a, b):\n    return (a @ b).mT.contiguous().mT\n")
    assert "strides_copied" in {flag.code for flag in comparison.flags}
    assert comparison.sentence.endswith("copy of its output into the baseline's strides")


@pytest.mark.parametrize(
    ("body", "flag", "right"),
    [
        ("return (a @ b).mT.contiguous().mT", "strides_differ", True),
        ("return (a @ b).mT.contiguous()", "incorrect_output", False),
        ("return torch.mm(a, b, out=kept.mT).mT.mT", "strides_differ", True),
        ("n[0] += 1; return (a @ b).mT.contiguous().mT if n[0] % 2 else a @ b", "strides_copied", True),
        ("n[0] += 1; return a @ b if n[0] % 2 else (a @ b).mT.contiguous().mT", "strides_copied", True),
    ],
    ids=["transposed", "wrong", "in one buffer", "every other", "every other, not the first"],
)
def test_where_strides_are_free_no_copy_is_timed(tmp_path: Path, body: str, flag: str, right: bool) -> None:
    candidate = f"import torch\nkept, n = torch.empty(128, 128), [0]\ndef run(a, b):\n    {body}\n"
    specification = PRODUCT.replace("n = 128\n", 'n = 128\n        layout = "any"\n')
    assert "layout" in specification
    comparison = judge(tmp_path, candidate, specification)
    assert flag in {found.code for found in comparison.flags}
    assert (comparison.verdict.value != "incorrect") == right
    assert ("and no copy is timed" in comparison.sentence) == (flag == "strides_differ")
    assert comparison.sentence.endswith("it overwrites the result of the call before") == ("out=kept" in body)
