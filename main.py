"""Parse the configuration, run one experiment, return its exit code."""

from __future__ import annotations

import contextlib
import os
import sys
import time

# Seconds: torchrun ends all ranks when the first one ends, and rank 0 is to have spoken by then.
AFTER_RANK_0 = 10.0


def main(argv: list[str]) -> int:
    from runners.stopping import StopRequest

    with StopRequest() as stop:
        from envs.registry import validate_settings
        from navrl.config_sources import load
        from navrl.faults import ConfigError
        from runners.companions import Place, companions, end_with_rank_0, place_in_run

        place = Place()
        try:
            place = place_in_run(os.environ)
            stop.speaks, met = place.rank == 0, lambda: None
            loaded = load(argv, os.environ, validate_settings)
            with contextlib.ExitStack() as started:
                if place.size == 1 and loaded.config.processes > 1:
                    place, event = started.enter_context(companions(loaded.config.processes, argv))
                    met = event.set
                end_with_rank_0(place)
                from runners.experiment import run  # torch is imported only once the configuration is good

                code = run(loaded, [sys.executable, *sys.argv], stop, place, met)
            if place.rank > 0:
                os._exit(code)  # it holds nothing, and a thread of gloo that meets the interpreter's end would abort it
            return code
        except ConfigError as error:
            if place.rank == 0:  # all have the same to say
                print(error, file=sys.stderr)
            else:
                time.sleep(AFTER_RANK_0)
            return error.exit_code


if __name__ == "__main__":
    import atexit

    from navrl.pipes import run_program
    from runners.stopping import ignore_signals

    atexit.register(ignore_signals)  # the code is decided, and the interpreter takes a while to end
    run_program(main)
