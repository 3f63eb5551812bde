"""Kernel families by name. Names are conventions of libraries, so every rule here is a heuristic."""

from __future__ import annotations

import re
from functools import lru_cache

_COMMUNICATION = re.compile(r"nccl|rccl|nvshmem|oneshot.*reduce|multimem_(?:all|one|two)|cross_device_reduce", re.I)
_FAMILIES = (
    # Before attention: vLLM's copies into the cache of keys and values are called after the kernels that read it.
    ("copy", r"(?:reshape|concat)_and_cache|copy_blocks|swap_blocks"),
    ("attention", r"flash|fmha|attention|sdpa|cunn_sdp|mha_(?:fwd|bwd)|(?<![a-z])attn_(?:fwd|bwd)"
                  r"|sage_?(?:attn|fwd|bwd)"),
    # MIOpen's implicit products are convolutions, and so are all cuDNN kernels that name neither.
    ("convolution", r"igemm_(?:fwd|bwd|wrw)|miopen\w*conv|_[sh]\d*cudnn_|naive_conv|grouped_conv|im2d?col"),
    # bmm and Cijk: TensorRT-LLM's generated products; Tensile, in rocBLAS and hipBLASLt.
    ("gemm", r"gemm|nvjet|cutlass|matmul|_mm_|wgmma|xmma|sm\d\d_.*(?:mma|cublas)|gemv|dot_kernel|splitk"
             r"|(?<![a-z])bmm_|Cijk_"),
    ("convolution", r"conv(?:olution|1d|2d|3d)?(?:_|fprop|dgrad|wgrad)|cudnn.*(?:fprop|dgrad|wgrad)|winograd"
                    r"|fft[12]d_(?:r2c|c2r)_\d|mult_and_sum_complex|flip_filter"),
    ("normalization", r"(?:layer|rms|batch|group)_?norm"),
    ("softmax", r"softmax"),
    ("optimizer", r"adam|(?<![a-z])lamb(?!da)|multi_tensor_apply|fused_?sgd|_foreach"),
    ("reduction", r"reduce|_sum|_mean|_norm\b"),
    ("copy", r"copy|transpose|permute|catarray|fill|gather|scatter|index"),
    ("elementwise", r"elementwise|triton_poi|pointwise|unary|binary|dropout|gelu|relu|silu"),
)  # fmt: skip
_COLLECTIVES = (
    ("all_reduce", r"all_?reduce"),
    ("reduce_scatter", r"reduce_?scatter"),
    ("all_gather", r"all_?gather"),
    ("all_to_all", r"all_?to_?all"),
    ("broadcast", r"broadcast"),
    ("reduce", r"reduce"),
    ("send_recv", r"send|recv"),
)
# Kernels that multiply in float32 on the plain cores: the tensor cores are idle while they run.
# cuDNN's convolution by FFT has no other form.
_PLAIN_GEMM = re.compile(
    r"sgemm|dgemm|_scudnn_|_simt_|ffma|gemmsn|gemv2|fft[12]d_(?:r2c|c2r)_\d|mult_and_sum_complex", re.I
)
# PyTorch copies and clears with kernels too: contiguous(), cat() and casts; zero_() and fill_().
_MOVES = re.compile(r"copy_kernel_cuda|CatArrayBatchedCopy")
_CLEARS = re.compile(r"FillFunctor")
_TENSOR = re.compile(
    r"tf32|tensorop|16816|hmma|imma|wgmma|bf16|h1688|s1688|s884|h884|s16816|nvjet|e4m3|e5m2|e2m1", re.I
)


@lru_cache(maxsize=4096)
def family(name: str) -> str:
    """gemm, attention, …, communication or other."""
    if _COMMUNICATION.search(name):
        return "communication"
    return next((label for label, pattern in _FAMILIES if re.search(pattern, name, re.I)), "other")


@lru_cache(maxsize=1024)
def collective(name: str) -> str:
    """The collective that an NCCL kernel or call belongs to, or other."""
    return next((label for label, pattern in _COLLECTIVES if re.search(pattern, name, re.I)), "other")


def is_communication(name: str) -> bool:
    return family(name) == "communication"


def plain_gemm(name: str) -> bool:
    """Return True for a matrix product that, by its name, does not use the tensor cores."""
    return bool(_PLAIN_GEMM.search(name)) and not _TENSOR.search(name)


def moves_memory(name: str) -> bool:
    """Return True for a kernel that only copies elements."""
    return bool(_MOVES.search(name))


def clears_memory(name: str) -> bool:
    """Return True for a kernel that writes one value everywhere."""
    return bool(_CLEARS.search(name))
