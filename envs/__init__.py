"""Tasks. Knows nothing of learning: imports nothing from the rest of NAVRL."""
