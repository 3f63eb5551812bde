"""Choice of the device that a comparison runs on."""

from __future__ import annotations

import pytest

from aisp_mcp.system.gpu import nvml


@pytest.mark.parametrize(
    ("seen", "visible", "device"),
    [
        (["GPU-0"], None, "cuda"),
        (["GPU-0"], "0", "cuda"),
        (["GPU-0"], "GPU-0", "cuda"),
        (["GPU-0"], "", "cpu"),
        (["GPU-0"], "-1", "cpu"),
        ([], None, "cpu"),
        ([], "0", "cpu"),
    ],
)
def test_the_device_is_the_gpu_unless_none_is_there_or_all_are_hidden(
    seen: list[str], visible: str | None, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "gpu_uuids", lambda: seen)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert nvml.benchmark_device() == device
