"""Hyperparameter sweeps from W&B's own YAML files, run offline with Optuna: what is searched (spec, search), which trials
there are and whose they are (slots, study), and one trial as runs of several seeds (trial)."""
