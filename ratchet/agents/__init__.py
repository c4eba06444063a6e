"""Experiments by programs: proposals over MCP, and a command-line agent turn by turn."""
