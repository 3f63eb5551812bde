"""Launch commands, batch scripts, NCCL settings, and jobs inside a Slurm allocation.

It writes text and submits jobs; it never guesses a topology that was not described or read. Start with `launch.py`.
"""
