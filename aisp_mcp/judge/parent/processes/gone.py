"""The error for a worker that cannot run any more rounds."""

from __future__ import annotations


class WorkerGone(Exception):
    """The worker cannot run any more rounds. code: raised, crashed, hang, unstoppable, forged, ran_outside, left_cores,
    unreadable, hides_memory or shares_input; text: from the worker, untrusted.
    """

    def __init__(self, code: str, message: str, text: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.text = code, message, text
