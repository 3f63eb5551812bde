"""Executors run jobs: this machine's supervisor, Slurm, or the calling process."""
