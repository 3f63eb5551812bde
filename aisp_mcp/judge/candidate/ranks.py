"""The ranks of one worker: python -m aisp_mcp.judge.candidate.ranks NUMBERS… PATH.

NUMBERS are four descriptors per rank, as candidate/main.py takes them. Libraries are loaded once; then the process,
which becomes rank 0, is forked for each further rank. Every rank joins the process group before the candidate is
loaded, and answers on its own pipes.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from aisp_mcp.judge.candidate.main import Worker, serve

PR_SET_PDEATHSIG = 1  # linux/prctl.h
FDS = 4  # per rank: command, done, control block, arena


class RankWorker(Worker):
    """One rank of a program. A call on a GPU ends when the device has finished it."""

    def __init__(self, setup: dict[str, Any], control_fd: int, arena_fd: int, say: Callable[[bytes], object]) -> None:
        os.sched_setaffinity(0, setup["group"]["cpus"])  # before threads start, which inherit this one's cores
        join(setup["group"], setup["device"], os.environ["TMPDIR"])
        super().__init__(setup, control_fd, arena_fd, say)

    def _prepare_cuda(self, *_: Any) -> None:
        run, self.cuda = self.run, False  # host and device are timed together, in rounds like those of a CPU

        def finished(**inputs: Any) -> Any:
            output = run(**inputs)
            self.torch.cuda.synchronize()
            return output

        self.run = finished

    def round_cpu(self, count: int, run: Callable[..., Any], isolated: bool) -> None:
        super().round_cpu(count, run, isolated)
        if self.torch.cuda.is_initialized():
            self.torch.cuda.synchronize()  # copies of outputs


def join(group: dict[str, Any], device: str, folder: str) -> None:
    """Form the default process group with the other ranks of this program, in an environment like torchrun's.

    folder: where the ranks of this program, and no other, meet; ranks on several nodes meet at a store of the first
    rank.
    """
    import torch
    import torch.distributed as dist

    rank, ranks, wait = group["rank"], group["ranks"], timedelta(seconds=group["collective_s"])
    host, port, interface = group["meets"] or ("", 0, "lo")
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(group["number"])}
    os.environ |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(group["here"])}
    os.environ |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    if host:
        store = dist.TCPStore(host, port, ranks, rank == 0, wait, wait_for_workers=False)
    else:
        store = dist.FileStore(os.path.join(folder, "rendezvous"), ranks)
    if device == "cuda":
        torch.cuda.set_device(rank)
        here = torch.device("cuda", rank)
        dist.init_process_group("nccl", store=store, rank=rank, world_size=ranks, timeout=wait, device_id=here)
    else:
        dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=wait)


def die_with(parent: int) -> None:
    """Have the kernel end this process when its parent ends. parent: its pid."""
    if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) or os.getppid() != parent:
        os._exit(1)


def main() -> None:
    """Load the libraries, fork all ranks, and serve as one of them."""
    numbers = [int(word) for word in sys.argv[1:-1]]
    ranks = [numbers[begin : begin + FDS] for begin in range(0, len(numbers), FDS)]
    own, parent = ranks[0], os.getpid()
    for other in ranks[1:]:
        if os.fork() == 0:
            own = other
            die_with(parent)
            break
    for fd in (fd for rank in ranks if rank is not own for fd in rank):
        os.close(fd)
    serve(RankWorker, *own)


if __name__ == "__main__":
    main()
