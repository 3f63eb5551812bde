"""Incomplete Async Ops.

What happens: The call returns before a thread or a queue has filled the result.
Why it lies: The time of the work is not in the time of the call.
What we do: Poisoned outputs, looked at while the process is stopped.
Limits: Work that ends between the answer and the stop goes unseen; the stop follows the answer at once.

Attacks: A result handed back before it is there.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU

ABOUT = Issue(id=2, kind="B", undefended=Undefended(2.76, "one process", "cpu"), executed_on=("cpu",))

CASES = (
    attack("queue_of_later_results", MATMUL_RELU)("""
import queue, threading, torch

todo = queue.Queue()

def serve():
    while True:
        y, x, w = todo.get()
        y.copy_(torch.relu(x @ w))

threading.Thread(target=serve, daemon=True).start()

def run(x, w):
    y = torch.full((256, 256), float("nan"))
    todo.put((y, x, w))
    return y
"""),
    honest("queue_that_is_waited_for", MATMUL_RELU)("""
import queue, threading, torch

todo, done = queue.Queue(), queue.Queue()

def serve():
    while True:
        x, w = todo.get()
        done.put(torch.relu(x @ w))

threading.Thread(target=serve, daemon=True).start()

def run(x, w):
    todo.put((x, w))
    return done.get()
"""),
)
