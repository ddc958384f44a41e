"""The four layers of metrics (layer 1 is computed in the learner's update) and the watch over a run's health.

``trajectories`` holds evaluation episodes, ``task`` (layer 2) and ``behaviour`` (layer 3) turn them into values per
episode by means of ``geometry``, ``summary`` into the numbers of a row. ``metadata`` is layer 4. ``health`` watches
the rows.
"""
