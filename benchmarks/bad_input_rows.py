"""Every bad input of ``bad_input.py``: which program, which words, what must be there before, what the answer names."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pickle
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandbox import ROOT, Row, run

CASES = "tests/cases/config"
# The least there is to train: two iterations of ten steps
LEAST = ("--num_envs", "2", "--rollout_length", "5", "--total_env_steps", "20", "--eval_episodes", "1",
         "--final_eval_episodes", "1", "--hidden_size", "4", "--num_workers", "0",
         "--log_eval_episodes", "0")  # fmt: skip
TINY = (*LEAST, "--log_wandb", "false", "--logger", "console")
ROWS: list[Row] = []
KINDS = {  # runs to spoil, made once: `base`, and others that differ from it in one thing
    "base": (),
    "agents": ("--num_agents", "2"),
    "ratio": ("--local_ratio", "0.25"),
    "wide": ("--hidden_size", "8"),
    "gru": ("--network", "gru"),
    "copies": ("--num_envs", "4"),
    "mlp": ("--network", "mlp"),
}


def build(kind: str, bench: Path) -> None:
    """Make the run ``bench/{kind}`` for rows to spoil."""
    words = KINDS[kind]
    kept = [pair for pair in zip(TINY[::2], TINY[1::2]) if pair[0] not in words]
    box = bench / f"making-{kind}"
    box.mkdir()
    os.chdir(box)
    argv = (*(word for pair in kept for word in pair), *words, "--group", "g", "--experiment_name", "run")
    outcome = run(Row("", argv, ()), box)
    if outcome.code:
        raise RuntimeError(f"the run {kind} failed: {outcome.err}")
    shutil.move(box / "runs" / "NAVRL" / "g" / "run", bench / kind)
    shutil.rmtree(bench / kind / "code", ignore_errors=True)


def row(section: str, *words: str, names: str | tuple[str, ...] = (), **rest: Any) -> None:
    if rest.get("prepare") in (full_disk, read_only) and os.geteuid() != 0:
        return  # only root can mount a small disk
    ROWS.append(Row(section, words, (names,) if isinstance(names, str) else names, **rest))


def tiny(*words: str, **rest: Any) -> None:
    """A row on top of the words of the least run, which the table leaves out."""
    row(*words, base=TINY, **rest)


def least(*words: str, **rest: Any) -> None:
    """The same, with the trackers left as they are."""
    row(*words, base=LEAST, **rest)


# ---- what rows find in their directory


def file(name: str, data: str | bytes) -> Callable[[], None]:
    return lambda: Path(name).write_bytes(data.encode() if isinstance(data, str) else data)


def take(kind: str = "base", to: str = "run") -> Path:
    return Path(shutil.copytree(f"../{kind}", to))


def spoiled(part: str, data: str | bytes | None) -> Callable[[], None]:
    """The base run with one file replaced, or (None) without it."""

    def prepare() -> None:
        path = take() / part
        if data is not None:
            path.write_bytes(data.encode() if isinstance(data, str) else data)
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()

    return prepare


def with_line(part: str, line: str, at: int | None = None) -> Callable[[], None]:
    """The base run with one more line in a file: at its end, or before line ``at``."""

    def prepare() -> None:
        path = take() / part
        lines = path.read_text().splitlines()
        lines.insert(len(lines) if at is None else at, line)
        path.write_text("\n".join(lines) + "\n")

    return prepare


def index(change: Callable[[dict[str, Any]], Any]) -> Callable[[], None]:
    def prepare() -> None:
        path = take() / "checkpoints" / "index.json"
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    return prepare


def state(change: Callable[[dict[str, Any]], Any], to: str = "policy.pt") -> Callable[[], None]:
    """The base run's checkpoint, changed and saved again, away from its index."""

    def prepare() -> None:
        import torch

        content = torch.load(newest(Path("../base")), weights_only=True)
        changed = change(content)
        torch.save(content if changed is None else changed, to)

    return prepare


def without(part: str) -> Callable[[], None]:
    return state(lambda content: {name: value for name, value in content.items() if name != part})


def newest(run_dir: Path) -> Path:
    return sorted((run_dir / "checkpoints").glob("*.pt"))[-1]


def damaged(change: Callable[[bytearray], bytes | bytearray | None], to: str = "policy.pt") -> Callable[[], None]:
    def prepare() -> None:
        data = bytearray(newest(Path("../base")).read_bytes())
        Path(to).write_bytes(change(data) or data)

    return prepare


def in_run(change: Callable[[bytearray], bytes | bytearray | None]) -> Callable[[], None]:
    """The base run whose newest checkpoint is damaged; there is no other one."""

    def prepare() -> None:
        path = newest(take())
        data = bytearray(path.read_bytes())
        path.write_bytes(change(data) or data)

    return prepare


def flip(part: float) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[int(part * (len(data) - 1))] ^= 16

    return change


