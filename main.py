"""Parse the configuration, run one experiment, return its exit code."""

from __future__ import annotations

import os
import sys


def main(argv: list[str]) -> int:
    from runners.stopping import StopRequest

    with StopRequest() as stop:
        from envs.registry import validate_settings
        from navrl.config_sources import load
        from navrl.faults import ConfigError
        from navrl.pipes import place_in_run

        rank = 0
        try:
            rank, size = place_in_run(os.environ)
            loaded = load(argv, os.environ, validate_settings)
            from runners.experiment import run  # torch is imported only once the configuration is good

            return run(loaded, [sys.executable, *sys.argv], stop, rank, size)
        except ConfigError as error:
            if rank == 0:  # all have the same to say
                print(error, file=sys.stderr)
            return error.exit_code


if __name__ == "__main__":
    import atexit

    from navrl.pipes import run_program
    from runners.stopping import ignore_signals

    atexit.register(ignore_signals)  # the code is decided, and the interpreter takes a while to end
    run_program(main)
