"""Kernel families by name. Names are conventions of libraries, so every rule here is a heuristic."""

from __future__ import annotations

import re
from functools import lru_cache

# Libraries that do nothing but move data between devices.
_TRANSPORT = re.compile(r"(?<![a-z])(?:nccl|rccl|nvshmem|rocshmem|deep_ep|pplx|mscclpp|symm(?:etric)?_mem)", re.I)
_COMMUNICATION = re.compile(
    r"nccl|rccl|shmemx?_|userbuffers|symm_?mem|cross_device_(?:reduce|store|load)|multimem|lamport|_rsag|put_signal"
    r"|(?<![a-z])(?:all_?(?:reduce|gather|to_?all|2all)|reduce_?scatter|a2a|(?:one|two)_?shot)"
    r"|(?-i:All(?:Reduce|Gather|ToAll|2All)|ReduceScatter|A2A|SendRecv|(?:One|Two)Shot)"
    r"|^(?:ar|ag|rs)_(?:\w+_)?gfx\d"  # of AITER, named after its collectives
    r"|^(?:dispatch|combine)_?kernel",  # of pplx, in a namespace without a name
    re.I,
)
# By the name of the function itself: what a template is filled with names element types and layouts as well.
_FAMILIES = (
    ("rope", r"rotary|(?-i:Rope|RoPE)|(?<![a-z])m?rope"),
    # Before attention: vLLM's copies into the cache of keys and values are called after the kernels that read it.
    ("copy", r"(?:reshape|concat)_and_cache|copy_blocks|swap_blocks|append_?paged|store_?kv|set_kv|kv_?indices"
             r"|page_indices|copy_to_kv"),
    ("normalization", r"(?:layer|rms|batch|group|instance|qk|l2)_?norm|(?<![a-z])(?:ln|bn)_(?:fwd?|bwd?|parallel)"
                      r"|rms_\w*norm|RowwiseMoments|GammaBeta|ComputeInternalGradients|Compute(?:Backward)?FusedParams"),
    ("sampling", r"(?<!up)(?<!down)(?<!grid_)(?<!re)sampl(?:ing|e)(?!r)|(?-i:TopP|TopK(?:TopP|Renorm)|MinP)"
                 r"|(?<![a-z])(?:top|min)_p_|gumbel|penalt|multinomial|speculative"),
    ("attention", r"flash(?!_?infer)|fmha|attention|sdpa|cunn_sdp|(?<![a-z])(?:mha|mla|gqa|attn|pa)_|_mha(?![a-z])"
                  r"|(?-i:Attn|MLA(?!K)|Mla)|attn_(?:fwd|bwd|kernel)|sage_?(?:attn|fwd|bwd)"
                  r"|(?:decode|prefill|pod)with\w*kvcache|merge_?(?:attn_)?states?|_mqa_"),
    ("recurrence", r"selective_(?:scan|state)|(?<![a-z])(?:ssd|gdn|gdr|kda|wkv\d?|ssu)_|gated_delta|recurrent|mamba"
                   r"|chunk_(?:scan|state|delta|gated|local)|lstm|(?<![a-z])gru"),
    # MIOpen's implicit products are convolutions, and so are all cuDNN kernels that name neither.
    ("convolution", r"igemm_(?:fwd|bwd|wrw)|miopen\w*conv|_[sh]\d*cudnn_|naive_conv|grouped_conv|im2d?2?col"
                    r"|[fdw]prop|[dw]grad"),
    # bmm and Cijk: TensorRT-LLM's generated products; Tensile, in rocBLAS and hipBLASLt.
    ("gemm", r"gemm|nvjet|cutlass(?:_|3x|\d)\w*(?:tensorop|simt|wmma)|matmul|_mm_|wgmma|xmma|sm\d\d_.*(?:mma|cublas)"
             r"|gemv|dot_kernel|split_?k|(?<![a-z])bmm_|Cijk_|marlin|fused_moe(?!_aux)|fmoe|moe_kernel|qmm|mul_mat"
             r"|bgmv"),
    ("convolution", r"conv(?:olution|1d|2d|3d)?(?:_|fprop|dgrad|wgrad)|cudnn.*(?:fprop|dgrad|wgrad)|winograd"
                    r"|fft[12]d_(?:r2c|c2r)_\d|mult_and_sum_complex|flip_filter"),
    ("routing", r"routing|gating|moe_?(?:align|fused_gate|sum|permute|unpermute|sort|topk|finalize|aux|hash)|expert"
                r"|finalize(?:moe|kernel|deepseek)|expandInputRows|computeStrides|grouped_topk|fused_topk|score_for_moe"),
    ("quantization", r"quant|amax|cast_(?:transpose|fp8)|partial_cast|compute_scale|scale_\d+x\d+|_block_scaled"
                     r"|swizzle\w*_scal|per_token_group|hadamard|cvt_fp\d|nvfp4|mxfp[48]"),
    ("softmax", r"softmax|cross_entropy"),
    ("activation", r"act_and_mul|activation|gated_act|silu_(?:and|mul)|_(?:silu|swiglu|gelu)_"
                   r"|(?<![a-z])(?:silu|gelu|swiglu|geglu|relu)(?:_|$)"),
    ("optimizer", r"adam|(?<![a-z])lamb(?!da)|multi_tensor_apply|fused_?sgd|_foreach"),
    ("sort", r"radix|sort|top_?k(?![a-z])|scan|cumsum|unique|histogram"),
    ("reduction", r"reduce|_sum|_mean|_norm\b|_loss|pool"),
    ("copy", r"copy|cpy|transpose|permute|catarray|fill|gather|scatter|index|embedding|nchw\w*nhwc|nhwc\w*nchw|memset"),
    ("elementwise", r"elementwise|pointwise|unary|binary|dropout|gelu|relu|silu|distribution|upsample|subtensorop"
                    r"|operator_(?:bcast|contiguous|element)"),
)  # fmt: skip
_RULES = tuple((label, re.compile(pattern, re.I)) for label, pattern in _FAMILIES)
# Functions that run what their template is filled with: PyTorch's loops, CUTLASS, Composable Kernel, rocPRIM.
_WRAPPER = re.compile(
    r"(?:elementwise|multi_tensor_apply|trampoline|device|index|reduce|transform)_kernel|^kernel(?:2|_entry|_sm\w+)?$"
    r"|kentry|run_global|_kernel_with_index|grid_stride|^[\d_]*$",
    re.I,
)
# Words in a template that say nothing about what the kernel computes.
_ASIDE = re.compile(
    r"flash_?infer::|at::native::|vllm::|cutlass::(?:\w*float\w*|half_t|u?int\w*|layout|epilogue|Array)\w*"
)
_INDUCTOR = re.compile(r"^triton_(poi|red|per|tem|for|mm|bmm|flex)_")
_SIZE = re.compile(r"\d+")
_MANGLED = re.compile(r"^_ZN?K?")
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
    """gemm, attention, …, communication or other: by the function's own name, not by its library."""
    if (inductor := _INDUCTOR.match(name)) is not None:
        return _generated(name, inductor[1])
    spaces, own = _qualified(name)
    if _TRANSPORT.search(spaces) or _COMMUNICATION.search(own):
        return "communication"
    wrapped = bool(_WRAPPER.search(own))
    found = None if wrapped else _first(own)
    if wrapped:
        rest = _ASIDE.sub("", name)
        found = _first(rest) or ("gemm" if "cutlass" in rest else None)
    return found or ("gemm" if own.startswith("cutlass") else "other")


