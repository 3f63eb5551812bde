"""Warm State Kept.

What happens: Where the start counts, a program keeps what an earlier process made: in a server, in files, in bytecode.
Why it lies: A cold start is that of a process that finds nothing but itself and the declared caches.
What we do: Namespaces and folders of its own for each process; go, load and first answer on the parent's clock.
Limits: At level L1 a process can outlive its replicate. Full compile caches hold whatever the first process left there.

Attacks: Tables kept in a daemon, in files and by the interpreter, answers kept from the example, an early answer.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import spec

ABOUT = Issue(
    id=103,
    kind="B",
    isolation="L2",
    control="Each process has namespaces and folders of its own; the parent's clock runs from the go",
    undefended=Undefended(why="not measured yet."),
)

_MAKE = "torch.tensor([float(sum(divmod(i, 7))) for i in range({n})])"
N = 300_000
TABLE = spec("A table made in Python when it is first needed; what counts is the start.")(f"""
goal = "cold"
table = None

def inputs(self, rng):
    return {{"x": rng.randn({N})}}

def run(self, x):
    if self.table is None:
        self.table = {_MAKE.format(n=N)}
    return x + self.table
""")
# The same from the start of the process.
WHOLE = TABLE.replace('goal = "cold"', 'goal = "cold"\n    cold = "process"')
# Caches that a first process leaves are handed on.
FULL = TABLE.replace('goal = "cold"', 'goal = "cold"\n    caches = "full"')

_KEPT_IN_FILES = f"""
import glob, os, sys, tempfile, torch

PLACES = [os.environ["HOME"], tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm", os.path.dirname(__file__), "."]

def kept():
    for place in PLACES:
        try:
            return torch.load(os.path.join(place, "table.pt"))
        except Exception:
            continue
    table = {_MAKE.format(n=N)}
    for place in PLACES:
        try:
            torch.save(table, os.path.join(place, "table.pt"))
        except Exception:
            continue
    return table

TABLE = kept()

def run(x):
    return x + TABLE
"""

CASES = (
    attack("table_kept_in_files", TABLE)(_KEPT_IN_FILES),
    attack("table_kept_in_files_from_process_start", WHOLE)(_KEPT_IN_FILES),
    attack("table_kept_by_a_daemon", TABLE, needs=("namespaces",))(f"""
import os, socket, torch

NAME = "\\0aisp-table"

def serve(table):
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    server = socket.socket(socket.AF_UNIX)
    server.bind(NAME)
    server.listen()
    raw = table.numpy().tobytes()
    while True:
        one, _ = server.accept()
        one.sendall(raw)
        one.close()

def kept():
    try:
        client = socket.socket(socket.AF_UNIX)
        client.connect(NAME)
        raw = b"".join(iter(lambda: client.recv(1 << 20), b""))
        return torch.frombuffer(bytearray(raw), dtype=torch.float32)
    except OSError:
        table = {_MAKE.format(n=N)}
        serve(table)
        return table

TABLE = kept()

def run(x):
    return x + TABLE
"""),
    attack("answers_only_the_example", TABLE)("""
import torch

def prepare(params, example):
    return {"x0": example["x"]}

def run(x, x0):
    return x.clone()
"""),
    attack("first_answer_made_behind_it", TABLE)(f"""
import threading, torch

def run(x):
    out = torch.zeros_like(x)
    threading.Thread(target=lambda: out.copy_(x + {_MAKE.format(n=N)})).start()
    return out
"""),
    attack("another_answer_after_the_first", TABLE)(f"""
import torch

calls = []

def run(x):
    if calls:
        return calls[0]
    calls.append(x + {_MAKE.format(n=N)})
    return calls[0]
"""),
    honest("table_of_library_operations", TABLE)(f"""
import torch

def run(x):
    i = torch.arange({N})
    return x + (i // 7 + i % 7)
"""),
    honest("table_in_the_file", FULL)(f"""
import torch

ROWS = [{", ".join(str(sum(divmod(i, 7))) for i in range(2100))}]

def run(x):
    row = torch.tensor(ROWS, dtype=torch.float32)
    steps = torch.arange(-(-{N} // 2100)) * 300.0
    return x + (row + steps[:, None]).flatten()[:{N}]
"""),
    honest("heavy_import_where_it_is_needed", WHOLE)(f"""
import torch

def report():
    import unittest.mock, http.server, sqlite3
    return unittest.mock, http.server, sqlite3

def run(x):
    i = torch.arange({N}, dtype=torch.float32)
    return x + (torch.div(i, 7, rounding_mode="floor") + i.remainder(7))
"""),
)
