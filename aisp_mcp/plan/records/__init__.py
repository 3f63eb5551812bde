"""The arguments and answers of planners, as records."""
