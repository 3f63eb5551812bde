"""Recorded /proc and /sys trees, cut down to the files that are read. Written into a folder, they are a machine."""

from __future__ import annotations

from pathlib import Path

GIB = 1 << 30
_NODE = "/sys/devices/system/node"
_CPU = "/sys/devices/system/cpu"

# A bare-metal server: two sockets, two NUMA nodes, cgroup v2, InfiniBand, automatic NUMA balancing, powersave.
SERVER = {
    "/proc/cpuinfo": "\n\n".join(
        f"processor\t: {n}\nmodel name\t: Intel(R) Xeon(R) Platinum 8480C\nphysical id\t: {n // 2}\n"
        f"core id\t: {n % 2}\ncpu MHz\t\t: 2000.000\nflags\t\t: fpu avx2 fma avx512f amx_tile amx_bf16"
        for n in range(4)
    ),
    "/proc/meminfo": "MemTotal: 1056000000 kB\nMemAvailable: 900000000 kB\n"
    "SwapTotal: 8388604 kB\nSwapFree: 6291452 kB\nHugePages_Total: 16",
    "/proc/stat": "cpu  1000 0 1000 8000 0 0 0 0 0 0\ncpu0 1 2 3",
    "/proc/loadavg": "0.50 0.40 0.30 1/900 12345",
    "/proc/self/cgroup": "0::/system.slice/worker.scope",
    "/proc/self/mounts": "/dev/nvme0n1p2 / ext4 rw 0 0\nserver:/data /data nfs4 rw 0 0",
    "/proc/sys/kernel/numa_balancing": "1",
    "/proc/sys/kernel/osrelease": "5.15.0-113-generic",
    "/proc/sys/kernel/perf_event_paranoid": "4",
    "/proc/sys/vm/swappiness": "60",
    "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Wed Oct  1",
    "/proc/driver/nvidia/params": "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1",
    "/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids",
    "/sys/fs/cgroup/system.slice/worker.scope/cpu.max": "150000 100000",
    "/sys/fs/cgroup/system.slice/worker.scope/cpu.stat": "usage_usec 5\nnr_throttled 7\nthrottled_usec 2500000",
    "/sys/fs/cgroup/system.slice/worker.scope/memory.max": "max",
    "/sys/fs/cgroup/system.slice/memory.max": str(64 * GIB),
    "/sys/fs/cgroup/system.slice/worker.scope/cpuset.cpus.effective": "0-3",
    f"{_CPU}/online": "0-3",
    f"{_CPU}/smt/active": "1",
    **{f"{_CPU}/cpu{n}/cpufreq/scaling_governor": "powersave" for n in range(4)},
    f"{_CPU}/cpu0/cpufreq/cpuinfo_max_freq": "3800000",
    f"{_CPU}/cpu0/cache/index0/level": "1",
    f"{_CPU}/cpu0/cache/index0/type": "Data",
    f"{_CPU}/cpu0/cache/index0/size": "48K",
    f"{_CPU}/cpu0/cache/index0/shared_cpu_list": "0,2",
    f"{_CPU}/cpu0/cache/index3/level": "3",
    f"{_CPU}/cpu0/cache/index3/type": "Unified",
    f"{_CPU}/cpu0/cache/index3/size": "107520K",
    f"{_CPU}/cpu0/cache/index3/shared_cpu_list": "0-1",
    **{f"{_NODE}/node{n}/cpulist": f"{2 * n}-{2 * n + 1}" for n in range(2)},
    **{
        f"{_NODE}/node{n}/meminfo": f"Node {n} MemTotal: 528000000 kB\nNode {n} MemFree: 400000000 kB" for n in range(2)
    },
    f"{_NODE}/node0/distance": "10 21",
    f"{_NODE}/node1/distance": "21 10",
    "/sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never",
    "/sys/kernel/mm/transparent_hugepage/defrag": "always defer [madvise] never",
    "/sys/block/nvme0n1/queue/rotational": "0",
    "/sys/block/nvme0n1/queue/scheduler": "[none] mq-deadline",
    "/sys/bus/pci/devices/0000:1b:00.0/vendor": "0x10de",
    "/sys/bus/pci/devices/0000:1b:00.0/class": "0x030200",
    "/sys/bus/pci/devices/0000:05:00.0/vendor": "0x10de",
    "/sys/bus/pci/devices/0000:05:00.0/class": "0x068000",  # an NVSwitch is not a card
    "/sys/class/net/eth0/type": "1",
    "/sys/class/net/eth0/speed": "100000",
    "/sys/class/net/eth0/operstate": "up",
    "/sys/class/net/eth0/mtu": "9000",
    "/sys/class/net/eth0/device/numa_node": "1",
    "/sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE",
    "/sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)",
    "/sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand",
    "/sys/class/infiniband/mlx5_0/device/numa_node": "0",
    "/sys/module/nvidia_peermem/version": "580",
    "/data/keep": "",
    "/usr/local/cuda/version.json": '{"cuda": {"name": "CUDA SDK", "version": "13.0.1"}}',
    "/opt/nvidia/nsight-compute/2025.3.1/host/target-linux-x64/nsys": "",
    "/opt/nvidia/nsight-compute/2025.3.1/ncu": "",
    "/opt/nvidia/nsight-compute/2024.1.0/ncu": "",
}

