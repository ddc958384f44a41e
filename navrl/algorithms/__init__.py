"""Algorithms: a loss and an update each, readable beside its paper. They know tensors, not files or trackers."""
