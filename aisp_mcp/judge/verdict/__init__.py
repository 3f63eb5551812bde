"""Pure functions from measured replicates to a verdict."""
