"""Benchmark Overfitting.

What happens: The candidate is right on the usual distribution alone, or quick only where many calls come at once.
Why it lies: Users' data are different, and come one call at a time.
What we do: Adversarial inputs mixed in at random; calls by themselves must show the gain (batching.py).
Limits: Few of the inputs are adversarial; less than a twentieth is not looked at, nor copies of single calls' outputs.

Attacks: Right on the usual distribution alone, or quick only where many calls come at once.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import RECURRENCE, SHORT_RECURRENCE, TOPK
from aisp_mcp.judge.attacks.gpu_baselines import GPU_SMALL, GPU_WEIGHTS
from aisp_mcp.judge.attacks.snippets import WORKER

ABOUT = Issue(
    id=92,
    kind="N",
    control="Adversarial inputs mixed in at random; a gain must show in calls by themselves",
    undefended=Undefended(28.1, "own word", "cpu"),
    executed_on=("cpu", "H200"),
)

_BATCHED = (
    WORKER
    + """
real, now, step, ready = time.perf_counter_ns, [0], [0], []

def fake():
    now[0] += step[0]
    return now[0]

def compute(x, b):
    for _ in range(100):
        x = torch.tanh(x * 0.9 + b)
    return x

def alone(x, b):
    return compute(x, b)

def rest(begin, count):
    pass

def run(x, b):
    found = loop()
    if found.get("isolated"):
        return alone(x, b)
    if found["call"] == 0:
        begin, count = real(), found["count"]
        x = torch.stack([worker.inputs[i]["x"] for i in range(count)])
        b = torch.stack([worker.inputs[i]["b"] for i in range(count)])
        ready[:] = compute(x, b).unbind(0)
        rest(begin, count)
        step[0] = (real() - begin) // count
    return ready[found["call"]]

time.perf_counter_ns = fake
"""
)

# The same, and then it waits: a gain so small that calls by themselves, which scatter, accuse nobody.
_A_LITTLE = """
own = []

def alone(x, b):
    begin = real()
    y = compute(x, b)
    step[0] = real() - begin
    own[:] = [*own, step[0]][-9:]
    return y