def zipped(members: dict[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return data.getvalue()


def lying_zip() -> bytes:
    """A zip whose directory says that its one member unpacks to almost 4 GiB, twice."""
    data = bytearray(zipped({"a/data.pkl": b"x", "a/data/0": b"y"}))
    at = -1
    while (at := data.find(b"PK\x01\x02", at + 1)) >= 0:  # the entries of the directory
        data[at + 24 : at + 28] = b"\xf0\xff\xff\xff"
    return bytes(data)


class Touch:
    """Unpickled, it makes the file ``owned``."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mknod, ("owned",))


def hostile(wrapped: bool) -> Callable[[], None]:
    def prepare() -> None:
        import torch

        content = {"format": 1, "config": "", "x": Touch()}
        if wrapped:
            torch.save(content, "policy.pt")
        else:
            Path("policy.pt").write_bytes(pickle.dumps(content))

    return prepare


class Held:
    """Another process's lock on the run ``run``, as far as this one can tell."""

    def __init__(self) -> None:
        take()
        self.descriptor = os.open("run/.lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)
        os.pwrite(self.descriptor, b"4242 on elsewhere\n", 0)

    def release(self) -> None:
        os.close(self.descriptor)


def full_disk() -> None:
    """``disk`` takes not one byte more."""
    Path("disk").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "disk"], check=True)
    with open("disk/filler", "wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            pass


def read_only() -> None:
    Path("disk").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", "disk"], check=True)


# ---- the rows

SECTION = "Configuration files (tests/cases)"
CASE_NAMES = {
    "alias_bomb": "anchors and aliases", "bom_crlf_utf8": "对比实验", "duplicate_key": "given twice, on lines",
    "empty": "every key takes its default", "env_key_the_task_lacks": "no such key", "key_in_config": "WANDB_API_KEY",
    "latin1_bytes": "is not UTF-8", "leading_zero_seed": "leading zero", "list_at_top": "the file holds a list",
    "minibatch_does_not_divide": "mini_batch_size 999", "minibatch_larger_than_batch": "each epoch is one minibatch",
    "missing_device": "is not on this machine; there is", "nan_and_inf": "is not allowed",
    "nested_where_flat": "keys are not nested", "numbers_as_people_write_them": "run runs",
    "only_comments": "every key takes its default", "out_of_range": "is not allowed",
    "placeholder_entity": "is still the sample value", "python_tag": "tags (!...) are refused",
    "seed_beyond_64_bits": "seed", "tab_indent": "begins with a tab", "unknown_keys": "there is no such key; nearest",
    "unknown_task": "there is no task", "unknown_tracker": "logger", "wrong_types": "is not allowed",
}  # fmt: skip
GOOD = {"bom_crlf_utf8", "empty", "minibatch_does_not_divide", "minibatch_larger_than_batch",
        "numbers_as_people_write_them", "only_comments", "placeholder_entity"}  # fmt: skip
SECRET = "0123456789abcdef0123456789abcdef01234567"
for case in sorted(path.stem for path in (ROOT / CASES).iterdir()):
    good = case in GOOD
    row(SECTION, "--config", str(ROOT / CASES / f"{case}.yaml"), base=TINY if good else (), names=CASE_NAMES[case],
        code=0 if good else 2, writes=good, hidden=(SECRET,), label=f"{case}.yaml")  # fmt: skip

SECTION = "Other configuration files"
for label, text, word in (
    ("UTF-16", "seed: 1\n".encode("utf-16"), "is not UTF-8"),
    ("a NUL character", "seed: 1\n\0\n", "character #x0000"),
    ("a control character", "group: a\x07b\n", "character #x0007"),
    ("two documents", "seed: 1\n---\nseed: 2\n", "line 2"),
    ("an unclosed quote", "group: 'x\n", "line"),
    ("an unclosed bracket", "logger: [console\n", "line"),
    ("ten levels of aliases of ten", "".join(f"k{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10 if i else ['x'] * 10)}]\n"
                                             for i in range(10)), "anchors and aliases"),
    ("a merge key", "<<: {seed: 1}\n", "not nested"),
    ("values nested 5000 deep", "seed: " + "[" * 5000, "nested this deep"),
    ("an object to be made", "seed: !!python/object/apply:os.mknod [owned]\n", "tags (!...) are refused"),
    ("a checkpoint", b"PK\x03\x04" + bytes(200), "line"),
    ("two megabytes", "#" * (2 << 20), "larger than"),
    ("a number beyond every float", "lr: 1e400\n", "lr"),
    ("a number of 2000 digits", "seed: " + "9" * 2000 + "\n", "digits is beyond any range"),
    ("a key that is a list", "? [a]\n: 1\n", "a key must be a word"),
    ("yes for true", "curriculum: yes\n", "write true"),
    ("None for null", "wandb_group: 1\nmini_batch_size: None\n", "nothing is written null"),
    ("a key of another project", "n_rollout_threads: 8\n", "num_envs"),
    ("two thousand unknown keys", "".join(f"key{i}: 1\n" for i in range(2000)), "no configuration file"),
    ("a key of W&B", f"wandb_name: {SECRET}\n", "WANDB_API_KEY"),
    ("a password in an address under a wrong key", "proxy: http://me:hunter2@host:1\n", "there is no such key"),
):  # fmt: skip
    row(SECTION, "--config", "c.yaml", names=word, prepare=file("c.yaml", text), label=label,
        hidden=(SECRET, "hunter2"))  # fmt: skip
row(SECTION, "--config", "no/such.yaml", names="there is no such file")
row(SECTION, "--config", ".", names="this is a directory")
row(SECTION, "--config", "/dev/zero", names="larger than")
row(SECTION, "--config", "loop", names="cannot be read", prepare=lambda: os.symlink("loop", "loop"))
row(SECTION, "--config", "x" * 300, names="cannot be read")

SECTION = "Command line"
for words, word in (
    (("--lrr", "3"), "nearest: --lr"),
    (("--learning-rate", "3"), "nearest: --lr"),
    (("--lr", "abc"), "lr"),
    (("--lr",), "needs a value"),
    (("--lr=",), "lr"),
    (("--lr", "1", "--lr", "2"), "given twice"),
    (("--lr", "nan"), "lr"),
    (("--lr", "inf"), "lr"),
    (("--lr", "-1e-3"), "lr"),
    (("--lr", "010"), "leading zero"),
    (("--gamma", "1.5"), "gamma"),
    (("--seed", "1.5"), "seed"),
    (("--seed", "-1"), "seed"),
    (("--seed", "18446744073709551616"), "seed"),
    (("--num_agents", "0"), "num_agents"),
    (("--num_envs", "1e3"), "write 1000"),
    (("--hidden_size", "x" * 5000), "hidden_size"),
    (("--network", "entity", "--hidden_size", "18"), "multiple of 4"),
    (("--network", "gru", "--chunk_length", "7"), "does not divide"),
    (("--network", "mpl"), "nearest to 'mpl': mlp"),
    (("--layer_norm",), "mlp or gru"),
    (("--curriculum_advance_at", "100"), "needs curriculum: true"),
    (("--curriculum", "--curriculum_advance_at", "200,100"), "curriculum_advance_at"),
    (("--log_wandb", "perhaps"), "log_wandb"),
    (("--no_log_wandb", "true"), "takes no value"),
    (("--no_lr",), "--no_lr"),
    (("--logger", "consle"), "nearest to 'consle': console"),
    (("--logger", "[console"), "not a list in brackets"),
    (("--logger", "console", "console"), "logger"),
    (("--trace", "wave"), "nearest to 'wave': weave"),
    (("--trace", "mlflow"), "needs mlflow in logger"),
    (("--privacy", "strict", "--wandb_mode", "online", "--log_wandb"), "refused with privacy: strict"),
    (("--device", "gpu"), "cpu, cuda or cuda:N"),
    (("--device", "cuda:99"), "there is: cpu"),
    (("--wandb_proxy", "host:80"), "an address like"),
    (("--wandb_api_key", SECRET), "WANDB_API_KEY"),
    (("--wandb_entity", SECRET), "WANDB_API_KEY"),
    (("word",), "belongs to no flag"),
    (("configs/train/train_mpe.yaml",), "given as --config FILE"),
    (("-lr", "3"), "belongs to no flag"),
    (("--config",), "takes one path"),
    (("--config", "a", "--config", "b"), "given twice"),
    (("--config", "a b.yaml", "c.yaml"), "takes one path"),
    (("--group", "   "), "text that is not empty"),
    (("--run_dir", ""), "run_dir"),
    (("--if_exists", "replace"), "if_exists"),
    (("--named_keys", "seed2"), "named_keys"),
):  # fmt: skip
    row(SECTION, *words, names=word, hidden=(SECRET,))
for words in (
    ("--logger", '["console"]', "--no_log_wandb"),
    ("--logger", "console,tensorboard", "--log_wandb", "0"),
    ("--logger", "console", "tensorboard", "--log_wandb=false"),
    ("--logger=console", "--log_wandb", "False"),
):
    least(SECTION, *words, names="run runs", code=0, writes=True, label="a form that people use")

SECTION = "Names of runs"
for name in ("a/b", "../../x", ".", "..", "n" * 300, "con", "trailing ", "🙂", "%s", "a\nb", "-x", "~", "a\\b",
             "\u202ea"):  # fmt: skip
    tiny(SECTION, f"--experiment_name={name}", f"--group={name}", names="run runs/NAVRL/", code=0, writes=True,
        label="stays within runs/NAVRL")  # fmt: skip

SECTION = "Tasks"
for words, word in (
    (("--env_id", "simple_sprad"), "did you mean simple_spread"),
    (("--env_id", "simple_tag"), "use env_backend: mpe2"),
    (("--env_id", "simple_tag", "--env_backend", "mpe2", "--local_ratio", "0.5"), "simple_tag has no such setting"),
    (("--env_id", "simple_tag", "--env_backend", "mpe2", "--network", "entity"), "use mlp or gru"),
    (("--env_backend", "mpe3"), "env_backend"),
    (("--env_id", "pettingzoo:no.such:thing"), "importing no.such failed"),
    (("--env_id", "pettingzoo:toy_tasks:no_such"), "has no function no_such"),
    (("--env_id", "pettingzoo:"), "is not of the form"),
    (("--env_id", "pettingzoo:a:b:c"), "is not of the form"),
    (("--env_id", "pettingzoo:../../x:f"), "importing ../../x failed"),
    (("--env_id", "pettingzoo:toy_tasks:guess", "--env_backend", "batched"), "batched has no version"),
    (("--env_id", "pettingzoo:toy_tasks:guess", "--num_agents", "4"), "num_agents"),
    (("--env_id", "pettingzoo:toy_tasks:raises_at_second_reset", "--network", "mlp"), "a bug in reset"),
    *((("--env_id", f"pettingzoo:toy_envs:{name}", "--network", "mlp"), name) for name in (
        "observes_dict", "observes_image", "acts_multi_discrete", "acts_mixed", "acts_unbounded",
        "acts_in_different_bounds", "late_agent", "broken_constructor")),
):  # fmt: skip
    tiny(SECTION, *words, names=("env_" if "env_" in word else words[1], word)[1:])
BROKEN = {
    "shape": "observation has shape", "dtype": "observation has dtype", "nan observation": "observation is not finite",
    "nan reward": "reward is not finite", "text reward": "reward 'lots' is not a number",
    "raise": "step raised KeyError", "exit": "step raised SystemExit", "hang": "no answer within",
    "killed": "was killed by SIGKILL", "exit now": "ended with exit code 7", "agent dies": "agent_1",
    "agent vanishes": "is gone from the running episode", "agent appears": "agent_2",
}  # fmt: skip
for fault, word in BROKEN.items():
    own = ("--num_workers", "1", "--worker_timeout", "0.5") if fault in ("hang", "killed", "exit now", "exit") else ()
    base = tuple(word for pair in zip(TINY[::2], TINY[1::2]) if pair[0] not in own for word in pair)
    row("Tasks that break while they run", "--env_id", "pettingzoo:broken:task", "--network", "mlp", *own, base=base,
        names=("EnvironmentFault: broken:task, copy", word), code=1, writes=True, label=fault,
        env={"PYTHONPATH": f"{{box}}:{ROOT}:{ROOT / 'tests'}"},
        prepare=file("broken.py", f"import toy_envs\n\n\ndef task():\n    return toy_envs.faulty({fault!r})\n"))  # fmt: skip

SECTION = "Checkpoint files"
POLICY = ("--checkpoint", "policy.pt", "--episodes", "1")
HERE = dict(program="scripts/evaluate.py")
for label, prepare, word in (
    ("nothing there", None, "no such file"),
    ("empty", file("policy.pt", b""), "truncated, damaged or no checkpoint at all"),
    ("text", file("policy.pt", "hello\n" * 50), "truncated, damaged or no checkpoint at all"),
    ("a picture", file("policy.pt", b"GIF89a" + bytes(100)), "truncated, damaged or no checkpoint at all"),
    ("a zip of something else", file("policy.pt", zipped({"a.txt": b"x"})), "no checkpoint at all"),
    ("a zip with a path out of it", file("policy.pt", zipped({"../../owned": b"x", "a/data.pkl": b"x"})),
     "no checkpoint at all"),
    ("a zip bomb, 200 MB in 200 kB",
     lambda: Path("policy.pt").write_bytes(zipped({"a/data/0": bytes(200 << 20)})), "no checkpoint at all"),
    ("a zip that says it unpacks to 8 GiB", file("policy.pt", lying_zip()), "unpacks to more than 4 GiB"),
    ("a pickle that runs code", hostile(False), "no checkpoint at all"),
    ("a torch file that runs code", hostile(True), "NAVRL did not write it"),
    *((f"cut after {share:.0%}", damaged(lambda data, share=share: data[: int(share * len(data))]), "damaged")
      for share in (0.01, 0.25, 0.5, 0.9, 0.999)),
    *((f"one bit flipped at {share:.0%}", damaged(flip(share)), "policy.pt") for share in (0.0, 0.95)),
    ("the end of another file", damaged(lambda data: data[:-400] + data[:400]), "damaged"),
    ("another project's", state(lambda content: {"model": content["config"]}), "not a checkpoint of NAVRL"),
    ("a list", state(lambda content: [1, 2]), "not a checkpoint of NAVRL"),
    ("no format", without("format"), "not a checkpoint of NAVRL"),
    ("a newer format", state(lambda content: content.update(format=99)), "format 99 is newer"),
    ("a format that is no number", state(lambda content: content.update(format="1")), "not a checkpoint of NAVRL"),
    ("format 0, which there never was", state(lambda content: content.update(format=0)), "formats 1 to"),
    ("without its configuration", without("config"), "not a checkpoint of NAVRL"),
    ("a configuration that is no text", state(lambda content: content.update(config=3)), "not a checkpoint of NAVRL"),
    ("a configuration with a bomb", state(lambda content: content.update(config="a: &x [1]\nb: *x\n")), "anchors"),
    ("a configuration of other keys", state(lambda content: content.update(config="speed: 3\n")), "cannot be used"),
    ("without its parameters", without("runner"), "its parameters are missing"),
    ("parameters that are no tensors", state(lambda content: content["runner"].update(algorithm=7)),
     "its parameters are"),
    ("a tensor of another shape", state(lambda content: content["runner"]["algorithm"]["actor"].update(
        {next(iter(content["runner"]["algorithm"]["actor"])): content["runner"]["starts"]})), "does not fit"),
):  # fmt: skip
    row(SECTION, *POLICY, names=word, prepare=prepare, label=label, **HERE)
for words, kind, word in (
    (("--continuous_actions", "true"), "base", "action discrete (5) in the checkpoint, continuous (5) in the task"),
    (("--num_agents", "5"), "mlp", "observation sizes"),
    (("--num_agents", "0"), "base", "num_agents"),
    (("--lr", "1"), "base", "settings of the task only"),
    (("--env_id", "simple_tag"), "base", "settings of the task only"),
    (("--curriculum",), "base", "plays the whole task"),
    (("--which", "first"), "base", "--which: invalid choice: 'first'"),
):  # fmt: skip
    row(SECTION, "--checkpoint", "run", "--episodes", "1", *words, names=word, label=f"a good run ({kind})",
        prepare=lambda kind=kind: take(kind), **HERE)  # fmt: skip
for label, prepare, word in (
    ("a run without checkpoints", spoiled("checkpoints", None), "holds no checkpoint"),
    ("a run whose index is damaged", spoiled("checkpoints/index.json", "{"), "index.json: damaged"),
    ("an index that points elsewhere", index(lambda content: content["checkpoints"][0].update(file="../../x.pt")),
     "index.json: damaged"),
    ("an index whose best is a path", index(lambda content: content.update(best="/etc/passwd")), "index.json: damaged"),
    ("an index of another digest", index(lambda content: content["checkpoints"][-1].update(sha256="0" * 64)),
     "SHA-256"),
    ("a run whose checkpoint was cut", in_run(lambda data: data[:-10]), "damaged"),
    ("a run whose checkpoint has a flipped bit", in_run(flip(0.5)), "damaged"),
):  # fmt: skip
    row(SECTION, "--checkpoint", "run", "--episodes", "1", names=word, prepare=prepare, label=label, **HERE)
for checkpoint, word in (
    ("", "'' is no path"), (".", "holds no checkpoint"), ("/tmp", "holds no checkpoint"), ("x" * 300, "checkpoint"),
    ("wandb:", "wandb:"), ("wandb:../../etc/passwd", "wandb:"), ("wandb:a/b/c:d:e", "wandb:"),
):  # fmt: skip
    row(SECTION, "--checkpoint", checkpoint, "--episodes", "1", names=word, **HERE)

SECTION = "evaluate.py"
for words, word in (
    ((), "--checkpoint --policy --cross_play is required"),
    (("--policy", "clever"), "--policy: invalid choice: 'clever'"),
    (("--policy", "random", "--checkpoint", "x"), "checkpoint: x: no such file"),
    (("--policy", "random", "random"), "--policy: one is given twice"),
    (("--policy", "random", "greedy", "--render", "a.gif"), "--render: an animation is of one policy"),
    (("--policy", "random", "--num_agents", "3", "0"), "num_agents"),
    (("--cross_play", "x"), "--cross_play: one run has nobody to play with"),
    (("--cross_play", "x", "x"), "checkpoint: x is given twice"),
    (("--cross_play", "x", "y", "--policy", "random"), "leave --checkpoint and --policy out"),
    (("--cross_play", "x", "y", "--episodes", "1"), "--cross_play needs --episodes of at least 2"),
    (("--policy", "random", "--episodes", "x"), "--episodes: 'x' is not a whole number"),
    (("--policy", "random", "--episodes", "0"), "--episodes: '0' is not a whole number"),
    (("--policy", "random", "--seed", "-1"), "--seed: '-1' is not a whole number"),
    (("--policy", "random", "--seed", str(2**63)), "--seed"),
    (("--policy", "random", "--json", "no/such/x.json"), "json: no/such/x.json"),
    (("--policy", "random", "--json", "/dev/null"), "json: '/dev/null' is not the name of a file"),
    (("--policy", "random", "--json", "/proc/x.json"), "json: /proc/x.json"),
    (("--policy", "random", "--csv", "."), "csv: '.' is not the name of a file"),
    (("--policy", "random", "--csv", ""), "csv: '' is not the name of a file"),
    (("--policy", "random", "--render", "out.png"), "an animation is a .gif"),
    (("--policy", "random", "--backend", "gym"), "--backend"),
    (("--policy", "random", "--episods", "1"), "--episods"),
    (("--policy", "random", "word"), "word"),
    (("--policy", "greedy", "--env_id", "simple_tag"), "plays simple_spread"),
    (("--policy", "random", "--env_id", "simple_sprad"), "did you mean simple_spread"),
    (("--policy", "random", "--env_id", "simple_tag", "--backend", "batched"), "backend"),
    (("--policy", "random", "--env_id", "pettingzoo:toy_tasks:guess", "--backend", "pettingzoo", "--render", "a.gif"),
     "does not say where its agents are"),
):  # fmt: skip
    row(SECTION, *words, names=word, program="scripts/evaluate.py")
row(SECTION, "--policy", "random", "--episodes", "1", "--json", "disk/x.json", names="disk/x.json", label="a full disk",
    prepare=full_disk, code=1, program="scripts/evaluate.py")  # fmt: skip
row(SECTION, "--policy", "random", "--episodes", "1", "--csv", "disk/x.csv", names="csv: disk/x.csv",
    label="a read-only directory", prepare=read_only, program="scripts/evaluate.py")  # fmt: skip
row(SECTION, "--policy", "random", "--episodes", "2", "--env_id", "pettingzoo:broken:task", "--backend", "pettingzoo",
    names="EnvironmentFault: broken:task, copy", code=1, label="a task that breaks", program="scripts/evaluate.py",
    prepare=file("broken.py", "import toy_envs\n\n\ndef task():\n    return toy_envs.faulty('nan reward')\n"),
    env={"PYTHONPATH": f"{{box}}:{ROOT}:{ROOT / 'tests'}"})  # fmt: skip

SECTION = "Resume"
ON = dict(names="run directory    run", code=0, writes=True)  # it goes on
for label, prepare, word in (
    ("nothing there", None, "--resume takes the directory of a run"),
    ("a file", file("run", "x"), "--resume takes the directory of a run"),
    ("an empty directory", lambda: Path("run").mkdir(), "--resume takes the directory of a run"),
    ("config.yaml lost", spoiled("config.yaml", None), "config.yaml"),
    ("config.yaml empty", spoiled("config.yaml", ""), "run"),
    ("config.yaml cut in a line", spoiled("config.yaml", "env_id: simple_spread\nnum_ag"), "config.yaml"),
    ("config.yaml binary", spoiled("config.yaml", bytes(range(256))), "config.yaml"),
    ("config.yaml of other keys", spoiled("config.yaml", "speed: 3\n"), "there is no such key"),
    ("config.yaml of another number of agents", spoiled("config.yaml", "num_agents: 2\n"), "run"),
    ("a damaged line in metrics.jsonl", with_line("metrics.jsonl", "{half", 1), "line 2 is damaged"),
    ("a row without a step", with_line("metrics.jsonl", '{"step": "x"}'), "has no whole-number step"),
    ("a row whose step is true", with_line("metrics.jsonl", '{"step": true}'), "has no whole-number step"),
    ("a damaged line in the journal", with_line("tracking/events.jsonl", "\x00\x01", 1), "line 2 is damaged"),
    ("metrics.jsonl a directory",
     lambda: [spoiled("metrics.jsonl", None)(), Path("run/metrics.jsonl").mkdir()], "metrics.jsonl"),
    ("index.json damaged", spoiled("checkpoints/index.json", "{"), "index.json: damaged"),
    ("index.json of a list", spoiled("checkpoints/index.json", "[]"), "index.json: damaged"),
    ("index.json points elsewhere", index(lambda content: content["checkpoints"][0].update(file="../../x.pt")),
     "index.json: damaged"),
    ("the only checkpoint is empty", in_run(lambda data: b" "), "no checkpoint that can be used"),
    ("the only checkpoint was cut", in_run(lambda data: data[:-10]), "no checkpoint that can be used"),
    ("the only checkpoint has a flipped bit", in_run(flip(0.3)), "no checkpoint that can be used"),
    ("the only checkpoint is gone", lambda: newest(take()).unlink(), "no checkpoint that can be used"),
    *((f"the checkpoint of another run ({kind})",
       lambda kind=kind: [take(), shutil.rmtree("run/checkpoints"),
                          shutil.copytree(f"../{kind}/checkpoints", "run/checkpoints")], word)
      for kind, word in (("agents", "another task: its agents"), ("ratio", "another task: its settings"),
                         ("wide", "another size or network"), ("gru", "another size or network"),
                         ("copies", "another size or network"))),
):  # fmt: skip
    row(SECTION, "--resume", "run", names=word, prepare=prepare, label=label)
for words, word in (
    (("--lr", "1"), "cannot become 1"),
    (("--seed", "9"), "cannot become 9"),
    (("--num_agents", "2"), "num_agents"),
    (("--group", "other"), "cannot become 'other'"),
    (("--total_env_steps", "10"), "is less than the 20 steps already trained"),
    (("--config", "x.yaml"), "leave out --config"),
    (("--resume", "other"), "given twice"),
):
    row(SECTION, "--resume", "run", *words, names=word, prepare=take, label="a good run")
row(SECTION, "--resume", "run", names="in use by another process (pid 4242", prepare=Held, label="a live run")
row(SECTION, "--resume", "", names="resume")
for label, prepare in (
    ("metadata.json lost", spoiled("metadata.json", None)),
    ("metadata.json cut", spoiled("metadata.json", '{"segments": [')),
    ("metadata.json whose segments are words", spoiled("metadata.json", '{"segments": "abc"}')),
    ("summary.json lost", spoiled("summary.json", None)),
    ("summary.json damaged", spoiled("summary.json", "[")),
    ("summary.json of another shape", spoiled("summary.json", '{"artifacts": [{"file": "a"}, 3]}')),
    ("metrics.jsonl lost", spoiled("metrics.jsonl", None)),
    ("metrics.jsonl torn in its last line", with_line("metrics.jsonl", '{"step": 30, "ti')),
    ("the journal lost", spoiled("tracking/events.jsonl", None)),
    ("an attempt without uid in the journal", spoiled("tracking/events.jsonl", '{"event": "attempt"}\n')),
    ("tracking/run.json damaged", spoiled("tracking/run.json", "[]")),
    ("tracking/ lost", spoiled("tracking", None)),
    ("checkpoints/ lost", spoiled("checkpoints", None)),
    ("media/ lost", spoiled("media", None)),
    ("code.diff lost", spoiled("code.diff", None)),
):  # fmt: skip
    row(SECTION, "--resume", "run", prepare=prepare, label=f"goes on: {label}", **ON)

SECTION = "Places"
tiny(SECTION, "--run_dir", "taken", names="run_dir: cannot write", prepare=file("taken", "mine"), label="a file")
tiny(SECTION, "--run_dir", "/proc/navrl", names="run_dir: cannot write")
tiny(SECTION, "--run_dir", "d/" + "x" * 300, names="run_dir: cannot write")
tiny(SECTION, "--run_dir", "disk/runs", names="run_dir: cannot write", prepare=read_only, label="read-only")
tiny(SECTION, "--run_dir", "disk/runs", names="run_dir: cannot write", prepare=full_disk, label="a full disk")
tiny(SECTION, names="run_dir: cannot write", env={"NAVRL_RUNS": "taken"}, prepare=file("taken", "mine"))
NAMED = ("--group", "g", "--experiment_name", "run", "--run_dir", "r")


def taken(kind: str = "base") -> Callable[[], None]:
    return lambda: take(kind, "r/NAVRL/g/run")


tiny(SECTION, *NAMED, "--if_exists", "error", names="if_exists: ", prepare=taken(), label="a taken name")
tiny(SECTION, *NAMED, "--if_exists", "resume", "--lr", "0.5", names="cannot become 0.5", prepare=taken(),
    label="a taken name")  # fmt: skip
tiny(SECTION, *NAMED, "--if_exists", "resume", names="if_exists: ", label="a taken name without checkpoint",
    prepare=lambda: [taken()(), newest(Path("r/NAVRL/g/run")).unlink()])  # fmt: skip
tiny(SECTION, *NAMED, "--if_exists", "resume", names="if_exists: ", label="a taken name that is a file",
    prepare=lambda: [Path("r/NAVRL/g").mkdir(parents=True), Path("r/NAVRL/g/run").touch()])  # fmt: skip
tiny(SECTION, *NAMED, names="run_dir: cannot write", label="a group that is a file",
    prepare=lambda: [Path("r/NAVRL").mkdir(parents=True), Path("r/NAVRL/g").touch()])  # fmt: skip


def used_id() -> None:
    path = take(to="r/NAVRL/g/other") / "tracking" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "settings": {"wandb_run_id": "abc"}}))


