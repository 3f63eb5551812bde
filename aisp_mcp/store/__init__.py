"""SQLite in WAL mode and run folders: jobs, runs, measurements."""
