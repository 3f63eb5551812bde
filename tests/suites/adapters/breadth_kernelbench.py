"""Single operators in the format of KernelBench's first level, by name: (forward, inputs, layer, arguments of forward).

A layer is what `self.layer` is constructed as. Sizes are small and often odd. Written for these tests.
"""

from __future__ import annotations

import foreign_kernelbench as kernelbench

F = "torch.nn.functional"
ROWS = "torch.randn(48, 333)"
SIGNAL, IMAGE, VOLUME = "torch.rand(4, 6, 129)", "torch.rand(2, 6, 31, 29)", "torch.rand(2, 4, 9, 11, 10)"
TABLE: dict[str, tuple[str, ...]] = {
    "relu": ("torch.relu(x)", ROWS),
    "leaky_relu": (f"{F}.leaky_relu(x, negative_slope=0.02)", ROWS),
    "gelu": (f"{F}.gelu(x)", ROWS),
    "gelu_tanh": ("0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x ** 3)))", ROWS),
    "silu": ("x * torch.sigmoid(x)", ROWS),
    "softplus": (f"{F}.softplus(x)", ROWS),
    "softsign": ("x / (1 + x.abs())", ROWS),
    "hardtanh": (f"{F}.hardtanh(x, -0.75, 0.75)", ROWS),
    "elu": (f"{F}.elu(x, alpha=1.3)", ROWS),
    "tanh": ("torch.tanh(x)", ROWS),
    "prelu": ("self.layer(x)", ROWS, "nn.PReLU()"),
    "softmax": ("torch.softmax(x, dim=1)", ROWS),
    "softmax_columns": ("torch.softmax(x, dim=0)", ROWS),
    "log_softmax": ("torch.log_softmax(x, dim=1)", ROWS),
    "batch_norm": ("self.layer(x)", IMAGE, "nn.BatchNorm2d(6).eval()"),
    "instance_norm": ("self.layer(x)", IMAGE, "nn.InstanceNorm2d(6)"),
    "group_norm": ("self.layer(x)", IMAGE, "nn.GroupNorm(3, 6)"),
    "layer_norm": ("self.layer(x)", ROWS, "nn.LayerNorm(333)"),
    "rms_norm": ("x * torch.rsqrt(x.pow(2).mean(dim=1, keepdim=True) + 1e-5)", ROWS),
    "frobenius_norm": ("x / torch.norm(x, p='fro')", ROWS),
    "l1_norm": ("x / x.abs().mean(dim=1, keepdim=True)", ROWS),
    "sum": ("x.sum(dim=1, keepdim=True)", "torch.rand(7, 65, 33)"),
    "mean": ("x.mean(dim=2)", "torch.rand(7, 65, 33)"),
    "max": ("torch.max(x, dim=1)[0]", "torch.rand(7, 65, 33)"),
    "min": ("x.amin(dim=0)", ROWS),
    "argmax": ("torch.argmax(x, dim=1)", ROWS),
    "argmin": ("torch.argmin(x, dim=0)", ROWS),
    "variance": ("x.var(dim=1)", ROWS),
    "matmul_odd": ("a @ b", "torch.rand(97, 213), torch.rand(213, 61)", "", "a, b"),
    "matmul_thin": ("a @ b", "torch.rand(N, 5), torch.rand(5, N)", "", "a, b"),
    "matmul_transposed": ("torch.matmul(a.T, b.T)", "torch.rand(N, 64), torch.rand(33, N)", "", "a, b"),
    "matmul_batched": ("torch.bmm(a, b)", "torch.rand(9, 17, 65), torch.rand(9, 65, 23)", "", "a, b"),
    "matmul_lower": ("torch.tril(a @ b)", "torch.tril(torch.rand(N, N)), torch.tril(torch.rand(N, N))", "", "a, b"),
    "matrix_vector": ("a @ v", "torch.rand(N, 515), torch.rand(515, 1)", "", "a, v"),
    "diagonal": ("torch.diag(d) @ a", "torch.rand(N), torch.rand(N, 77)", "", "d, a"),
    "tensor_product": ("torch.einsum('bijl,lk->bijk', a, b)", "torch.rand(2, 5, 7, 16), torch.rand(16, 9)", "", "a, b"),
    "times_scalar": ("a * s", "torch.rand(N, 77), 3.14", "", "a, s"),
    "linear": ("self.layer(x)", ROWS, "nn.Linear(333, 17)"),
    "conv1d_dilated": ("self.layer(x)", SIGNAL, "nn.Conv1d(6, 5, 3, stride=2, dilation=3)"),
    "conv2d_asymmetric": ("self.layer(x)", IMAGE, "nn.Conv2d(6, 7, (3, 5), padding=(1, 2), bias=False)"),
    "conv2d_depthwise": ("self.layer(x)", IMAGE, "nn.Conv2d(6, 6, 3, groups=6)"),
    "conv2d_pointwise": ("self.layer(x)", IMAGE, "nn.Conv2d(6, 9, 1)"),
    "conv3d": ("self.layer(x)", VOLUME, "nn.Conv3d(4, 5, 3)"),
    "conv1d_transposed": ("self.layer(x)", SIGNAL, "nn.ConvTranspose1d(6, 4, 3, stride=2)"),
    "conv2d_transposed": ("self.layer(x)", IMAGE, "nn.ConvTranspose2d(6, 4, 3, stride=2, output_padding=1)"),
    "conv3d_transposed": ("self.layer(x)", VOLUME, "nn.ConvTranspose3d(4, 3, (2, 3, 3))"),
    "max_pool1d": ("self.layer(x)", SIGNAL, "nn.MaxPool1d(4, stride=2, dilation=2)"),
    "max_pool2d": ("self.layer(x)", IMAGE, "nn.MaxPool2d(3, padding=1)"),
    "max_pool3d": ("self.layer(x)", VOLUME, "nn.MaxPool3d(2)"),
    "average_pool1d": ("self.layer(x)", SIGNAL, "nn.AvgPool1d(5, padding=2)"),
    "average_pool2d": ("self.layer(x)", IMAGE, "nn.AvgPool2d(3)"),
    "average_pool3d": ("self.layer(x)", VOLUME, "nn.AvgPool3d(2, stride=1)"),
    "mean_squared_error": ("torch.mean((p - t) ** 2)", f"{ROWS}, {ROWS}", "", "p, t"),
    "smooth_l1": (f"{F}.smooth_l1_loss(p, t)", f"{ROWS}, {ROWS}", "", "p, t"),
    "cross_entropy": (f"{F}.cross_entropy(p, t)", "torch.rand(300, 10), torch.randint(0, 10, (300,))", "", "p, t"),
    "divergence": (
        f"{F}.kl_div(torch.log(p), t, reduction='batchmean')",
        "torch.rand(48, 65).softmax(dim=1), torch.rand(48, 65).softmax(dim=1)",
        "",
        "p, t",
    ),
    "triplet": (f"{F}.triplet_margin_loss(a, p, n, margin=1.0)", ", ".join(["torch.rand(48, 333)"] * 3), "", "a, p, n"),
    "cumsum": ("torch.cumsum(x, dim=1)", ROWS),
    "cumsum_reversed": ("x.flip(1).cumsum(dim=1).flip(1)", ROWS),
    "cumsum_masked": ("torch.cumsum(x * mask, dim=1)", f"{ROWS}, torch.randint(0, 2, (48, 333)).bool()", "", "x, mask"),
    "cumprod": ("torch.cumprod(x, dim=1)", "torch.rand(48, 33)"),
    "attention": (
        f"{F}.scaled_dot_product_attention(q, k, v)",
        "torch.rand(2, 3, 33, 16), torch.rand(2, 3, 33, 16), torch.rand(2, 3, 33, 16)",
        "",
        "q, k, v",
    ),
    "embedding": ("self.layer(at)", "torch.randint(0, 500, (8, 40))", "nn.Embedding(500, 24)", "at"),
    "gather": ("x.gather(1, at)", f"{ROWS}, torch.randint(0, 333, (48, 20))", "", "x, at"),
    "scatter_add": (
        "torch.zeros(48, 50, dtype=x.dtype, device=x.device).scatter_add(1, at, x)",
        f"{ROWS}, torch.randint(0, 50, (48, 333))",
        "",
        "x, at",
    ),
}


def _file(row: tuple[str, ...], kind: str) -> str:
    forward, inputs, layer, arguments = (*row, "", "x")[:4] if len(row) == 2 else (*row, "x")[:4]
    init = f"        self.layer = {layer}\n" if layer else ""
    text = kernelbench.problem("One operator.", f"return {forward}", inputs, init, "[0]" if layer else "[]", arguments)
    return text.replace("class Model(", f"class {kind}(")


def problems() -> dict[str, str]:
    """Problem files by stem."""
    return {name: _file(row, "Model") for name, row in TABLE.items()}


def identical() -> dict[str, str]:
    """Candidates that compute the same in the same way, by stem."""
    return {f"{name}_same": _file(row, "ModelNew") for name, row in TABLE.items()}