def _first(text: str) -> str | None:
    return next((label for label, pattern in _RULES if pattern.search(text)), None)


def _generated(name: str, kind: str) -> str:
    """Inductor lists the operators whose loops were fused, which includes the products that only feed the kernel."""
    if kind == "poi":
        return "elementwise"
    if kind in ("red", "per"):
        if "_norm_legit" in name or "layer_norm" in name or "rms_norm" in name or "rsqrt" in name:
            return "normalization"
        return "softmax" if "softmax" in name else "reduction"
    if kind == "for":
        return "optimizer" if re.search("adam|sgd|lamb", name) else "elementwise"
    return "attention" if "attention" in name or kind == "flex" else "convolution" if "conv" in name else "gemm"


def _qualified(name: str) -> tuple[str, str]:
    """Namespaces and own name of a function, without its template, its parameters and its return type."""
    if (mangled := _MANGLED.match(name)) is not None:
        parts, at = list[str](), mangled.end()
        while (size := _SIZE.match(name, at)) is not None:
            at = size.end() + int(size[0])
            parts.append(name[size.end() : at])
        parts = [part for part in parts if not part.startswith("_GLOBAL_")]
        return ("::".join(parts[:-1]), parts[-1]) if parts else ("", name)
    text = name.replace("(anonymous namespace)", "").replace("<unnamed>", "")
    text = text.partition(" [clone")[0].partition("_object_at_")[0]
    depth, kept = 0, list[str]()
    for letter in text:
        if letter == "(" and depth == 0 and "".join(kept).strip():
            break
        depth += (letter in "<(") - (letter in ">)" and depth > 0)
        if depth == 0 and letter not in ">)":
            kept.append(letter)
    words = "".join(kept).split()
    spaces, _, own = (words[-1] if words else name).rpartition("::")
    return spaces, own or name


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