least(SECTION, *NAMED, "--log_wandb", names="'abc' is already used", env={"WANDB_RUN_ID": "abc"}, prepare=used_id,
    label="another run has this id")  # fmt: skip

SECTION = "Environment variables and locales"
tiny(SECTION, names=("wandb_mode (environment variable WANDB_MODE)",), env={"WANDB_MODE": "onlin"})
tiny(SECTION, names="environment variable SWANLAB_MODE", env={"SWANLAB_MODE": "x"})
tiny(SECTION, names="environment variable WANDB_NAME", env={"WANDB_NAME": SECRET}, hidden=(SECRET,))
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
for words, word in (
    (("--group", "对比实验"), "set LC_ALL=C.UTF-8"),
    (("--experiment_name", "🙂"), "set LC_ALL=C.UTF-8"),
    (("--run_dir", "läufe"), "set LC_ALL=C.UTF-8"),
    (("--config", "größe.yaml"), "there is no such file"),
    (("--größe", "1"), "there is no such flag"),
):
    tiny(SECTION, *words, names=word, env=ASCII, fresh=True)
tiny(SECTION, "--config", "c.yaml", names="set LC_ALL=C.UTF-8", env=ASCII, fresh=True,
    prepare=file("c.yaml", "group: 对比实验\n"), label="a name in the file")  # fmt: skip
