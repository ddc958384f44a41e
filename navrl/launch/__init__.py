"""Many runs of one command: what is to run (expand), what became of it (state), and where it runs (the engines)."""
