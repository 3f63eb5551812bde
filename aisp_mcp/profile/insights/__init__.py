"""Named problems, found by small deterministic rules over a profile. One function is one rule."""
