"""The referee: measure a pair in isolated processes and judge it. See docs/referee.md."""
