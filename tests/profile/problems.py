"""Programs with exactly one problem each, and ten without: name → (expected rule, how to make the profile)."""

from simulate import GEMM, MS, POINTWISE, US, Sim, compute, memory_json, ncu_csv, step

STEPS = 8


def _trace(body, setup=Sim):
    def make(folder):
        sim = setup()
        for number in range(STEPS):
            step(sim, number, lambda number=number: body(sim, number))
        sim.sync("cudaDeviceSynchronize")
        return sim.kineto(folder / "trace.json.gz")

    return make


def many_short(sim, _):
    for _ in range(200):
        sim.host(20 * US)
        sim.kernel(ns=8 * US)


def python_between(sim, _):
    compute(sim, 20)
    sim.drained()
    sim.host(3 * MS)


def item_every_layer(sim, _):
    for _ in range(20):
        sim.kernel(ns=150 * US)
        sim.sync()
        sim.host(60 * US)


def slow_loader(sim, _):
    with sim.range("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", operator=True):
        sim.drained()
        sim.host(4 * MS)
    compute(sim, 20)


def compiling(sim, _):
    with sim.range("torch_compile: _dynamo.convert_frame"):
        sim.drained()
        sim.host(5 * MS)
    compute(sim, 20)


def loading_modules(sim, _):
    sim.drained()
    sim.api_call("cuLibraryLoadData", 3 * MS)
    compute(sim, 20)


def malloc_each_step(sim, _):
    sim.drained()
    for _ in range(4):
        sim.api_call("cudaMalloc", 600 * US)
    sim.api_call("cudaFree", 600 * US)
    compute(sim, 20)


def waits_for_other_stream(sim, _):
    for _ in range(10):
        sim.kernel(ns=100 * US)
        sim.free[0, 9] = sim.free[0, 7] + 60 * US  # an event of somebody outside this trace
        sim.kernel(ns=100 * US, after=9)


def checkpoint_sometimes(sim, number):
    compute(sim, 20)
    sim.drained()
    if number in (3, 6):
        sim.host(20 * MS)


def pinned_in_one_step(sim, number):
    compute(sim, 10)
    if number == 3:
        sim.drained()
        sim.api_call("cudaHostAlloc", 30 * MS)


def unequal_devices(sim, _):
    for _ in range(20):
        sim.kernel(ns=300 * US, device=0)
        sim.kernel(ns=60 * US, device=1)


def pageable(sim, _):
    sim.copy("HtoD (Pageable -> Device)", 64 << 20, 4 * MS, blocking=True)
    compute(sim, 30)


def pinned_but_serial(sim, _):
    sim.copy("HtoD (Pinned -> Device)", 200 << 20, 4 * MS)
    compute(sim, 30)


def clones(sim, _):
    for _ in range(15):
        sim.kernel()
        sim.copy("DtoD (Device -> Device)", 64 << 20, 90 * US)


def clears(sim, _):
    for _ in range(15):
        sim.kernel()
        sim.kernel("Memset (Device)", 80 * US, bytes=64 << 20)


def contiguous_everywhere(sim, _):
    for _ in range(15):
        sim.kernel()
        sim.kernel("void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda>", 90 * US)


def clears_by_kernel(sim, _):
    for _ in range(15):
        sim.kernel()
        sim.kernel("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>", 90 * US)


def managed(sim, _):
    compute(sim, 15)
    sim.copy("HtoD (Managed -> Device)", 64 << 20, 2 * MS)


def serial_allreduce(sim, _):
    compute(sim, 20)
    sim.collective(3 * MS, 512 << 20, after=7)
    sim.free[0, 7] = sim.free[0, 20]


def tiny_allreduces(sim, _):
    compute(sim, 20)
    for _ in range(60):
        sim.collective(40 * US, 4096, after=7)
    sim.free[0, 7] = sim.free[0, 20]


def straggler(sim, number):
    compute(sim, 20)
    sim.collective(300 * US if number % 2 else 6 * MS, 64 << 20, after=7)
    sim.free[0, 7] = sim.free[0, 20]


def fast_launches():
    return Sim(launch_ns=1 * US)


def pieces(sim, _):
    for _ in range(500):
        sim.kernel("triton_poi_fused_add_0", 4 * US)
    sim.kernel(ns=1 * MS)


def pointwise_chain(sim, _):
    for _ in range(10):
        sim.kernel(GEMM, 100 * US)
        for _ in range(4):
            sim.kernel(POINTWISE, 60 * US)


