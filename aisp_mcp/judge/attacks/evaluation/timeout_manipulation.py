"""Timeout Manipulation.

What happens: The candidate hangs, stops itself, resumes itself or cannot be stopped.
Why it lies: A run is lost or the clock stands.
What we do: Deadlines kept by the parent; kill cannot be refused; nobody may have computed between two rounds.
Limits: A hang costs its deadline.

Attacks: Time limits that do not hold.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import MATMUL_RELU
from aisp_mcp.judge.attacks.snippets import WORKER

ABOUT = Issue(
    id=89,
    kind="B",
    control="Deadlines kept by the parent; kill cannot be refused; no computing between rounds",
    undefended=Undefended(64, "own word", "cpu"),
    executed_on=("cpu",),
)

CASES = (
    attack("never_ends", MATMUL_RELU, slow=True)("""
import signal

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGCONT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
signal.alarm = lambda _: 0

def run(x, w):
    while True:
        pass
"""),
    attack("stops_itself", MATMUL_RELU)("""
import os, signal, torch

def run(x, w):
    os.kill(os.getpid(), signal.SIGSTOP)
    return torch.relu(x @ w)
"""),
    # A parent of vfork waits in a state in which a stop signal has no effect until the child has executed or ended.
    attack("cannot_be_stopped", MATMUL_RELU, slow=True)("""
import ctypes, threading, torch

libc = ctypes.CDLL(None)
started = []

def wait():
    pid = libc.syscall(58)
    if pid == 0:
        libc.pause()

def run(x, w):
    if not started:
        started.append(threading.Thread(target=wait, daemon=True))
        started[0].start()
    return torch.relu(x @ w)
"""),
    attack("resumed_by_an_orphan", MATMUL_RELU, needs=("namespaces",))("""
import os, signal, torch

candidate = os.getpid()
if os.fork():
    os.wait()
elif os.fork():
    os._exit(0)
else:
    os.setsid()
    while True:
        os.kill(candidate, signal.SIGCONT)

def run(x, w):
    return torch.relu(x @ w)
"""),
    # A timer sends the signal that continues: who is stopped goes on before its turn, when the next inputs are there.
    attack("resumed_by_a_timer", MATMUL_RELU, before=WORKER)("""
import ctypes, signal

class Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("numbers", ctypes.c_int * 14)]

libc, timer, wake = ctypes.CDLL("librt.so.1"), ctypes.c_void_p(), Event(None, (signal.SIGCONT, 0))
signal.signal(signal.SIGCONT, lambda *_: None)
libc.timer_create(1, ctypes.byref(wake), ctypes.byref(timer))
soon = (ctypes.c_long * 4)(0, 0, 0, 3_000_000)
w, busy, store = worker.arena.params()["w"], [False], type(worker).store

def serve():
    while True:
        time.sleep(0.0002)
        if busy[0] or not pending(0):
            continue
        time.sleep(0.0015)
        for call in reversed(range(len(worker.inputs))):
            if not busy[0] and pending(call):
                worker.outputs[call][0].copy_(torch.relu(worker.inputs[call]["x"] @ w))

def stored(self, call, output):
    if output is not None:
        store(self, call, output)

type(worker).store = stored
threading.Thread(target=serve, daemon=True).start()

def run(x, w):
    found = loop()
    call = found["call"]
    busy[0] = call + 1 < found["count"]
    if not busy[0]:
        libc.timer_settime(timer, 0, soon, None)
    return torch.relu(x @ w) if pending(call) else None
"""),
    honest("wakes_itself_up_in_the_call", MATMUL_RELU)("""
import signal, torch

signal.signal(signal.SIGALRM, lambda *_: None)

def run(x, w):
    signal.setitimer(signal.ITIMER_REAL, 0.00005)
    y = torch.relu(x @ w)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return y
"""),
    honest("ignores_the_hang_up_signal", MATMUL_RELU)("""
import signal, torch

signal.signal(signal.SIGHUP, signal.SIG_IGN)

def run(x, w):
    return torch.relu(x @ w)
"""),
)
