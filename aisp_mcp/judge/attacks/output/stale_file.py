"""Stale File.

What happens: What was read from a file once is served again by name, inode, time or size, or read ahead of a call.
Why it lies: A loader meets each file once an epoch; a benchmark that reads one file again and again measures a lookup.
What we do: Every call gets a file of its own with new contents, below a random name that no worker can list.
Limits: From level L2 on. At L1 a candidate of the same user can list the files of a round, which are there before it.

Attacks: Files remembered by what stat() says, served a call late, looked for by a child process, or written to.
"""

from aisp_mcp.judge.attacks.base import Issue, Undefended, attack, honest
from aisp_mcp.judge.attacks.baselines import spec

ABOUT = Issue(
    id=105,
    kind="B",
    isolation="L2",
    control="A file of its own for every call: new contents, a random name, a folder that cannot be listed or written",
    undefended=Undefended(why="not measured yet."),
)

NUMBERS = spec("Read a file of numbers and scale them.")("""
def inputs(self, rng):
    from aisp_mcp.bench import File
    return {"path": File(rng.randn(1 << 16), "numbers.f32"), "scale": rng.rand(1)}

def run(self, path, scale):
    with open(path, "rb") as file:
        numbers = torch.frombuffer(bytearray(file.read()), dtype=torch.float32)
    return numbers * scale
""")

_KEPT = """
import os, torch

known = {{}}

def run(path, scale):
    about = os.stat(path)
    key = {key}
    if key not in known:
        known[key] = torch.from_file(path, size=1 << 16).clone()
    return known[key] * scale
"""

CASES = (
    attack("file_kept_by_name_and_size", NUMBERS)(_KEPT.format(key="os.path.basename(path), about.st_size")),
    attack("file_kept_by_inode", NUMBERS)(_KEPT.format(key="about.st_ino % 64, about.st_size")),
    attack("file_kept_by_time", NUMBERS)(_KEPT.format(key="int(about.st_mtime), about.st_size")),
    # As a pipeline that reads the next shard while this one is used: what it gives back belongs to the call before.
    attack("file_of_the_call_before", NUMBERS)("""
import torch
from concurrent.futures import ThreadPoolExecutor

pool, ahead = ThreadPoolExecutor(1), []

def read(path):
    return torch.from_file(path, size=1 << 16).clone()

def run(path, scale):
    ahead.append(pool.submit(read, path))
    return ahead[-2 if len(ahead) > 1 else -1].result() * scale
"""),
    attack("child_that_looks_for_files", NUMBERS)("""
import hashlib, mmap, os, torch

ROOM, SLOTS = 4 << 16, 64
shared = mmap.mmap(-1, SLOTS * (ROOM + 64))

def place(path):
    return int(hashlib.sha256(path.encode()).hexdigest(), 16) % SLOTS * (ROOM + 64)

def look(folder):
    seen = set()
    while True:
        for name in set(os.listdir(folder)) - seen:
            seen.add(name)
            path = os.path.join(folder, name, "numbers.f32")
            at = place(path)
            shared[at + 64 : at + 64 + ROOM] = open(path, "rb").read()
            shared[at : at + 64] = name.encode().ljust(64)

def prepare(params, example):
    if os.fork() == 0:
        try:
            look(os.path.dirname(os.path.dirname(example["path"])))
        finally:
            os._exit(0)
    return {}

def run(path, scale):
    at, name = place(path), os.path.basename(os.path.dirname(path))
    if shared[at : at + 64].rstrip() == name.encode():
        return torch.frombuffer(shared, dtype=torch.float32, count=1 << 16, offset=at + 64) * scale
    return torch.from_file(path, size=1 << 16) * scale
"""),
    attack("file_overwritten", NUMBERS)("""
import os, torch

def run(path, scale):
    try:
        os.chmod(os.path.dirname(path), 0o700)
        os.chmod(path, 0o600)
        with open(path, "wb") as file:
            file.write(bytes(4 << 16))
    except OSError:
        pass
    return torch.zeros(1 << 16)
"""),
    honest("file_mapped", NUMBERS)("""
import torch

def run(path, scale):
    return torch.from_file(path, size=1 << 16) * scale
"""),
    honest("file_read_into_a_kept_buffer", NUMBERS)("""
import os, torch

kept = torch.empty(1 << 16)

def run(path, scale):
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    os.preadv(fd, [kept.numpy()], 0)
    os.close(fd)
    return kept * scale
"""),
    honest("file_read_by_threads", NUMBERS)("""
import os, torch
from concurrent.futures import ThreadPoolExecutor

pool = ThreadPoolExecutor(2)

def run(path, scale):
    out = torch.empty(1 << 16)
    fd, half = os.open(path, os.O_RDONLY), 1 << 15
    parts = [pool.submit(os.preadv, fd, [out[at : at + half].numpy()], 4 * at) for at in (0, half)]
    for part in parts:
        part.result()
    os.close(fd)
    return out.mul_(scale)
"""),
)
