"""Parse the configuration, run one experiment, return its exit code."""

from __future__ import annotations

import os
import sys


def main(argv: list[str]) -> int:
    from envs.registry import validate_settings
    from navrl.config_sources import load
    from navrl.faults import ConfigError

    try:
        loaded = load(argv, os.environ, validate_settings)
        from runners.experiment import run  # torch is imported only once the configuration is good

        return run(loaded, [sys.executable, *sys.argv])
    except ConfigError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:  # before the run's own handlers were in place
        print("interrupted before anything was started", file=sys.stderr)
        return 130


if __name__ == "__main__":
    from navrl.pipes import hold_output, settle_output

    hold_output()
    code = main(sys.argv[1:])
    settle_output()
    sys.exit(code)
