"""Parts of the adapter for KernelBench, whose problems are modules of torch."""
