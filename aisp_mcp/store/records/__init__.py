"""The records of jobs, verdict rows and measurements as the store keeps them.

Nothing here opens the store. Start with `job.py`.
"""
