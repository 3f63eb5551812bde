"""Recipes that serve several tools: they join rooms that do not know each other."""
