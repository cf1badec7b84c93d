"""Outlay: a latency budget for AI interactions."""

__version__ = "0.1.0.dev0"
