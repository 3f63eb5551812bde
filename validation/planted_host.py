"""Programs in which the host keeps the device waiting."""

from __future__ import annotations

import ctypes
import json

import torch
from planted_kernels import source
from planted_register import D, Decoded, Step, bf16, loading, planted, products
from torch import nn


@planted("launch_bound")
def tiny_operators() -> Step:
    """A hundred and twenty additions on small tensors, each launched on its own."""
    x = torch.ones(64, 64, device=D)

    def step() -> None:
        y = x
        for _ in range(120):
            y = y + 1.0

    return step


@planted("launch_bound")
def narrow_network() -> Step:
    """A training step of a deep, narrow network on sixteen samples."""
    layers = [layer for _ in range(24) for layer in (nn.Linear(512, 512), nn.ReLU())]
    net = nn.Sequential(*layers).to(D, torch.bfloat16)
    opt = torch.optim.SGD(net.parameters(), lr=1e-3, fused=True)
    x = bf16(16, 512)

    def step() -> None:
        net(x).sum().backward()
        opt.step()
        opt.zero_grad()

    return step


@planted("host_code")
def python_between_steps() -> Step:
    """Ten milliseconds of Python before every step's products."""
    run = products(20)

    def step() -> None:
        sum(i * i for i in range(250_000))
        run()

    return step


@planted("host_code")
def metrics_as_json() -> Step:
    """Every step writes a large table of metrics as JSON before it launches."""
    run = products(20)
    table = {f"metric/{i}": [i * 0.1, i * 0.2, i * 0.3] for i in range(12_000)}

    def step() -> None:
        json.dumps(table)
        run()

    return step


@planted("sync_in_loop")
def loss_every_chunk() -> Step:
    """The loss of each of twenty short chunks is read with .item()."""
    a, b = bf16(2048, 2048), bf16(2048, 2048)

    def step() -> None:
        for _ in range(20):
            (a @ b @ b)[0, 0].item()

    return step


@planted("sync_in_loop")
def timing_code_left_in() -> Step:
    """torch.cuda.synchronize() after each of twenty-four layers."""
    a, b = bf16(2048, 2048), bf16(2048, 2048)

    def step() -> None:
        h = a
        for _ in range(24):
            h = h @ b
            torch.cuda.synchronize()

    return step


@planted("sync_in_loop")
def stop_token_each_token() -> Step:
    """A decoding loop that asks after every token whether all sequences have ended."""
    weights = [bf16(4096, 4096) for _ in range(4)]
    h, ended = bf16(64, 4096), torch.zeros(64, device=D, dtype=torch.bool)

    def step() -> None:
        x = h
        for _ in range(16):
            for weight in weights:
                x = x @ weight
            if bool(ended.all()):
                break

    return step


@planted("input_wait")
def loader_without_workers() -> Step:
    """The data loader decodes sixteen samples in the training process."""
    loader = torch.utils.data.DataLoader(Decoded(12_000), batch_size=16, num_workers=0, pin_memory=True)
    return loading(loader, products(20))


@planted("input_wait", steps=8)
def one_slow_worker() -> Step:
    """One worker decodes more slowly than the device computes."""
    loader = torch.utils.data.DataLoader(Decoded(12_000), batch_size=16, num_workers=1, prefetch_factor=2)
    return loading(loader, products(10))


@planted("recompiles", warmup=1)
def a_new_shape_each_step() -> Step:
    """A function compiled for fixed shapes meets a new one in every step."""
    run = products(10)
    compiled = torch.compile(lambda x: (x * 2.0).relu().sum(), dynamic=False, backend="aot_eager")
    sizes = iter(range(1024, 65536, 1024))

    def step() -> None:
        compiled(torch.ones(next(sizes), device=D))
        run()

    return step


@planted("recompiles", warmup=1)
def a_number_that_changes() -> Step:
    """A Python number that differs in every step is baked into the compiled code."""
    run = products(10)
    numbers = iter(range(3, 1000))

    class Scaled(nn.Module):
        rate = 1

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * self.rate).relu().sum()

    module = Scaled()
    compiled = torch.compile(module, backend="aot_eager", dynamic=False)
    x = torch.ones(4096, device=D)

    def step() -> None:
        module.rate = next(numbers)
        compiled(x)
        run()

    return step


