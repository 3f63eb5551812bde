"""Read profiles that profilers wrote, and build the commands that make them. One file per tool or task."""
