"""The end of a worker that can give no more rounds."""

from __future__ import annotations


class WorkerGone(Exception):
    """The worker can give no more rounds. code: raised, crashed, hang, unstoppable, forged, ran_outside, left_cores,
    unreadable, hides_memory or shares_input; text: untrusted words.
    """

    def __init__(self, code: str, message: str, text: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.text = code, message, text
