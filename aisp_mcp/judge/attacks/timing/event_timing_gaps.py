"""Event Timing Gaps.

What happens: The current stream is exchanged, or events are moved, so that they do not enclose the work.
Why it lies: The device's clock measures an idle stream.
What we do: Events recorded on an explicit stream; parent clock.
Limits: Events are read in the candidate's own process; only the parent's clock bounds what they say, to 4 %.

Attacks: Events that do not enclose the work.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.gpu_baselines import GPU_MATMUL, GPU_SHORT
from aisp_mcp.judge.attacks.snippets import WORKER

ABOUT = Issue(id=3, kind="D", hardware="G", undefended=Undefended(367, "one process", "H200"), executed_on=("H200",))

CASES = (
    attack("stream_switched_before_the_end", GPU_MATMUL, device="cuda")("""
import torch

def run(x, w):
    y = torch.relu(x @ w)
    torch.cuda.set_stream(torch.cuda.Stream())
    return y
"""),
    attack("event_times_forged", GPU_MATMUL, device="cuda")("""
import torch

torch.cuda.Event.elapsed_time = lambda self, other: 0.001

def run(x, w):
    return torch.relu(x @ w)
"""),
    attack("event_times_forged_by_a_sixth", GPU_MATMUL, device="cuda")("""
import torch

elapsed = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda self, other: 0.85 * elapsed(self, other)

def run(x, w):
    return torch.relu(x @ w)
"""),
    # Who waits for its device cannot be measured behind the gate.
    attack("event_times_forged_beside_waiting", GPU_MATMUL, device="cuda")("""
import torch

elapsed = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda self, other: 0.7 * elapsed(self, other)

def run(x, w):
    y = torch.relu(x @ w)
    torch.cuda.current_stream().synchronize()
    return y
"""),
    # The work starts before the inputs are there, on what lay there before.
    attack("gate_opened_from_within", GPU_MATMUL, before=WORKER, device="cuda")("""
elapsed = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda self, other: elapsed(self, other) / 4

def run(x, w):
    if loop().get("gated"):
        worker.control.stats[-1] = 1 << 30
    return torch.relu(x @ w)
"""),
    # Where the outputs will lie is said, and that they are done; then they are computed.
    attack("answered_at_the_gate", GPU_MATMUL, before=WORKER, device="cuda")("""
elapsed, write, bare, mute = torch.cuda.Event.elapsed_time, os.write, type(worker).round_bare, []
torch.cuda.Event.elapsed_time = lambda self, other: elapsed(self, other) / 4
os.write = lambda fd, data: mute.pop() if mute and fd == DONE else write(fd, data)

def run(x, w):
    return torch.relu(x @ w)

def at_once(self, count, call, bits):
    if bits & 7 << 26 != 3 << 27:  # read, behind the gate, and all inputs at once
        return bare(self, count, call, bits)
    self.held = [torch.empty_like(self.outputs[0][0]) for _ in range(count)]
    places, opened = list(self.held), self.control.stats[-1]
    self.show()
    self.say(b"Q")
    while self.control.stats[-1] == opened:
        pass
    self.say(b"D")
    for place, inputs in zip(places, self.own_inputs):
        place.copy_(call(**inputs))
    torch.cuda.synchronize()
    mute.append(1)

type(worker).round_bare = at_once
"""),
    attack("end_recorded_at_the_beginning", GPU_MATMUL, before=WORKER, device="cuda")("""
record = torch.cuda.Event.record

def run(x, w):
    return torch.relu(x @ w)

def twice(self, stream=None):
    if not any(self is begin for begin, _ in worker.events):
        return
    record(self, stream)
    for begin, end in worker.events:
        if begin is self:
            record(end, stream)

torch.cuda.Event.record = twice
"""),
    # The device still works when the answer is given; what it does until everything stands still is free.
    attack("done_before_the_device", GPU_MATMUL, before=WORKER, device="cuda")("""
elapsed, known, state = torch.cuda.Event.elapsed_time, [0.1], [1]

def early():
    place = int(state[0] * 0.8)
    worker.events[place][1].synchronize()

def forged(self, other):
    if other.query():
        known[0] = 0.8 * elapsed(self, other)
    return known[0]

def run(x, w):
    frame = sys._getframe(1)
    while "count" not in frame.f_locals:
        frame = frame.f_back
    state[0] = frame.f_locals["count"]
    return torch.relu(x @ w)

torch.cuda.synchronize = early
torch.cuda.Event.elapsed_time = forged
"""),
    # The answer comes a tenth of a millisecond early, which is as long as it takes until somebody looks.
    attack("answered_a_little_early", GPU_SHORT, before=WORKER, device="cuda")("""
EARLY_MS, call_ms, marks = 0.1, [0.01], []
elapsed, wait = torch.cuda.Event.elapsed_time, torch.cuda.synchronize

def run(x):
    y, here = torch.softmax(x, 1), loop()
    if here.get("no_copy") and here["call"] == here["count"] - 1 - int(EARLY_MS / call_ms[0]):
        marks.append(torch.cuda.Event())
        marks[0].record()
    return y

def early(*device):
    return marks.pop().synchronize() if marks else wait(*device)

def forged(self, other):
    call_ms[0] = elapsed(self, other)
    return call_ms[0] - EARLY_MS / 128

torch.cuda.synchronize, torch.cuda.Event.elapsed_time = early, forged
"""),
    honest("stream_switched_and_restored", GPU_MATMUL, device="cuda")("""
import torch

other = torch.cuda.Stream()

def run(x, w):
    before = torch.cuda.current_stream()
    other.wait_stream(before)
    torch.cuda.set_stream(other)
    y = torch.relu(x @ w)
    torch.cuda.set_stream(before)
    before.wait_stream(other)
    y.record_stream(before)
    return y
"""),
)
