"""The local record of a run, and the trackers that are fed from it.

The training process writes only the local record (`record.py`). Each chosen tracker has one child process
(`publish.py`) that reads the record and hands it on, so that no tracker can slow, stop or damage a run.
"""
