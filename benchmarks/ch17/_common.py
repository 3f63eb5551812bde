"""An engine of two processes: one computes prompts, the other one decodes and emits."""

import mmap
import threading
from contextlib import nullcontext
from multiprocessing import Pipe, get_context

import torch

from aisp_mcp.bench.decoder import Running, SlotCache, decode

SLOTS, LENGTH = 8, 1056
WAIT_S = 0.0005  # for a prompt, while nothing runs


class SharedCache(SlotCache):
    """Keys and values where both processes have them: what one has written, the other one reads in place."""

    def __init__(self, weights, slots, length):
        super().__init__(weights, slots, length)
        if not self.keys.is_cuda:
            self.keys, self.values = shared_like(self.keys), shared_like(self.values)

    def hand_over(self, connection, slot, length):
        pass

    def take_over(self, connection, slot, length):
        pass


def shared_like(tensor):
    """Zeros in anonymous memory that forked processes share."""
    return torch.frombuffer(mmap.mmap(-1, tensor.nbytes), dtype=tensor.dtype).view(tensor.shape)


def start(cache):
    """Compute prompts in a forked process, or on a GPU in a thread. Returns the connection to it."""
    here, there = Pipe()
    if cache.keys.is_cuda:
        threading.Thread(target=fill, args=(there, cache), daemon=True).start()
    else:
        get_context("fork").Process(target=fill, args=(there, cache, here), daemon=True).start()
        torch.set_num_threads(1)
    return here


def fill(connection, cache, other_end=None):
    """Answer each slot, request and prompt with the slot and the first token, once keys and values are there."""
    if other_end:
        other_end.close()
        torch.set_num_threads(1)  # those of the process that was copied do not exist here
    stream = torch.cuda.stream(torch.cuda.Stream()) if cache.keys.is_cuda else nullcontext()
    with torch.inference_mode(), stream:
        while True:
            try:
                slot, prompt = connection.recv()
            except EOFError:
                return
            connection.send((slot, cache.prefill(slot, prompt)))
            cache.hand_over(connection, slot, len(prompt))


def serve_apart(requests, emit, cache, prefill):
    """Send prompts away as slots become free, and decode those that came back."""
    waiting, filling, running = [], {}, []
    while True:
        waiting += requests.poll() if waiting or filling or running else requests.wait()
        if not (waiting or filling or running):
            return
        while waiting and cache.free:
            one, slot = waiting.pop(0), cache.free.pop()
            filling[slot] = one
            prefill.send((slot, one.prompt))
        while filling and prefill.poll(0 if running else WAIT_S):
            slot, token = prefill.recv()
            one = filling.pop(slot)
            cache.take_over(prefill, slot, len(one.prompt))
            emit(one.id, token)
            running.append(Running(one.id, slot, token, len(one.prompt), one.tokens - 1))
        running = decode(cache, running, emit)