tiny(SECTION, "--group", "对比实验", names="run directory    runs/NAVRL/\\u5bf9", env={"PYTHONIOENCODING": "ascii"},
    fresh=True, code=0, writes=True, label="goes on")  # fmt: skip
tiny(SECTION, "--group", "对比实验", names="run directory    runs/NAVRL/对比实验", env={"LC_ALL": "C"}, fresh=True,
    code=0, writes=True, label="goes on")  # fmt: skip
row(SECTION, "--checkpoint", "größe", names="checkpoint", env=ASCII, fresh=True, program="scripts/evaluate.py")

SECTION = "plot.py"
for words, prepare, word in (
    ((), None, "the following arguments are required: paths"),
    (("none",), None, "none: neither a directory nor a group under runs"),
    (("run", "--out", "no/such/x.png"), take, "--out: no/such/x.png"),
    (("run", "--out", "."), take, "--out: '.' is not the name of a file"),
    (("run", "--out", "x.xyz"), take, "'xyz' is not supported"),
    (("run", "--out"), take, "--out: expected one argument"),
    (("run", "--metrics", "eval/rewrd", "--out", "a.png"), take, "no run has a metric eval/rewrd; nearest"),
    (("run", "--metrics"), take, "--metrics"),
    (("run", "--wide"), take, "--wide"),
    (("run", "--out", "a.png"), with_line("metrics.jsonl", "{half", 1), "line 2 is damaged"),
    (("run", "--out", "a.png"), with_line("metrics.jsonl", '{"step": "x"}'), "has no whole-number step"),
    (("run", "--out", "a.png"), spoiled("metrics.jsonl", bytes(range(256))), "holds no row yet"),
):  # fmt: skip
    row(SECTION, *words, names=word, prepare=prepare,
        program="scripts/plot.py")  # fmt: skip

