"""Programs whose problem is on the device: copies, kernels, memory, and the counters of one launch."""

from __future__ import annotations

import contextlib

import torch
from planted_kernels import KERNELS
from planted_register import D, Step, bf16, planted, products
from torch import nn

# Copies.


@planted("pageable_copies")
def batch_from_pageable_memory() -> Step:
    """A batch of 128 MiB is copied to the device from ordinary host memory."""
    run, batch = products(20), torch.randn(32 << 20)

    def step() -> None:
        batch.to(D)
        run()

    return step


@planted("pageable_copies", tool="nsys")
def pageable_batch_under_nsys() -> Step:
    """The same, recorded by Nsight Systems."""
    return batch_from_pageable_memory()


@planted("pageable_copies")
def activations_to_pageable_memory() -> Step:
    """Activations are copied into ordinary host memory in every step."""
    run = products(20)
    activations, host = torch.randn(32 << 20, device=D), torch.zeros(32 << 20)

    def step() -> None:
        run()
        host.copy_(activations)

    return step


@planted("exposed_copies")
def batch_in_line() -> Step:
    """A pinned batch is copied on the stream that computes, before it computes."""
    run, batch = products(10), torch.randn(64 << 20, pin_memory=True)

    def step() -> None:
        batch.to(D, non_blocking=True)
        run()

    return step


@planted("exposed_copies")
def weights_from_the_host() -> Step:
    """Eight layers' weights live in pinned host memory, and every step copies all of them again."""
    weights = [torch.randn(4096, 4096, dtype=torch.bfloat16).pin_memory() for _ in range(8)]
    x = bf16(2048, 4096)

    def step() -> None:
        h = x
        for weight in weights:
            h = h @ weight.to(D, non_blocking=True)

    return step


@planted("device_copies")
def cache_cloned_each_step() -> Step:
    """A cache of 1 GiB is cloned four times a step."""
    run, cache = products(5), bf16(512 << 20)

    def step() -> None:
        run()
        for _ in range(4):
            cache.clone()

    return step


@planted("device_copies")
def transposed_and_made_contiguous() -> Step:
    """Every layer turns its heads around with contiguous(), there and back."""
    weight, x = bf16(4096, 4096), bf16(4, 2048, 32, 128)

    def step() -> None:
        h = x
        for _ in range(6):
            h = h.transpose(1, 2).contiguous().transpose(1, 2).contiguous()
            h = h.transpose(1, 3).contiguous().transpose(1, 3).contiguous()
        h[:1].reshape(-1, 4096) @ weight

    return step


@planted("memsets")
def gradients_set_to_zero() -> Step:
    """Gradients of 4 GiB are cleared with zeros in every step."""
    run, gradients = products(5), [torch.empty(512 << 20, device=D, dtype=torch.bfloat16) for _ in range(4)]

    def step() -> None:
        run()
        for gradient in gradients:
            gradient.zero_()

    return step


# What the kernels are.


@planted("tensor_cores_unused")
def products_in_float32() -> Step:
    """Matrix products in float32, TF32 not allowed."""
    a = torch.randn(4096, 4096, device=D)

    def step() -> None:
        for _ in range(4):
            a @ a

    return step


@planted("tensor_cores_unused", warmup=3)
def convolution_in_float32() -> Step:
    """Convolutions in float32 with TF32 switched off."""
    torch.backends.cudnn.allow_tf32 = False
    conv = nn.Conv2d(256, 256, 3, padding=1, device=D)
    x = torch.randn(32, 256, 56, 56, device=D)

    def step() -> None:
        with torch.no_grad():
            conv(conv(x))

    return step


@planted("unfused_optimizer")
def adam_per_parameter() -> Step:
    """Adam loops over sixteen parameters, fourteen kernels each."""
    run = products(2)
    parameters = [nn.Parameter(bf16(256, 256)) for _ in range(16)]
    opt = torch.optim.Adam(parameters, foreach=False, fused=False)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)

    def step() -> None:
        run()
        opt.step()

    return step


@planted("unfused_attention")
def attention_by_hand() -> Step:
    """Attention over 4,096 tokens as two products with a scale and a softmax between them."""
    q, k, v = (bf16(2, 16, 4096, 128) for _ in range(3))

    def step() -> None:
        scores = (q @ k.transpose(-2, -1)) * 128**-0.5
        torch.softmax(scores, -1) @ v

    return step


@planted("low_occupancy")
def blocks_of_one_warp() -> Step:
    """A kernel that streams memory with one warp and 24 KiB of shared memory a block."""
    kernel = KERNELS["starved_stream"]()
    x = torch.randn(128 << 20, device=D)
    y = torch.empty_like(x)
    return lambda: kernel((65536, 1, 1), (32, 1, 1), [x, y, x.numel()])


@planted("small_grids")
def eight_blocks() -> Step:
    """A kernel of eight blocks walks over 128 MiB."""
    kernel = KERNELS["long_walk"]()
    x = torch.randn(32 << 20, device=D)
    y = torch.empty_like(x)
    return lambda: kernel((8, 1, 1), (1024, 1, 1), [x, y, x.numel()])


