"""Opening and reading profiles of unknown size and origin: bounds, databases, streamed JSON."""