SECTION = "runs.py"
for words, word in (
    (("--where", "learning_rate=1"), "nearest: lr"),
    (("--where", "lr=fast"), "lr: 'fast' is not a number > 0 and <= 1"),
    (("--where", "lr"), "'lr' is no condition; write KEY=VALUE"),
    (("--since", "yesterday"), "'yesterday' is no span or date"),
    (("--status", "dead"), "--status: invalid choice"),
    (("--watch", "--json"), "--json and --watch exclude each other"),
    (("nothing",), "nothing: neither a directory nor the name of a run"),
):
    row(SECTION, *words, names=word, program="scripts/runs.py")

SECTION = "compare.py"
for words, word in (
    ((), "name a GROUP, or a tracker with --from"),
    (("none",), "none: neither a directory nor a group under runs"),
    (("run", "--metric", "eval/rewrd"), "no run has a metric eval/rewrd; nearest"),
    (("run", "--threshold", "eval/success_rate"), "is not METRIC=VALUE, as eval/success_rate=0.8"),
    (("run", "--at", "-1"), "--at: '-1' is not a whole number of at least 0"),
    (("run", "--band", "sem"), "--band: invalid choice: 'sem'"),
    (("run", "--out", "run/config.yaml"), "run/config.yaml is a file; name a directory"),
    (("run", "--out", "no/such/place"), "its directory is not there or cannot be written"),
):
    row(SECTION, *words, names=word, prepare=take if words[:1] == ("run",) else None, program="scripts/compare.py")