@planted("small_kernels")
def graph_of_tiny_kernels() -> Step:
    """A CUDA graph of four hundred additions on small tensors."""
    x = torch.ones(64, 64, device=D)
    x.add_(1.0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(400):
            x.add_(1.0)
    return graph.replay


@planted("unfused_pointwise")
def activation_by_hand() -> Step:
    """GELU by its formula, one operator after the other, on 128 MiB."""
    weight, x = bf16(8192, 4096), bf16(8192, 8192)

    def step() -> None:
        inner = (x + x * x * x * 0.044715) * 0.7978845608
        (x * 0.5 * (inner.tanh() + 1.0)) @ weight

    return step


@planted("unfused_pointwise")
def adam_by_formula() -> Step:
    """Adam written as formulas over one flat parameter of 128 Mi elements."""
    p, g, m, v = (torch.rand(128 << 20, device=D) for _ in range(4))

    def step() -> None:
        m.mul_(0.9).add_(g * 0.1)
        v.mul_(0.99).add_(g * g * 0.01)
        p.sub_(m / (v.sqrt() + 1e-8) * 1e-3)

    return step


# Memory.


@planted("memory_growth", tool="memory")
def losses_kept_in_a_list() -> Step:
    """Every step appends its activations to a list."""
    losses: list[torch.Tensor] = []
    a = bf16(4096, 4096)
    return lambda: losses.append((a @ a).relu())


@planted("allocator_churn", tool="memory")
def empty_cache_after_each_layer() -> Step:
    """The cache is emptied after every layer."""
    a = bf16(4096, 4096)

    def step() -> None:
        for _ in range(4):
            h = a @ a
            del h
            torch.cuda.empty_cache()

    return step


@planted("unused_reservation", tool="memory", steps=4, warmup=0)
def ever_larger_batches() -> Step:
    """Each step's blocks are a little larger than those that the steps before have given back."""
    sizes = iter(range(64, 640, 16))

    def step() -> None:
        size = next(sizes)
        held = [torch.empty(size << 20, device=D, dtype=torch.uint8) for _ in range(16)]
        del held

    return step


@planted("out_of_memory", tool="memory", warmup=1)
def batch_that_does_not_fit() -> Step:
    """A batch that never fits is tried first in every step."""
    a = bf16(4096, 4096)

    def step() -> None:
        with contextlib.suppress(torch.cuda.OutOfMemoryError):
            torch.empty(4 << 40, device=D, dtype=torch.uint8)
        a @ a

    return step


# Counters of one launch.


def _launch(name: str, grid: int, block: int, elements: int, *more: int) -> Step:
    kernel = KERNELS[name]()
    x = torch.zeros(elements, device=D)
    y = torch.empty_like(x)
    return lambda: kernel((grid, 1, 1), (block, 1, 1), [x, y, elements, *more])


@planted("uncoalesced_access", tool="ncu", steps=1, warmup=0, kernel="strided_read")
def neighbours_read_far_apart() -> Step:
    """Neighbouring threads read 132 bytes apart."""
    return _launch("strided_read", 65536, 256, 1 << 24)


@planted("bank_conflicts", tool="ncu", steps=1, warmup=0, kernel="column_walk")
def columns_of_a_tile() -> Step:
    """All threads of a warp read one bank of shared memory."""
    return _launch("column_walk", 2112, 1024, 2112 * 1024)


@planted("divergence", tool="ncu", steps=1, warmup=0, kernel="one_lane_works")
def one_lane_of_eight_works() -> Step:
    """One thread of eight goes through a long loop, the others wait for it."""
    return _launch("one_lane_works", 8448, 256, 8448 * 256)


@planted("barrier_stalls", tool="ncu", steps=1, warmup=0, kernel="one_warp_ahead")
def one_warp_and_a_barrier() -> Step:
    """One warp of 32 computes while the others wait at a barrier, over and over."""
    return _launch("one_warp_ahead", 1056, 1024, 1056 * 1024)


@planted("occupancy_registers", tool="ncu", steps=1, warmup=0, kernel="many_live_values")
def two_hundred_live_values() -> Step:
    """Two hundred values a thread stay in registers while it follows a chain of loads."""
    return _launch("many_live_values", 1056, 256, 1 << 26)


@planted("occupancy_shared", tool="ncu", steps=1, warmup=0, kernel="large_tile")
def large_tiles() -> Step:
    """Each small block reserves 48 KiB of shared memory while it follows a chain of loads."""
    return _launch("large_tile", 4224, 64, 1 << 26)


@planted("occupancy_block", tool="ncu", steps=1, warmup=0, kernel="follow_chain")
def blocks_of_32_threads() -> Step:
    """Blocks of a single warp: the number of blocks on a multiprocessor is the limit."""
    return _launch("follow_chain", 33792, 32, 1 << 26)


@planted("tail_effect", tool="ncu", steps=1, warmup=0, kernel="long_multiply")
def one_wave_and_a_bit() -> Step:
    """Ten percent more blocks than fit at once, all equally long."""
    return _launch("long_multiply", 1162, 256, 1162 * 256, 20_000)


@planted("small_grid", tool="ncu", steps=1, warmup=0, kernel="long_multiply")
def sixteen_long_blocks() -> Step:
    """Sixteen blocks of long arithmetic on a device that holds a thousand."""
    return _launch("long_multiply", 16, 256, 16 * 256, 20_000)


@planted("register_spilling", tool="ncu", steps=1, warmup=0, kernel="spilled_sums")
def more_values_than_registers() -> Step:
    """Ninety-six running sums a thread, in a kernel that may use 32 registers."""
    return _launch("spilled_sums", 528, 1024, 1 << 24)


@planted("memory_latency", tool="ncu", steps=1, warmup=0, kernel="walk_a_list")
def every_warp_walks_a_list() -> Step:
    """Full occupancy, but every load of a warp needs the one before it."""
    return _launch("walk_a_list", 1056, 256, 1 << 28)


@planted("tensor_pipe_idle", tool="ncu", steps=1, warmup=0, kernel="gemm|nvjet|cutlass|ffma")
def float32_product_counted() -> Step:
    """A float32 product, by its counters."""
    a = torch.randn(4096, 4096, device=D)
    return lambda: a @ a