def rest(begin, count):
    while own and real() < begin + 0.88 * count * sorted(own)[len(own) // 2]:
        pass
"""

# In the parent's rounds on a GPU, too, all inputs are there when the first call is. The clock says a third.
_BATCHED_ON_DEVICE = (
    WORKER
    + """
GATED = True
ISOLATED = 1 << 26
SHARE = 1 / 3
elapsed, call_ms, batch_ms, sleep_ms, ready = torch.cuda.Event.elapsed_time, [0.1], [], [0.5], []

def forged(self, other):
    call_ms[0] = elapsed(self, other)
    return SHARE * call_ms[0]

def together(count, w):
    return (torch.cat([places()[i]["x"] for i in range(count)]) @ w).split(8)

def learn(w):
    count = min(32, len(places()))
    for _ in range(3):
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        marks[0].record()
        together(count, w)
        marks[1].record()
        torch.cuda._sleep(1_000_000)
        marks[2].record()
        marks[2].synchronize()
    batch_ms.append(elapsed(marks[0], marks[1]) / count)
    sleep_ms[0] = elapsed(marks[1], marks[2])

def places():
    return worker.own_inputs

def believed_ms():
    return SHARE * call_ms[0]

def wanted(here):
    return here["no_copy"] and here["gated"] == GATED

def alone(x, w, here):
    return x @ w

def given(y):
    return y

def run(x, w=None):
    here = loop()
    if "no_copy" not in here and not batch_ms:
        learn(w)
    if "no_copy" in here and here["call"] == 0 and not here["gated"]:
        together(here["count"], w)  # a kernel that has never run cannot be loaded behind the gate
    if "no_copy" not in here or here["bits"] & ISOLATED or not wanted(here):
        return alone(x, w, here)
    if here["call"] == 0:
        ready[:] = together(here["count"], w)
        rest_ms = here["count"] * (believed_ms() - batch_ms[0])
        torch.cuda._sleep(max(int(1_000_000 * rest_ms / sleep_ms[0]), 1))
    return given(ready[here["call"]])

torch.cuda.Event.elapsed_time = forged
"""
)

# Besides, calls by themselves are said to be done when they begin.
_SAID_AT_ONCE = """
side = torch.cuda.Stream()

def alone(x, w, here):
    if here.get("no_copy") and here["gated"] and here["call"] == 0:
        for call in range(here["count"]):
            worker.gate.wait(side, -5, call + 1)
            worker.gate.say(side, -6, call + 2)
    return x @ w
"""

# Calls of some 20 us, and a clock that takes little off each of them: less than nobody could gain by accident.
_SHORT = """
SHARE, learned, own_ms = 0.8, learn, []

def compute(x):
    return torch.softmax(torch.tanh(torch.nn.functional.gelu(x) + 1), 1)

def each(count):
    for _ in range(count):
        compute(places()[0]["x"])

def on_the_device_ms(work):
    for _ in range(3):
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        torch.cuda._sleep(8_000_000)
        marks[0].record()
        work()
        marks[1].record()
        marks[1].synchronize()
    return elapsed(*marks)

def learn(w):
    learned(w)
    count = min(32, len(places()))
    batch_ms[:] = [on_the_device_ms(lambda: together(count, w)) / count]
    own_ms[:] = [on_the_device_ms(lambda: each(count)) / count]

def believed_ms():
    return SHARE * own_ms[0]

def together(count, w):
    return compute(torch.cat([places()[i]["x"] for i in range(count)])).split(128)

def alone(x, w, here):
    return compute(x)
"""

# Calls by themselves are computed by the host, whose copies need no turn on the device: it has the time of two turns.
_BY_THE_HOST = (
    WORKER
    + """
ISOLATED = 1 << 26
SHARE, TURNS_S = 1 / 4, 285e-6
elapsed, call_ms, ready, places, thread = torch.cuda.Event.elapsed_time, [0.02], [], [], []
side, wait, handed = torch.cuda.Stream(), torch.cuda.synchronize, type(worker).await_inputs_on_stream
pinned = [torch.empty(128, 256, pin_memory=True) for _ in range(2)]

def compute(x):
    return torch.softmax(torch.tanh(torch.nn.functional.gelu(x) + 1), 1)

def together(count):
    return compute(torch.cat([worker.own_inputs[i]["x"] for i in range(count)])).split(128)

def forged(self, other):
    call_ms[0] = elapsed(self, other)
    return SHARE * call_ms[0]

def run(x):
    here = loop()
    if not here.get("no_copy") or not here["gated"]:
        if here.get("no_copy") and here["call"] == 0:
            together(here["count"])  # a kernel that has never run cannot be loaded behind the gate
        return compute(x)
    if here["bits"] & ISOLATED:
        places.append(torch.empty_like(x))
        return places[-1]
    if here["call"] == 0:
        ready[:] = together(here["count"])
        torch.cuda._sleep(int(1e6 * here["count"] * SHARE * call_ms[0] / 0.6))
    return ready[here["call"]]

def by_the_host(self, count, gated):
    if not gated:
        yield from handed(self, count, gated)
        return
    places.clear()
    self.gate.say(self.stream, -6, 1)
    yield from range(count)
    thread[:] = [threading.Thread(target=serve, args=(count, list(places)))]
    thread[0].start()

def serve(count, places):
    stats = worker.control.stats
    for call in range(count):
        while stats[-5] <= call:
            pass
        until = time.perf_counter() + TURNS_S + SHARE * call_ms[0] / 1e3
        with torch.cuda.stream(side):
            pinned[0].copy_(worker.own_inputs[call]["x"], non_blocking=True)
            side.synchronize()
            pinned[1].copy_(compute(pinned[0]))
            places[call].copy_(pinned[1], non_blocking=True)
            side.synchronize()
        while time.perf_counter() < until:
            pass
        stats[-6] = call + 2

def joined(*device):
    while thread:
        thread.pop().join()
    wait(*device)

type(worker).await_inputs_on_stream, torch.cuda.synchronize, torch.cuda.Event.elapsed_time = by_the_host, joined, forged
"""
)

# Where the host counts, calls by themselves are laid out beforehand, as behind the gate.
_LAID_AHEAD = """
handed = type(worker).await_inputs_on_stream
type(worker).await_inputs_on_stream = lambda self, count, gated: handed(self, count, True)
"""

# Another stream begins a call when the last word of its input has changed.
_FROM_ITS_BYTES = """
import ctypes
early, waits = torch.cuda.Stream(), ctypes.CDLL("libcuda.so.1").cuStreamWaitValue32_v2

def alone(x, w, here):
    if not (here.get("no_copy") and here["gated"]):
        if here["call"] == 0:
            with torch.cuda.stream(early):
                [x @ w for _ in range(16)]  # no memory can be asked for while a stream waits
        return x @ w
    last = x.view(torch.int32).flatten()[-1:]
    with torch.cuda.stream(early):
        if here["call"] == 0:
            for inputs in worker.own_inputs[: here["count"]]:
                inputs["x"].view(torch.int32).flatten()[-1:].zero_()
        waits(ctypes.c_void_p(early.cuda_stream), ctypes.c_uint64(last.data_ptr()), ctypes.c_uint(0xFFFFFFFF), 2)
        y = x @ w
        done = torch.cuda.Event()
        done.record(early)
    worker.stream.wait_event(done)
    return y
"""

# Outputs in one buffer again and again cannot be taken from outside: there are copies in all of the parent's rounds.
_INTO_ONE_BUFFER = """
buffer = []

def places():
    return worker.inputs

def wanted(here):
    return not here["no_copy"]

def given(y):
    if not buffer:
        buffer.append(y.clone())
    return buffer[0].copy_(y)

def alone(x, w, here):
    return given(x @ w)
"""

CASES = (
    attack("threshold_of_a_normal_tail", TOPK)("""
import torch

def run(x):
    rows = [row[row > 2.6] for row in x]
    return torch.stack([row.topk(16).values for row in rows])
"""),
    # All inputs of a round lie in memory at its first call.
    attack("calls_of_a_round_batched", RECURRENCE)(_BATCHED),
    attack("calls_of_a_round_batched_a_little", RECURRENCE)(_BATCHED + _A_LITTLE),
    attack("short_calls_batched", SHORT_RECURRENCE)(_BATCHED.replace("range(100)", "range(4)")),
    attack("calls_batched_behind_the_gate", GPU_WEIGHTS, device="cuda")(_BATCHED_ON_DEVICE),
    attack("calls_batched_and_said_to_be_done", GPU_WEIGHTS, device="cuda")(_BATCHED_ON_DEVICE + _SAID_AT_ONCE),
    attack("calls_batched_into_one_buffer", GPU_WEIGHTS, device="cuda")(_BATCHED_ON_DEVICE + _INTO_ONE_BUFFER),
    attack("calls_batched_and_begun_on_their_bytes", GPU_WEIGHTS, device="cuda")(_BATCHED_ON_DEVICE + _FROM_ITS_BYTES),
    attack("short_calls_batched_a_little", GPU_SMALL, device="cuda")(_BATCHED_ON_DEVICE + _SHORT),
    attack("single_calls_computed_by_the_host", GPU_SMALL, device="cuda")(_BY_THE_HOST),
    attack("calls_batched_and_laid_out_ahead_of_the_host", GPU_WEIGHTS, device="cuda")(
        _BATCHED_ON_DEVICE.replace("GATED = True", "GATED = False") + _LAID_AHEAD
    ),
    attack("calls_batched_where_the_host_counts", GPU_WEIGHTS, device="cuda")(
        _BATCHED_ON_DEVICE.replace("GATED = True", "GATED = False")
    ),
    honest("threshold_with_a_way_back", TOPK)("""
import torch

def run(x):
    rows = [row[row > 2.6] for row in x]
    return torch.stack([(few if len(few) >= 16 else row).topk(16).values for few, row in zip(rows, x)])
"""),
    honest("selection_in_place_of_a_sort", TOPK)("""
def run(x):
    return x.topk(16, dim=1).values
"""),
)
