"""`.ci/run` makes Weave's environment anew where it was half made or its requirements changed, and only then."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from whole_runs import ROOT


def test_an_environment_is_whole_and_of_these_requirements(tmp_path: Path) -> None:
    for directory in (".ci", "scripts", "bin", ".venv-weave/bin"):
        (tmp_path / directory).mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    for program in ("scripts/test.sh", "bin/apt-get", "bin/sudo"):  # what the services need is no part of this
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    requirements, environment = tmp_path / "requirements-weave.txt", tmp_path / ".venv-weave"
    os.symlink(sys.executable, environment / "bin" / "python")  # an earlier try ended before pip was there

    def made() -> int:
        variables = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHON": sys.executable}
        subprocess.run([str(tmp_path / ".ci" / "run")], env=variables, check=True, capture_output=True, timeout=120)
        return (environment / "bin" / "pip").stat().st_ino

    requirements.write_text("# nothing\n")
    whole = made()
    (environment / "left").touch()
    assert made() == whole and (environment / "left").exists()
    requirements.write_text("# nothing either\n")
    made()
    assert not (environment / "left").exists()
