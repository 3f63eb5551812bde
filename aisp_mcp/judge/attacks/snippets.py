"""Pieces of source that several attacks start with: how a candidate finds the loop that runs it."""

# loop() is the frame of the round; its locals are the worker, the number of this call and how many there will be.
LOOP = """
import itertools, os, sys, threading, time
import torch

CONTROL, ARENA, DONE = int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[2])


def loop():
    frame = sys._getframe(1)
    while not {"call", "count"} <= frame.f_locals.keys():
        frame = frame.f_back
    return frame.f_locals
"""

# worker is the worker object, found while the candidate's file is imported; pending(n): call n has no output yet.
WORKER = (
    LOOP
    + """

frame = sys._getframe()
while not hasattr(frame.f_locals.get("self"), "arena"):
    frame = frame.f_back
worker = frame.f_locals["self"]


def pending(call):
    flat = worker.outputs[call][0].view(torch.int32).flatten()
    return int(flat[-1]) == -1
"""
)

# fake() is a clock that takes cost[0] nanoseconds off what lies between two readings of it, but no more than half.
CHEAPER_CLOCK = """
real, cost, began = time.perf_counter_ns, [0], [0]

def fake():
    now = real()
    if not began[0]:
        began[0] = now
        return now
    begin, began[0] = began[0], 0
    return max(now - cost[0], begin + (now - begin) // 2)
"""

# Of C++ candidates against MATMUL_RELU: the header, and rows of the product.
NATIVE_PRODUCT = """
/* A product and its positive part.

launch:
  function: matmul_relu
  arguments: [x, w, y, "x.shape[0]", "x.shape[1]", "w.shape[1]"]
  outputs: {y: {shape: ["x.shape[0]", "w.shape[1]"], dtype: float32}}
*/
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

static void rows(const float* x, const float* w, float* y, int64_t begin, int64_t end, int64_t inner, int64_t columns) {
    for (int64_t row = begin; row < end; ++row) {
        float* __restrict out = y + row * columns;
        std::fill(out, out + columns, 0.0f);
        for (int64_t k = 0; k < inner; ++k)
            for (int64_t at = 0; at < columns; ++at) out[at] += x[row * inner + k] * w[k * columns + at];
        for (int64_t at = 0; at < columns; ++at) out[at] = std::max(out[at], 0.0f);
    }
}

extern "C" int matmul_relu(const float* x, const float* w, float* y, int64_t m, int64_t inner, int64_t n) {
"""