SECTION = "compare.py --from"
for source, word in (
    ("mlflow:NAVRL", "names no runs; write mlflow:URI:EXPERIMENT[:GROUP]"),
    ("mlflow:http://127.0.0.1:9:NAVRL", "http://127.0.0.1:9 does not answer"),
    ("mlflow:sqlite:///none.db:NAVRL", "there is no sqlite:///"),
    ("mlflow:ftp://host/x:NAVRL", "is no database and no server"),
    ("wandb:entity", "names no runs; write wandb:ENTITY/PROJECT[:GROUP]"),
    ("runs", "'runs' names no runs"),
):
    row(SECTION, "--from", source, names=word, program="scripts/compare.py")

SECTION = "sync.py"
TO = ("--to", "tensorboard")
for words, prepare, word in (
    ((), None, "the following arguments are required: RUN_DIR, --to"),
    (("run",), take, "--to"),
    (("run", "--to", "wand"), take, "--to: invalid choice: 'wand'"),
    (("none", *TO), None, "no run directory"),
    (("run", "--to", "wandb", "--wandb_mode", "auto"), take, "--wandb_mode: invalid choice"),
    (("run", *TO, "--all"), take, "--all"),
):
    row(SECTION, *words, names=word, prepare=prepare,
        program="scripts/sync.py")  # fmt: skip
