"""Strides of outputs: copied into the contract's, or read as they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from aisp_mcp.judge.candidate.outputs import (  # noqa: E402
    ContractError,
    OutputStrides,
    check_contract,
)
from aisp_mcp.judge.protocol.layout import (  # noqa: E402
    Layout,
    encode,
    in_order,
    order_of,
)
from aisp_mcp.judge.protocol.module_loader import contract  # noqa: E402
from aisp_mcp.judge.protocol.shared_memory import ControlBlock, host_arena  # noqa: E402

Tensor = Any


def strides_of(output: Tensor, free: bool) -> tuple[OutputStrides, ControlBlock]:
    layout = Layout((), (), (contract("out", output),), capacity=2)
    control = ControlBlock(os.memfd_create("control", os.MFD_ALLOW_SEALING), layout)
    return OutputStrides(control, host_arena(os.memfd_create("arena", os.MFD_ALLOW_SEALING), layout), free), control


@pytest.mark.parametrize(
    ("other", "copied"),
    [
        (lambda x: x.t().contiguous().t(), True),
        (lambda x: x[:1].expand(4, 6), True),
        (lambda x: torch.cat([x, x], 1)[:, :6], True),
        (lambda x: x.clone(), False),
    ],
    ids=["transposed", "expanded", "sliced", "same"],
)
def test_other_strides_are_copied_in_the_call(other: Callable[[Tensor], Tensor], copied: bool) -> None:
    x = torch.arange(24.0).view(4, 6)
    spec = contract("out", x)
    strides, _ = strides_of(x, free=False)
    assert strides.fit(other(x)) is not copied
    result = strides.copied(lambda: other(x))()
    whole = result[0] if copied else result
    assert torch.equal(whole, other(x))
    assert whole.stride() == spec.stride
    check_contract("out", other(x), spec, x.device, strict=False)
    if copied:
        with pytest.raises(ContractError, match="strides"):
            check_contract("out", other(x), spec, x.device, strict=True)


@pytest.mark.parametrize("free", [False, True])
def test_strides_of_single_elements_mean_nothing(free: bool) -> None:
    strides, control = strides_of(torch.zeros(4, 1), free)
    assert strides.fit(torch.zeros(1, 4).t())
    assert not any(control.orders)


@pytest.mark.parametrize(
    ("other", "fits"),
    [
        (lambda x: x.to(memory_format=torch.channels_last), True),
        (lambda x: x.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0), True),
        (lambda x: x[:1].expand(2, 3, 4, 5), False),
        (lambda x: torch.cat([x, x], 3)[..., :5], False),
        (lambda x: torch.complex(x, x).permute(3, 2, 1, 0).conj().permute(3, 2, 1, 0), False),
    ],
    ids=["channels_last", "permuted", "expanded", "sliced", "conjugated"],
)
def test_where_strides_are_free_a_block_of_memory_is_read_as_it_is(
    other: Callable[[Tensor], Tensor], fits: bool
) -> None:
    x = torch.arange(120.0).view(2, 3, 4, 5)
    spec = torch.complex(x, x) if torch.is_complex(other(x)) else x
    strides, control = strides_of(spec, free=True)
    assert strides.fit(other(x)) is fits
    if fits:
        assert strides.specs[0].stride == other(x).stride()
        assert in_order(contract("out", spec), control.orders[0]).stride == other(x).stride()
        strides.targets[1][0].copy_(other(x))
        assert strides.targets[1][0].stride() == other(x).stride()
    else:
        assert not any(control.orders)


def test_the_first_outputs_decide() -> None:
    x = torch.arange(24.0).view(4, 6)
    strides, control = strides_of(x, free=True)
    assert strides.fit(x.clone())
    assert not strides.fit(x.t().contiguous().t())
    assert not any(control.orders)
    assert torch.equal(strides.whole(x.t().contiguous().t())[0], x)


def test_a_number_that_is_no_order_changes_nothing() -> None:
    spec = contract("out", torch.zeros(3, 4, 5))
    assert in_order(spec, encode((2, 0, 1))).stride == (4, 1, 12)
    for number in (0, 1, 5, encode((0, 0, 1)), encode((0, 1)), encode((0, 1, 2, 3)), encode((0, 1, 3)), -1, -(1 << 63)):
        assert in_order(spec, number) == spec
    gaps = contract("out", torch.zeros(3, 4, 10)[..., :4].as_strided((3, 4), (10, 1)))
    assert order_of((3, 4), (10, 1)) is None
    assert in_order(gaps, encode((1, 0))).nbytes == gaps.nbytes
