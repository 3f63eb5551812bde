"""Background Thread.

What happens: Threads, children, orphans or siblings work while the clock stands.
Why it lies: Their work is free and may slow the other side.
What we do: The whole tree is stopped outside its rounds.
Limits: Below level L2 a process that has left the tree is not found.

Attacks: Work in threads and processes that the clock of the round does not see.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU
from aisp_mcp.judge.attacks.snippets import NATIVE_PRODUCT, WORKER

ABOUT = Issue(id=33, kind="B", isolation="L2", undefended=Undefended(141, "own word", "cpu"), executed_on=("cpu",))

# Watches for fresh inputs, which lie there before the clock starts, and answers them at once.
_HELPER = """
def serve():
    torch.set_num_threads(1)
    w = worker.arena.params()["w"]
    while True:
        for call in range(len(worker.inputs)):
            if pending(call):
                worker.outputs[call][0].copy_(torch.relu(worker.inputs[call]["x"] @ w))

real, now, step = time.perf_counter_ns, [0], [1]

def fake():
    now[0] += step[0]
    return now[0]

def run(x, w):
    found = loop()
    if found["call"] == 0:
        begin = real()
        while any(pending(call) for call in range(found["count"])):
            time.sleep(0)
        step[0] = max(1, (real() - begin) // found["count"])

type(worker).store = lambda *_: None
time.perf_counter_ns = fake
"""

CASES = (
    attack("fills_the_output_later", MATMUL_RELU)("""
import threading, torch

def run(x, w):
    y = torch.empty(256, 256)
    threading.Thread(target=lambda: y.copy_(torch.relu(x @ w)), daemon=True).start()
    return y
"""),
    attack("thread_works_between_rounds", MATMUL_RELU)(
        WORKER + _HELPER + "threading.Thread(target=serve, daemon=True).start()\n"
    ),
    attack("child_works_between_rounds", MATMUL_RELU)(WORKER + _HELPER + "if os.fork() == 0:\n    serve()\n"),
    # A grandchild whose parent has ended belongs to the first process of the namespace, no longer to the candidate.
    attack("orphan_works_between_rounds", MATMUL_RELU, before=WORKER + _HELPER, needs=("namespaces",))("""
if os.fork():
    os.wait()
elif os.fork():
    os._exit(0)
else:
    os.setsid()
    serve()
"""),
    # clone(2) with CLONE_PARENT gives the candidate a sibling instead of a child.
    attack("sibling_works_between_rounds", MATMUL_RELU, before=WORKER + _HELPER, needs=("namespaces",))("""
import ctypes
if ctypes.CDLL(None).syscall(56, 0x8000 | 17, 0, 0, 0, 0) == 0:
    serve()
"""),
    # Always a younger process than the list of processes to stop.
    attack("child_that_keeps_forking", MATMUL_RELU, before=WORKER + _HELPER, needs=("namespaces",))("""
def hop():
    w = worker.arena.params()["w"]
    while True:
        if os.fork():
            os._exit(0)
        for call in range(len(worker.inputs)):
            if pending(call):
                worker.outputs[call][0].copy_(torch.relu(worker.inputs[call]["x"] @ w))

torch.set_num_threads(1)
if os.fork() == 0:
    hop()
"""),
    honest("thread_pool_that_joins", MATMUL_RELU)("""
from concurrent.futures import ThreadPoolExecutor
import torch

pool = ThreadPoolExecutor(2)

def run(x, w):
    return torch.cat(list(pool.map(lambda part: torch.relu(part @ w), x.chunk(2))))
"""),
    honest("threads_started_and_joined_in_the_call", MATMUL_RELU)("""
import threading, torch

def run(x, w):
    y = torch.empty(256, 256)
    def half(rows):
        torch.mm(x[rows], w, out=y[rows]).relu_()
    threads = [threading.Thread(target=half, args=(s,)) for s in (slice(0, 128), slice(128, 256))]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return y
"""),
    attack("native_thread_that_is_not_joined", MATMUL_RELU, before=NATIVE_PRODUCT, suffix=".cpp", needs=("g++",))("""
    std::thread([=] { rows(x, w, y, 0, m, inner, n); }).detach();
    return 0;
}
"""),
    honest("native_threads_joined_in_the_call", MATMUL_RELU, before=NATIVE_PRODUCT, suffix=".cpp", needs=("g++",))("""
    std::thread first([=] { rows(x, w, y, 0, m / 2, inner, n); });
    rows(x, w, y, m / 2, m, inner, n);
    first.join();
    return 0;
}
"""),
)
