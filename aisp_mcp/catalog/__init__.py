"""The aisp_* tools: one file per family, composition only."""