def float32_products(sim, _):
    for _ in range(20):
        sim.kernel("ampere_sgemm_128x64_tn", 400 * US)


def plain_attention(sim, _):
    for _ in range(10):
        sim.kernel(GEMM, 300 * US)
        sim.kernel("void at::native::cunn_SoftMaxForward<8, float>", 60 * US)


def attention_with_scale(sim, _):
    for _ in range(10):
        sim.kernel(GEMM, 300 * US)
        sim.kernel(POINTWISE, 70 * US)
        sim.kernel("void at::native::cunn_SoftMaxForward<8, float>", 60 * US)


def thin_grids(sim, _):
    for _ in range(20):
        sim.kernel("my_kernel", 300 * US, grid=[8, 1, 1], **{"est. achieved occupancy %": 3})


def starved_kernel(sim, _):
    for _ in range(20):
        facts = {"est. achieved occupancy %": 13}
        sim.kernel("my_kernel", 300 * US, **facts)


def optimizer_per_parameter(sim, _):
    compute(sim, 10)
    with sim.range("Optimizer.step#Adam.step"):
        for _ in range(150):
            sim.kernel("void adam_single_parameter", 12 * US)


PRODUCT = {
    "name": GEMM,
    "gpu__time_duration.sum": 100_000.0,
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": 88.0,
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 20.0,
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": 40.0,
    "l1tex__throughput.avg.pct_of_peak_sustained_elapsed": 50.0,
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": 85.0,
    "sm__warps_active.avg.pct_of_peak_sustained_active": 60.0,
    "sm__maximum_warps_per_active_cycle_pct": 75.0,
    "launch__waves_per_multiprocessor": 7.9,
    "launch__occupancy_limit_registers": 3.0,
    "launch__occupancy_limit_shared_mem": 4.0,
    "launch__occupancy_limit_warps": 8.0,
    "launch__occupancy_limit_blocks": 32.0,
    "smsp__average_warp_latency_per_inst_issued.ratio": 10.0,
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": 1.0,
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": 0.5,
    "smsp__thread_inst_executed_per_inst_executed.ratio": 31.5,
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": 0.0,
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": 0.0,
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 4e6,
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 1e6,
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": 1e6,
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": 0.25e6,
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": 32.0,
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio": 32.0,
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 1e6,
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": 8e5,
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": 2e5,
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": 1e4,
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": 1e3,
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed": 60.0,
}
IDLE = {
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": 20.0,
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 15.0,
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": 15.0,
    "l1tex__throughput.avg.pct_of_peak_sustained_elapsed": 25.0,
    "name": "my_kernel",
}
LOW = {"sm__warps_active.avg.pct_of_peak_sustained_active": 12.0, "sm__maximum_warps_per_active_cycle_pct": 12.5}


def _counters(*changes):
    def make(folder):
        kernel = dict(PRODUCT)
        for change in changes:
            kernel |= change
        return ncu_csv(folder / "raw.csv", [kernel, dict(PRODUCT)])

    return make


def _memory(**facts):
    return lambda folder: memory_json(folder / "memory.json", **facts)


