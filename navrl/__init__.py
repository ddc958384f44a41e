"""NAVRL: multi-agent reinforcement learning runs that are recorded whole."""

__version__ = "0.1.0"
