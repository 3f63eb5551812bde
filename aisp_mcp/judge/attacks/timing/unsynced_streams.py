"""Unsynced Streams.

What happens: Work is launched on a stream that the timing events do not wait for.
Why it lies: The events enclose nothing, so a call seems to take no time.
What we do: Parent clock around a device synchronisation; events count only where they agree.
Limits: Gains below the agreement of the clocks remain.

Attacks: Work on a stream that nobody waits for.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.gpu_baselines import GPU_MATMUL
from aisp_mcp.judge.attacks.snippets import WORKER

ABOUT = Issue(id=1, kind="B", hardware="G", undefended=Undefended(7.67, "one process", "H200"), executed_on=("H200",))

CASES = (
    attack("side_stream_without_join", GPU_MATMUL, device="cuda")("""
import torch

side = torch.cuda.Stream()

def run(x, w):
    with torch.cuda.stream(side):
        return torch.relu(x @ w)
"""),
    # The results are right, because they are stored from the side stream, too; the events on the other one see nothing.
    attack("everything_on_a_side_stream", GPU_MATMUL, before=WORKER, device="cuda")("""
side, main = torch.cuda.Stream(), torch.cuda.current_stream()
store = type(worker).store

def stored_aside(self, call, output):
    with torch.cuda.stream(side):
        store(self, call, output)
    main.wait_stream(side)

type(worker).store = stored_aside

def run(x, w):
    side.wait_stream(main)
    with torch.cuda.stream(side):
        return torch.relu(x @ w)
"""),
    honest("side_stream_that_is_joined", GPU_MATMUL, device="cuda")("""
import torch

side = torch.cuda.Stream()

def run(x, w):
    main = torch.cuda.current_stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        lower = torch.relu(x[1024:] @ w)
    upper = torch.relu(x[:1024] @ w)
    main.wait_stream(side)
    lower.record_stream(main)
    return torch.cat([upper, lower])
"""),
)
