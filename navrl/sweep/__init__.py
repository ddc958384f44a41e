"""Hyperparameter sweeps from W&B's own YAML files, run offline with Optuna.

spec (parameters, yaml_file) reads the file, search says it in Optuna's terms, place finds the sweep's study and runs;
slots says which trials count, study shares them among workers, trial runs one, worker runs them all; report tells.
"""
