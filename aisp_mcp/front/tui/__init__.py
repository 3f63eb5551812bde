"""The terminal view: jobs, targets and verdicts on one screen, with Textual or as a plain menu. Start with `app.py`."""
