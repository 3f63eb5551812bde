"""Healthy programs: none of them may be told anything severe."""

from __future__ import annotations

import torch
from planted_kernels import KERNELS
from planted_register import D, Decoded, Step, bf16, healthy, loading, products
from torch import nn
from torch.nn import functional


@healthy()
def training_step() -> Step:
    """A transformer layer with fused attention and optimizer, 16,384 tokens a step."""
    layer = nn.TransformerEncoderLayer(4096, 32, 16384, dropout=0.0, batch_first=True, device=D, dtype=torch.bfloat16)
    opt = torch.optim.AdamW(layer.parameters(), fused=True)
    x = bf16(4, 4096, 4096)

    def step() -> None:
        layer(x).sum().backward()
        opt.step()
        opt.zero_grad()

    return step


@healthy()
def inference_with_a_graph() -> Step:
    """A deep network's forward pass, replayed as a CUDA graph."""
    layers = [nn.Linear(4096, 4096, device=D, dtype=torch.bfloat16) for _ in range(16)]
    net, x = nn.Sequential(*layers).requires_grad_(False), bf16(1024, 4096)
    net(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        net(x)
    return graph.replay


@healthy()
def large_products() -> Step:
    """Large bf16 products, launched far ahead."""
    return products(4, 8192)


@healthy(tool="nsys")
def large_products_under_nsys() -> Step:
    """The same, recorded by Nsight Systems."""
    return products(4, 8192)


@healthy()
def copies_under_compute() -> Step:
    """The next batch is copied from pinned memory on a stream of its own while this one computes."""
    run, copy_stream = products(30), torch.cuda.Stream()
    batch = torch.randn(32 << 20, pin_memory=True)
    places = [torch.empty(32 << 20, device=D) for _ in range(2)]
    number = iter(range(1000))

    def step() -> None:
        copy_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(copy_stream):
            places[next(number) % 2].copy_(batch, non_blocking=True)
        run()
        torch.cuda.current_stream().wait_stream(copy_stream)

    return step


@healthy(steps=8)
def prefetching_loader() -> Step:
    """Four workers decode ahead of the device."""
    loader = torch.utils.data.DataLoader(
        Decoded(1_000), batch_size=8, num_workers=4, prefetch_factor=4, pin_memory=True
    )
    return loading(loader, products(8, 8192))


@healthy()
def fused_attention() -> Step:
    """Attention through scaled_dot_product_attention, between its projections."""
    x, into, out = bf16(4, 4096, 2048), bf16(2048, 6144), bf16(2048, 2048)

    def step() -> None:
        for _ in range(4):
            q, k, v = ((x @ into).view(4, 4096, 3, 16, 128).transpose(1, 3)).unbind(2)
            h = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            h.transpose(1, 2).reshape(4, 4096, 2048) @ out

    return step


@healthy()
def convolutions_in_bf16() -> Step:
    """Convolutions on the tensor cores, channels last."""
    conv = nn.Conv2d(512, 512, 3, padding=1, bias=False, device=D, dtype=torch.bfloat16)
    conv = conv.to(memory_format=torch.channels_last).requires_grad_(False)
    x = bf16(64, 512, 56, 56).to(memory_format=torch.channels_last)

    def step() -> None:
        h = x
        for _ in range(3):
            h = conv(h)

    return step


@healthy(warmup=3)
def compiled_network() -> Step:
    """A network compiled once, without a break."""
    weights = [bf16(4096, 4096) for _ in range(4)]

    def forward(x: torch.Tensor) -> torch.Tensor:
        for weight in weights:
            x = functional.gelu(x @ weight)
        return x

    compiled, x = torch.compile(forward), bf16(8192, 4096)
    return lambda: compiled(x)


@healthy()
def loss_read_once() -> Step:
    """Accumulates over many products, and reads one number at the end of the step."""
    run = products(16, 8192)
    return lambda: run()[0, 0].item()


@healthy()
def streaming_kernel() -> Step:
    """A kernel that reads and writes 1 GiB, coalesced, with full occupancy."""
    kernel = KERNELS["stream"]()
    x = torch.randn(128 << 20, device=D)
    y = torch.empty_like(x)

    def step() -> None:
        for _ in range(4):
            kernel((131072, 1, 1), (256, 1, 1), [x, y, x.numel()])

    return step


@healthy(tool="memory")
def steady_allocator() -> Step:
    """Each step takes from the cache what the one before gave back."""
    a = bf16(4096, 4096)
    return lambda: (a @ a).relu().sum()


@healthy(tool="ncu", steps=1, warmup=0, kernel="gemm|nvjet|cutlass")
def product_counted() -> Step:
    """A large bf16 product, by its counters."""
    return products(1, 8192)