@planted("compile_in_window", warmup=1, steps=5)
def first_use_in_the_loop() -> Step:
    """Every step is the first to call one more compiled function: nothing was warmed up."""
    run = products(10)
    x = torch.ones(4096, device=D)
    functions = [
        lambda x: (x * 2 + 1).sum(), lambda x: (x * 3 + 2).sum(), lambda x: (x * 4 + 3).sum(),
        lambda x: (x * 5 + 4).sum(), lambda x: (x * 6 + 5).sum(), lambda x: (x * 7 + 6).sum(),
    ]  # fmt: skip
    compiled = iter([torch.compile(function, backend="aot_eager") for function in functions])

    def step() -> None:
        next(compiled)(x)
        run()

    return step


@planted("graph_breaks")
def breaks_between_layers() -> Step:
    """A compiled network whose forward leaves the graph after every layer."""
    a, b, c, d = (bf16(4096, 4096) for _ in range(4))

    def forward(x: torch.Tensor) -> torch.Tensor:
        x = x @ a
        torch._dynamo.graph_break()
        x = x @ b
        torch._dynamo.graph_break()
        x = x @ c
        torch._dynamo.graph_break()
        return x @ d

    compiled, x = torch.compile(forward, backend="aot_eager"), bf16(4096, 4096)
    return lambda: compiled(x)


@planted("graph_breaks")
def break_in_a_loop() -> Step:
    """A compiled network with a break in its loop over layers: nothing of it is compiled."""
    weights = [bf16(4096, 4096) for _ in range(5)]

    def forward(x: torch.Tensor) -> torch.Tensor:
        for weight in weights:
            x = x @ weight
            torch._dynamo.graph_break()
        return x

    compiled, x = torch.compile(forward, backend="aot_eager"), bf16(4096, 4096)
    return lambda: compiled(x)


@planted("driver_allocation")
def empty_cache_each_step() -> Step:
    """Every step gives its memory back to the driver and takes it again."""
    run = products(5)

    def step() -> None:
        held = [torch.empty(256 << 20, device=D, dtype=torch.uint8) for _ in range(8)]
        run()
        del held
        torch.cuda.empty_cache()

    return step


@planted("driver_allocation")
def new_pinned_buffer_each_step() -> Step:
    """Every step pins one more buffer of 64 MiB."""
    run = products(10)
    buffers: list[torch.Tensor] = []

    def step() -> None:
        buffers.append(torch.empty(64 << 20, dtype=torch.uint8, pin_memory=True))
        run()

    return step


@planted("code_loading", tool="nsys")
def modules_loaded_each_step() -> Step:
    """Every step loads forty modules of kernels that it could have kept."""
    from torch.cuda._utils import _nvrtc_compile

    run, (binary, _) = products(5), _nvrtc_compile(source("spilled_sums"), "spilled_sums")
    driver, module = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()

    def step() -> None:
        for _ in range(40):
            if driver.cuModuleLoadData(ctypes.byref(module), binary):
                raise RuntimeError("cuModuleLoadData failed")
        run()

    return step


@planted("dependency_wait")
def waits_for_a_host_callback() -> Step:
    """Products are queued behind callbacks that take two milliseconds on the host."""
    run = products(4)
    runtime = ctypes.CDLL(f"libcudart.so.{(torch.version.cuda or '').partition('.')[0]}")
    usleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)

    def step() -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        for _ in range(3):
            run()
            if runtime.cudaLaunchHostFunc(stream, usleep, ctypes.c_void_p(2000)):
                raise RuntimeError("cudaLaunchHostFunc failed")

    return step


@planted("step_jitter", steps=8)
def validation_in_some_steps() -> Step:
    """Two of eight steps run five times the work besides."""
    run, number = products(10), iter(range(1000))

    def step() -> None:
        run()
        if next(number) % 4 == 3:
            for _ in range(5):
                run()

    return step


@planted("step_jitter", steps=8)
def checkpoint_in_some_steps() -> Step:
    """Two of eight steps spend thirty milliseconds in Python besides."""
    run, number = products(10), iter(range(1000))

    def step() -> None:
        run()
        if next(number) % 4 == 3:
            sum(i * i for i in range(700_000))

    return step
