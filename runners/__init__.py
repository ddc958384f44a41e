"""The loops: training, evaluation, and one experiment from configuration to summary."""