for label, prepare, word in (
    ("tracking/run.json lost", spoiled("tracking/run.json", None), "is no run that can be published"),
    ("tracking/run.json cut", spoiled("tracking/run.json", '{"uid": '), "is no run that can be published"),
    ("tracking/run.json a list", spoiled("tracking/run.json", "[]"), "is no run that can be published"),
    ("tracking/run.json of other keys", spoiled("tracking/run.json", '{"a": 1}'), "is no run that can be published"),
):
    row(SECTION, "run", *TO, names=word, prepare=prepare, label=label, code=1, writes=True, program="scripts/sync.py")

SECTION = "run_seeds.sh"
SEEDS = dict(program="scripts/run_seeds.sh", fresh=True)
for words, word in (
    ((), "usage: scripts/run_seeds.sh FIRST LAST"),
    (("1",), "usage: scripts/run_seeds.sh FIRST LAST"),
    (("2", "1"), "FIRST not above LAST"),
    (("a", "2"), "FIRST and LAST are whole numbers"),
    (("-1", "2"), "FIRST and LAST are whole numbers"),
    (("1", "99999999999999999999"), "FIRST and LAST are whole numbers"),
    (("--lr", "1"), "usage: scripts/run_seeds.sh FIRST LAST"),
    (("c.yaml", "one"), "usage: scripts/run_seeds.sh FIRST LAST"),
    (("no.yaml", "1 2"), "no.yaml: there is no such file"),
    (("configs/train/train_mpe.yaml", "1 2 1"), "seed 1 is given twice"),
    (("1", "2", "--seed", "3"), "seeds are the first two arguments"),
    (("1", "2", "--lrr", "3"), "nearest: --lr"),
    (("1", "2", "--config", "no.yaml"), "there is no such file"),
    (("1", "2", "--config"), "--config: needs a file"),
):
    row(SECTION, *words, names=word, **SEEDS)
