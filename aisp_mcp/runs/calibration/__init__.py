"""The planners' figures held against one own run, and corrected by it for the same model and GPU."""
