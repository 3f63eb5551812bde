"""Fronts: each renders the registry and knows no tool by name."""
