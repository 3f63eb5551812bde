"""The first suite of a repository: its measurable tests or programs, as tests and a workflow that judge each change."""
