"""Where an iteration's time goes: operators of collect and update in groups, default recipe, one core.

    python benchmarks/operators.py [--iterations 5] [-- --network mlp]      # after --: main.py's flags

torch.profiler over a few iterations of the real loop (runners/on_policy.py). A row is the operators' own time, without
that of operators they call; what runs inside an environment's step, an optimiser's step or the clipping of gradients
counts there, whatever it is. Profiling itself takes time, small operators the most; so shares are the profiler's, and
milliseconds are these shares of an iteration without it (median of as many).
"""

from __future__ import annotations

import os
import re
import shlex
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from machine import machine  # noqa: E402
from torch.autograd.profiler_util import FunctionEvent  # noqa: E402
from torch.profiler import ProfilerActivity, profile, record_function  # noqa: E402

from envs.registry import validate_settings  # noqa: E402
from envs.seeding import TRAIN, stream_seed  # noqa: E402
from navrl.config_sources import load  # noqa: E402
from navrl.faults import ConfigError  # noqa: E402
from navrl.pipes import Parser, run_program, whole  # noqa: E402
from runners.on_policy import OnPolicyRunner  # noqa: E402
from runners.setup import make_algorithm, make_training_env  # noqa: E402

CPU = torch.device("cpu")  # whatever device the configuration names
PHASES = ("collect", "update")
PLACES = ("environment step", "optimiser", "gradient clipping")  # by where an operator runs
PYTHON = "Python between operators"
# By what it is: the first that matches its name
GROUPS = {
    "GEMM": r"aten::(addmm|mm|bmm|baddbmm|linear|matmul|mv|addmv|dot)$",
    "softmax, log-probabilities": r"aten::.*(softmax|logsumexp|multinomial|exponential)",
    "pooling: sum, mean, maximum": r"aten::(sum|mean|amax|amin|max|min|argmax|std|std_mean|var|var_mean|norm|cumsum|"
                                   r"linalg_vector_norm|value_selecting_reduction_backward)$",
    "cat, index, gather": r"aten::(cat|stack|index|index_select|index_put_|_index_put_impl_|gather|scatter\w*|where|"
                          r"index_add_?|select_backward|slice_backward|masked_fill_?|flip|randperm|sort|argsort)$",
    "copy, fill, allocate": r"aten::(copy_|clone|contiguous|_to_copy|to|zero_|fill_|zeros\w*|ones\w*|empty\w*|new_\w+|"
                            r"full\w*|resize_|scalar_tensor|item|_local_scalar_dense|arange|detach_|lift_fresh)$",
    "views": r"aten::(view|_unsafe_view|reshape|_reshape_alias|t|transpose|permute|expand\w*|unsqueeze|squeeze|flatten|"
             r"unflatten|select|slice|as_strided|split\w*|tensor_split|chunk|detach|alias|unbind|narrow|view_as)$",
    "autograd's graph": r"(autograd::|torch::autograd|\w+Backward\d*$|detach$)",
    "elementwise": r"aten::",
}  # fmt: skip


def marked(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """``function``, whose operators the profiler files under ``name``."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with record_function(name):
            return function(*args, **kwargs)

    return call


def make_runner(words: list[str]) -> OnPolicyRunner:
    """The training loop with its places marked. Raises ConfigError."""
    config = load(words, os.environ, validate_settings).config
    torch.set_num_threads(1)
    env = make_training_env(config, CPU)
    algorithm = make_algorithm(config, env.spec, CPU)
    runner = OnPolicyRunner(config, env, algorithm, stream_seed(config.seed, TRAIN))
    runner.collect = marked(runner.collect, "collect")  # type: ignore[method-assign]
    algorithm.update = marked(algorithm.update, "update")  # type: ignore[method-assign]
    env.step = marked(env.step, "environment step")  # type: ignore[method-assign]
    for optimizer in algorithm.optimizers.values():
        for name in ("step", "zero_grad"):
            setattr(optimizer, name, marked(getattr(optimizer, name), "optimiser"))
    torch.nn.utils.clip_grad_norm_ = marked(torch.nn.utils.clip_grad_norm_, "gradient clipping")
    return runner


def where(event: FunctionEvent) -> tuple[str, str]:
    """(phase, group) of an operator: where it runs if that is one of PLACES, else what it is."""
    phase, place, above = "", "", event
    while above is not None:
        place = place or (above.name if above.name in PLACES else "")
        phase = above.name if above.name in PHASES else phase
        above = above.cpu_parent
    if place or event.name in PHASES:
        return phase, place or PYTHON
    return phase, next((group for group, names in GROUPS.items() if re.match(names, event.name)), "other")


def count(runner: OnPolicyRunner, iterations: int) -> tuple[dict[tuple[str, str], float], dict[str, Counter]]:
    """Microseconds by (phase, group), and by group those of each operator."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(iterations):
            runner.iterate()
    times: dict[tuple[str, str], float] = defaultdict(float)
    operators: dict[str, Counter] = defaultdict(Counter)
    for event in profiler.events():
        phase, group = where(event)
        if phase:
            times[phase, group] += event.self_cpu_time_total
            operators[group][event.name] += event.self_cpu_time_total
    return times, operators


def arguments() -> Parser:
    parser = Parser(__doc__)
    parser.add_argument("--iterations", type=whole(1), default=5, help="with and without the profiler (default: 5)")
    parser.add_argument("--config", default=str(ROOT / "configs/train/train_mpe.yaml"), help="default: the main job")
    return parser


def main(argv: list[str]) -> int:
    end = argv.index("--") if "--" in argv else len(argv)
    options = arguments().parse_args(argv[:end])
    try:
        runner = make_runner(["--config", options.config, *argv[end + 1 :]])
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    for _ in range(2):  # first calls are slower
        runner.iterate()
    plain = []
    for _ in range(options.iterations):
        begin = time.perf_counter()
        runner.iterate()
        plain.append(1e3 * (time.perf_counter() - begin))
    times, operators = count(runner, options.iterations)
    total, iteration = sum(times.values()), statistics.median(plain)
    profiled = total / 1e3 / options.iterations
    print(f"{machine()}; one core, one thread")
    print(f"python benchmarks/operators.py {shlex.join(argv)}")
    print(f"an iteration ({runner.steps_per_iteration} environment steps) takes {iteration:.1f} ms "
          f"({min(plain):.1f} .. {max(plain):.1f}); with the profiler {profiled:.1f} ms")  # fmt: skip
    heads = "".join(f"{phase + ' ms':>12}" for phase in PHASES)
    print(f"\n{'':<30}{heads}{'both ms':>10}{'share':>8}  most of it")
    by_group = {group: sum(times.get((phase, group), 0.0) for phase in PHASES) for group in operators}
    for group in sorted(by_group, key=lambda group: -by_group[group]):
        parts = [iteration * times.get((phase, group), 0.0) / total for phase in PHASES]
        most = [] if group in (PYTHON, *PLACES) else operators[group].most_common(3)
        names = ", ".join(f"{name.rpartition('::')[2]} {iteration * spent / total:.1f}" for name, spent in most)
        print(f"{group:<30}" + "".join(f"{part:>12.1f}" for part in parts)
              + f"{sum(parts):>10.1f}{100 * by_group[group] / total:>7.1f}%  {names}")  # fmt: skip
    whole_phases = [iteration * sum(t for (phase, _), t in times.items() if phase == p) / total for p in PHASES]
    print(f"{'all':<30}" + "".join(f"{part:>12.1f}" for part in whole_phases) + f"{iteration:>10.1f}{100:>7.1f}%")
    return 0


if __name__ == "__main__":
    run_program(main)
