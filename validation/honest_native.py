"""Honest alternatives as loops in C++, compiled once per process."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch

SOURCE = """
#include <cmath>
#include <cstdint>
#define ROWS for (int64_t row = 0; row < rows; ++row, x += width)
extern "C" {
void ordered_sum(const float* x, float* out, int64_t rows, int64_t width) {
    ROWS { float sum = 0; for (int64_t i = 0; i < width; ++i) sum += x[i]; out[row] = sum; }
}
void ordered_scan(const float* x, float* out, int64_t rows, int64_t width) {
    ROWS { float sum = 0; for (int64_t i = 0; i < width; ++i) *out++ = sum += x[i]; }
}
void squares(const float* x, float* out, int64_t rows, int64_t width) {
    ROWS {
        float part[8] = {};
        for (int64_t i = 0; i < width; ++i) part[i % 8] += x[i] * x[i];
        out[row] = 0;
        for (float sum : part) out[row] += sum;
    }
}
void welford(const float* x, float* out, int64_t rows, int64_t width) {
    ROWS {
        float mean = 0, spread = 0;
        for (int64_t i = 0; i < width; ++i) {
            float apart = x[i] - mean;
            mean += apart / (i + 1);
            spread += apart * (x[i] - mean);
        }
        out[row] = spread / width;
    }
}
void layer_norm(const float* x, float* out, int64_t rows, int64_t width) {
    ROWS {
        float mean = 0, spread = 0;
        for (int64_t i = 0; i < width; ++i) mean += x[i];
        mean /= width;
        for (int64_t i = 0; i < width; ++i) spread += (x[i] - mean) * (x[i] - mean);
        float factor = 1 / std::sqrt(spread / width + 1e-5f);
        for (int64_t i = 0; i < width; ++i) *out++ = (x[i] - mean) * factor;
    }
}
void online_softmax(const float* x, float* out, int64_t rows, int64_t width) {
    ROWS {
        float most = -INFINITY, sum = 0;
        for (int64_t i = 0; i < width; ++i) {
            float now = std::fmax(most, x[i]);
            sum = sum * std::exp(most - now) + std::exp(x[i] - now);
            most = now;
        }
        for (int64_t i = 0; i < width; ++i) *out++ = std::exp(x[i] - most) / sum;
    }
}
}
"""


def native(name: str, x: Any, size: int) -> Any:
    """The function on the rows of a matrix in float32. size: of the output, which has one dimension."""
    found = torch.empty(size)
    sizes = (ctypes.c_int64(length) for length in x.shape)
    _library()[name](*(ctypes.c_void_p(tensor.data_ptr()) for tensor in (x.contiguous(), found)), *sizes)
    return found


@functools.cache
def _library() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        source, built = Path(folder) / "honest.cpp", Path(folder) / "honest.so"
        source.write_text(SOURCE, "utf-8")
        subprocess.run(["g++", "-O3", "-shared", "-fPIC", str(source), "-o", str(built)], check=True)
        return ctypes.CDLL(str(built))