# A container on a rented machine: docker, KVM below, cgroup v1 with a quota, steal, pressure, no cpufreq.
CONTAINER = {
    "/.dockerenv": "",
    "/proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu avx2 hypervisor",
    "/proc/meminfo": "MemTotal: 33554432 kB\nMemAvailable: 400000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB",
    "/proc/stat": "cpu  1000 0 1000 7000 0 0 0 1000 0 0",
    "/proc/loadavg": "9.00 8.00 7.00 3/200 99",
    "/proc/pressure/cpu": "some avg10=80.00 avg60=1.00 avg300=0.10 total=5000000",
    "/proc/pressure/memory": "some avg10=30.00 avg60=0 avg300=0 total=10\nfull avg10=20.00 avg60=0 avg300=0 total=5",
    "/proc/pressure/io": "some avg10=9.00 avg60=0 avg300=0 total=10\nfull avg10=7.00 avg60=0 avg300=0 total=5",
    "/proc/self/cgroup": "3:cpu,cpuacct:/docker/abc\n2:memory:/docker/abc\n1:name=systemd:/docker/abc",
    "/proc/self/mounts": "overlay / overlay rw 0 0\ncgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0",
    "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000",
    "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
    "/sys/fs/cgroup/cpu,cpuacct/cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 3000000000",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes": str(8 * GIB),
    "/sys/devices/system/cpu/online": "0",
    "/sys/class/dmi/id/sys_vendor": "QEMU",
    "/sys/devices/system/clocksource/clocksource0/available_clocksource": "kvm-clock tsc",
}

EMPTY: dict[str, str] = {}

# Files that exist but say nonsense: truncated, empty, binary, of a kernel to come.
NONSENSE = {
    **{path: "\x00\xff garbage : : 1 2 3" for path in {**SERVER, **CONTAINER} if not path.endswith(("nsys", "ncu"))},
    "/proc/stat": "cpu  one two",
    "/proc/loadavg": "",
    "/proc/self/cgroup": "::::",
    "/sys/fs/cgroup/cgroup.controllers": "",
}

TREES = {"server": SERVER, "container": CONTAINER, "empty": EMPTY, "nonsense": NONSENSE}


def plant(folder: Path, tree: dict[str, str]) -> Path:
    """Write the tree below folder and return folder."""
    for path, content in tree.items():
        file = folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="latin-1")
    (folder / "dev/shm").mkdir(parents=True, exist_ok=True)
    return folder
