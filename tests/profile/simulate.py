"""A host that launches and devices that execute, in integer nanoseconds: traces with exactly one problem, or none.

The simulation knows nothing of the rules under test: it only moves two clocks.
"""

import gzip
import json
import sqlite3
from contextlib import contextmanager
from pathlib import Path

US = 1000
MS = 1000 * US
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


class Sim:
    """now: the host's clock. free[device, stream]: when that stream has done all it was given."""

    def __init__(self, launch_ns=4 * US):
        self.now = 1_000_000_000
        self.launch_ns = launch_ns
        self.free = {}
        self.link = 100
        self.gpu, self.api, self.ranges, self.operators, self.waits = [], [], [], [], []

    def host(self, ns):
        """The host computes and calls nothing."""
        self.now += ns

    def _call(self, name, ns, link=0):
        self.api.append((name, self.now, ns, link))
        self.now += ns

    def kernel(self, name=GEMM, ns=200 * US, stream=7, device=0, after=None, told=True, **args):
        """Launch; it runs when its stream (and the stream `after`) is free, 1 us after the launch at the earliest.

        told: the profiler records that the stream waits for the other one's event.
        """
        if after is not None and told:
            self.link += 1
            self.waits.append((self.now, device, stream, after, self.link))
        self.link += 1
        begin = self.now
        self._call("cudaLaunchKernel", self.launch_ns, self.link)
        start = max(begin + self.launch_ns + US, self.free.get((device, stream), 0) + US)
        if after is not None:
            start = max(start, self.free.get((device, after), 0) + US)
        self.free[device, stream] = start + ns
        cat = "gpu_memset" if name.startswith("Memset") else "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
        shape = (
            {}
            if cat != "kernel"
            else {"grid": [1056, 1, 1], "block": [256, 1, 1], "registers per thread": 64, "shared memory": 0}
        )
        self.gpu.append((cat, name, start, ns, device, stream, self.link, {**shape, **args}))

    def copy(self, route, size, ns, stream=7, blocking=False):
        self.kernel(f"Memcpy {route}", ns, stream, bytes=size)
        if blocking:
            self.api[-1] = ("cudaMemcpyAsync", self.api[-1][1], self.free[0, stream] - self.api[-1][1], self.link)
            self.now = self.free[0, stream]

    def collective(self, ns, size, stream=20, ranks=8, device=0, after=None):
        facts = {
            "Collective name": "allreduce",
            "In msg nelems": size // 2,
            "Out msg nelems": size // 2,
            "Group size": ranks,
            "dtype": "BFloat16",
        }
        self.kernel(NCCL, ns, stream, device, after, **facts)

    def sync(self, name="cudaStreamSynchronize"):
        done = max(self.free.values(), default=self.now)
        self._call(name, max(done - self.now, 0) + 3 * US)

    def api_call(self, name, ns):
        self._call(name, ns)

    def drained(self):
        """Move the host to where the device has nothing left, without a call: it was slow, not waiting."""
        self.now = max([self.now, *self.free.values()])

    @contextmanager
    def range(self, name, operator=False):
        begin = self.now
        yield
        (self.operators if operator else self.ranges).append((name, begin, self.now - begin))

    def kineto(self, path: Path) -> Path:
        events = [
            {"ph": "X", "cat": cat, "name": name, "pid": dev, "tid": stream, "ts": _us(start), "dur": _us(ns),
             "args": {"device": dev, "stream": stream, "correlation": link, **args}}
            for cat, name, start, ns, dev, stream, link, args in self.gpu
        ]  # fmt: skip
        events += [
            {
                "ph": "X",
                "cat": "cuda_runtime",
                "name": name,
                "pid": 1,
                "tid": 1,
                "ts": _us(start),
                "dur": _us(ns),
                "args": {"correlation": link},
            }
            for name, start, ns, link in self.api
        ]
        events += [
            {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "pid": device, "tid": stream, "ts": _us(at),
             "dur": 0, "args": {"wait_on_stream": other, "stream": stream, "correlation": link, "device": device}}
            for at, device, stream, other, link in self.waits
        ]  # fmt: skip
        for cat, rows in (("user_annotation", self.ranges), ("cpu_op", self.operators)):
            events += [
                {"ph": "X", "cat": cat, "name": n, "pid": 1, "tid": 1, "ts": _us(s), "dur": _us(d), "args": {}}
                for n, s, d in rows
            ]
        device = {
            "id": 0,
            "name": "NVIDIA H200",
            "numSms": 132,
            "totalGlobalMem": 150109880320,
            "computeMajor": 9,
            "computeMinor": 0,
        }
        text = json.dumps({"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events})
        path.write_bytes(gzip.compress(text.encode(), 1) if path.suffix == ".gz" else text.encode())
        return path


def _us(ns):
    return ns / 1000


def step(sim, number, body):
    with sim.range(f"ProfilerStep#{number}"):
        body()


def compute(sim, kernels=30, ns=200 * US, name=GEMM):
    """Healthy work: long kernels, launched far ahead."""
    for _ in range(kernels):
        sim.kernel(name, ns)


def ncu_csv(path: Path, kernels) -> Path:
    """A raw page: kernels are dicts of metric → value with `name`, on top of a healthy matrix product's counters."""
    fixed = [
        "ID",
        "Process ID",
        "Process Name",
        "Host Name",
        "Kernel Name",
        "Context",
        "Stream",
        "Block Size",
        "Grid Size",
        "Device",
        "CC",
    ]
    names = sorted({key for k in kernels for key in k if key != "name"})
    rows = [fixed + names, [""] * len(fixed) + ["ns" if n.startswith("gpu__time") else "" for n in names]]
    for at, k in enumerate(kernels):
        head = [str(at), "1", "python", "127.0.0.1", k["name"], "1", "7", "(256, 1, 1)", "(1056, 1, 1)", "0", "9.0"]
        rows.append(head + [f"{k[n]:,.6f}" if n in k else "" for n in names])
    path.write_text("\n".join(",".join('"' + cell + '"' for cell in row) for row in rows) + "\n")
    return path


def memory_json(path: Path, steps=6, leak=0, churn=False, oom=0, reserve=1.05, returns=False) -> Path:
    """An allocator history: each step allocates 64 MB and frees it, but for `leak` bytes.

    returns: what leaked is freed after the last step, as when the function with the loop returns.
    """
    events, marks, clock, address, held = [], [], 1_000_000, 4096, 0
    for number in range(steps):
        marks.append({"stage": "START", "name": f"ProfilerStep#{number}", "time_us": clock})
        if churn:
            events.append({"action": "segment_alloc", "addr": 1, "size": 1 << 26, "time_us": clock})
        for _ in range(4):
            address += 1 << 26
            clock += 100
            events.append(
                {
                    "action": "alloc",
                    "addr": address,
                    "size": 1 << 24,
                    "time_us": clock,
                    "frames": [{"name": "forward", "filename": "/src/net.py", "line": 3}],
                }
            )
            events.append(
                {"action": "free_completed", "addr": address, "size": 1 << 24, "time_us": clock + 50, "frames": []}
            )
        if leak:
            address += 1 << 26
            events.append({"action": "alloc", "addr": address, "size": leak, "time_us": clock + 60, "frames": []})
            held += leak
        if churn:
            events.append({"action": "segment_free", "addr": 1, "size": 1 << 26, "time_us": clock + 70})
        clock += 1000
        marks.append({"stage": "END", "name": f"ProfilerStep#{number}", "time_us": clock - 100})
    if returns:
        leaked = [e["addr"] for e in events if e["action"] == "alloc" and e["size"] == leak]
        events += [{"action": "free_completed", "addr": at, "size": leak, "time_us": clock} for at in leaked]
    events += [{"action": "oom", "addr": 0, "size": 1 << 30, "time_us": clock}] * oom
    segment = {
        "device": 0,
        "total_size": int((held + (1 << 24)) * reserve),
        "allocated_size": held,
        "active_size": held,
        "blocks": [],
    }
    path.write_text(json.dumps({"segments": [segment], "device_traces": [events], "external_annotations": marks}))
    return path


def nsys_db(path: Path, kernels=(), **tables) -> Path:
    """A minimal export: kernels are (start, end, name); tables: name=(columns, rows)."""
    with sqlite3.connect(path) as db:
        names = {name: at for at, name in enumerate(dict.fromkeys(k[2] for k in kernels), 1)}
        db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(at, name) for name, at in names.items()])
        db.execute("CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)")
        db.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2099.1')")
        db.execute(
            'CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, "end" INTEGER, deviceId INTEGER, '
            "streamId INTEGER, correlationId INTEGER, demangledName INTEGER, shortName INTEGER)"
        )
        db.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7, ?, ?, ?)",
            [(s, e, i, names[n], names[n]) for i, (s, e, n) in enumerate(kernels, 1)],
        )
        for table, (columns, rows) in tables.items():
            db.execute(f"CREATE TABLE {table} ({columns})")
            db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    db.close()
    return path