for jobs in ("0", "two", "-1"):
    row(SECTION, "1", "2", names="JOBS", env={"JOBS": jobs}, **SEEDS)
row(SECTION, "1", "2", "--help", names="usage: scripts/run_seeds.sh FIRST LAST", code=0, **SEEDS)

SECTION = "launch.py"
ONE = ("--config", "c.yaml", "--seeds", "1-2")
for words, word in (
    ((), "the following arguments are required: --config, --seeds"),
    (("--config", "c.yaml"), "--seeds"),
    (("--config", "no.yaml", "--seeds", "1"), "no.yaml: there is no such file"),
    (("--config", "c.yaml", "--seeds", "5-1"), "--seeds: '5-1' is no seed and no range FIRST-LAST"),
    (("--config", "c.yaml", "--seeds", "1,1"), "seed 1 is given twice"),
    (("--config", "c.yaml", "c.yaml", "--seeds", "1"), "two files of one name, or one value twice"),
    ((*ONE, "--set", "lr"), "'lr' is not KEY=VALUE,VALUE,..."),
    ((*ONE, "--set", "lrr=1,2"), "nearest: lr"),
    ((*ONE, "--set", "lr=1e-3,fast"), "'fast' is not allowed"),
    ((*ONE, "--set", "device=cpu,cuda"), "device changes no result"),
    ((*ONE, "--set", "seed=1,2"), "seeds are given by --seeds"),
    ((*ONE, "--jobs", "0"), "--jobs: '0' is not a whole number of at least 1"),
    ((*ONE, "--engine", "cloud"), "--engine: invalid choice: 'cloud'"),
    ((*ONE, "--gpus", "1"), "--cpus and --gpus ask Ray or Slurm for room"),
    ((*ONE, "--lr", "1"), "--lr"),
    ((*ONE, "--", "--lrr", "1"), "nearest: --lr"),
    ((*ONE, "--", "--seed", "3"), "--seed (command line): --seeds decides that"),
    ((*ONE, "--", "--experiment_name", "x"), "experiment_name names every run 'x'; leave it null"),
):
    row(SECTION, *words, names=word, prepare=file("c.yaml", ""), program="scripts/launch.py")
row(SECTION, *ONE, "--", "--run_dir", "c.yaml", names="run_dir: cannot write", prepare=file("c.yaml", ""),
    program="scripts/launch.py")  # fmt: skip
row(SECTION, *ONE, names="WANDB_RUN_ID", prepare=file("c.yaml", ""), env={"WANDB_RUN_ID": "abc"}, program="scripts/launch.py")

SECTION = "measure_reference.py"
for words, word in ((("--episodes", "0"), "--episodes"), (("--num_agents", "x"), "--num_agents"), (("5",), "5")):
    row(SECTION, *words, names=word, program="scripts/measure_reference.py")
