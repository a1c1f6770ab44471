"""Runs cited source files themselves and reports what their code computed, line by line."""
