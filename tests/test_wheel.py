"""The wheel alone, installed outside the checkout, grades an item.

It proves that the package holds its code and assets and needs nothing of the checkout. Dependencies are those of the
environment that runs the tests, put on the path: that their versions resolve is tested by `make setup`.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import vjudge

ROOT = Path(__file__).parents[1]
GRADE = """
import json
import vjudge as vj
items = vj.load_collection("scenes", split="test", limit=1)
run = vj.load_judge("tiny", device="cpu").grade(items, progress=False)
public = vj.load_verdicts("wildvision")
print(json.dumps([vj.__file__, vj.__version__, run["score"].tolist(), len(public.frame)]))
"""


def ran(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="paths of a POSIX environment")
def test_a_wheel_in_a_fresh_environment_grades_an_item(tmp_path):
    # build from a copy: a build leaves folders where it runs
    source = tmp_path / "source"
    source.mkdir()
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "vjudge", source / "vjudge", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    flags = ("--no-deps", "--no-index", "--no-build-isolation")
    ran(*pip, "wheel", *flags, "--wheel-dir", tmp_path, source)
    (wheel,) = tmp_path.glob("vjudge-*.whl")
    shutil.rmtree(source)

    # a fresh environment, with this one's dependencies behind its own packages
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env/bin/python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "env")}))
    ran(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))

    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HF_HUB_OFFLINE": "1", "HOME": str(tmp_path)}
    printed = ran(python, "-c", GRADE, cwd=tmp_path, env=environment)
    file, version, scores, n_public = json.loads(printed.splitlines()[-1])
    assert Path(file).is_relative_to(site) and version == vjudge.__version__
    assert len(scores) == 1 and scores[0] in (1, 2, 3, 4, 5) and n_public > 1_000
