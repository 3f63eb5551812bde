"""Bus bandwidth of collectives, as nccl-tests defines it (doc/PERFORMANCE.md)."""

from __future__ import annotations

from collections.abc import Callable

# By collective, of the number of ranks: bus bandwidth over bytes per second of the message. It can exceed the link rate
# if the switch reduces (NVLS): that is not an error.
FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda _: 1.0,
    "reduce": lambda _: 1.0,
}
