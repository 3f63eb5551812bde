"""Compare two stored runs and triage one: changes, suspicious results, and calls to run next."""