PLANTED = {
    "short kernels, slow host": ("launch_bound", _trace(many_short)),
    "host code between steps": ("host_code", _trace(python_between)),
    "item() in every layer": ("sync_in_loop", _trace(item_every_layer)),
    "slow data loader": ("input_wait", _trace(slow_loader)),
    "compilation in the loop": ("compile_in_window", _trace(compiling)),
    "lazy module loading": ("code_loading", _trace(loading_modules)),
    "cudaMalloc in the loop": ("driver_allocation", _trace(malloc_each_step)),
    "event of another stream": ("dependency_wait", _trace(waits_for_other_stream)),
    "checkpoint in some steps": ("step_jitter", _trace(checkpoint_sometimes)),
    "a large buffer pinned in one step": ("driver_allocation", _trace(pinned_in_one_step)),
    "unequal devices": ("device_imbalance", _trace(unequal_devices)),
    "pageable input": ("pageable_copies", _trace(pageable)),
    "input copied in line": ("exposed_copies", _trace(pinned_but_serial)),
    "clone() everywhere": ("device_copies", _trace(clones)),
    "contiguous() everywhere": ("device_copies", _trace(contiguous_everywhere)),
    "zero_() everywhere": ("memsets", _trace(clears_by_kernel)),
    "zeroing buffers": ("memsets", _trace(clears)),
    "managed memory": ("unified_memory", _trace(managed)),
    "allreduce after backward": ("exposed_communication", _trace(serial_allreduce)),
    "an allreduce per parameter": ("small_messages", _trace(tiny_allreduces)),
    "a late rank": ("collective_skew", _trace(straggler)),
    "kernels of 4 us": ("small_kernels", _trace(pieces, fast_launches)),
    "unfused point-wise chain": ("unfused_pointwise", _trace(pointwise_chain)),
    "float32 products": ("tensor_cores_unused", _trace(float32_products)),
    "attention by hand": ("unfused_attention", _trace(plain_attention)),
    "attention by hand, scaled": ("unfused_attention", _trace(attention_with_scale)),
    "grids of 8 blocks": ("small_grids", _trace(thin_grids)),
    "13 % occupancy": ("low_occupancy", _trace(starved_kernel)),
    "optimizer per parameter": ("unfused_optimizer", _trace(optimizer_per_parameter)),
    "strided loads": (
        "uncoalesced_access",
        _counters(
            {
                "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 3.2e7,
                "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": 4.0,
            }
        ),
    ),
    "spilled registers": ("register_spilling", _counters({"l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": 6e6})),
    "bank conflicts": (
        "bank_conflicts",
        _counters({"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": 7e5}),
    ),
    "divergent branches": ("divergence", _counters({"smsp__thread_inst_executed_per_inst_executed.ratio": 9.0})),
    "barriers": (
        "barrier_stalls",
        _counters(IDLE, {"smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": 6.0}),
    ),
    "registers limit": ("occupancy_registers", _counters(IDLE, LOW, {"launch__occupancy_limit_registers": 1.0})),
    "shared memory limits": ("occupancy_shared", _counters(IDLE, LOW, {"launch__occupancy_limit_shared_mem": 1.0})),
    "blocks of one warp": (
        "occupancy_block",
        _counters(
            IDLE,
            {
                "sm__warps_active.avg.pct_of_peak_sustained_active": 45.0,
                "sm__maximum_warps_per_active_cycle_pct": 50.0,
                "launch__occupancy_limit_blocks": 2.0,
                "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": 8.0,
            },
        ),
    ),
    "half a last wave": ("tail_effect", _counters({"launch__waves_per_multiprocessor": 1.1})),
    "a tenth of a wave": ("small_grid", _counters(IDLE, {"launch__waves_per_multiprocessor": 0.1})),
    "product without tensor cores": (
        "tensor_pipe_idle",
        _counters({"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": 0.0}),
    ),
    "memory latency": (
        "memory_latency",
        _counters(IDLE, {"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": 8.0}),
    ),
    "a leak of 8 MB per step": ("memory_growth", _memory(leak=8 << 20)),
    "a leak that ends with its function": ("memory_growth", _memory(leak=8 << 20, returns=True)),
    "empty_cache() in the loop": ("allocator_churn", _memory(churn=True)),
    "half of the reservation unused": ("unused_reservation", _memory(reserve=2.5)),
    "out of memory": ("out_of_memory", _memory(oom=2)),
}


def _overlapped_copy(sim, _):
    sim.copy("HtoD (Pinned -> Device)", 64 << 20, 1 * MS, stream=13)
    compute(sim, 30)


def _overlapped_allreduce(sim, _):
    for _ in range(10):
        sim.kernel(ns=600 * US)
        sim.collective(500 * US, 64 << 20, after=7)


def _some_pointwise(sim, _):
    for _ in range(12):
        sim.kernel(GEMM, 400 * US)
        sim.kernel(POINTWISE, 40 * US)


def _read_loss_at_end(sim, number):
    compute(sim, 100)
    if number == STEPS - 1:
        sim.sync()


def _two_devices(sim, _):
    for _ in range(20):
        sim.kernel(ns=300 * US, device=0)
        sim.kernel(ns=290 * US, device=1)


def _flash(sim, _):
    for _ in range(10):
        sim.kernel(GEMM, 300 * US)
        sim.kernel("flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 64>>", 200 * US)


HEALTHY = {
    "long kernels, queued ahead": _trace(lambda sim, _: compute(sim)),
    "copy under compute": _trace(_overlapped_copy),
    "allreduce under backward": _trace(_overlapped_allreduce),
    "a little point-wise work": _trace(_some_pointwise),
    "loss read once": _trace(_read_loss_at_end),
    "two equal devices": _trace(_two_devices),
    "fused attention": _trace(_flash),
    "a good product's counters": _counters(),
    "a steady allocator": _memory(),
    "large graph of small but few launches": _trace(lambda sim, _: [sim.kernel(ns=2 * MS) for _ in range(5)]),
}
