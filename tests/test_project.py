"""The project's files agree: dependencies stand in three places, and the top level holds what it should."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
TOP = """notebooks vjudge figures tests tools environment.yml README.md pyproject.toml
requirements.lock Makefile LICENSE CITATION.cff CONTRIBUTING.md CHANGELOG.md
.ci .github .gitattributes .gitignore .pre-commit-config.yaml"""
CONDA_NAMES = {"pytorch-cpu": "torch", "matplotlib-base": "matplotlib"}


@pytest.fixture(scope="module")
def project():
    return tomllib.loads(_text("pyproject.toml"))["project"]


def requirements(lines):
    return {canonicalize_name(r.name): r.specifier for r in map(Requirement, lines)}


def every_requirement(project):
    """What `pip install vjudge[dev]` installs: `dev` names other extras by "vjudge[...]"."""
    extras = dict(project["optional-dependencies"])
    own, *dev = extras.pop("dev")
    return requirements(
        project["dependencies"] + dev + [r for e in Requirement(own).extras for r in extras[e]]
    )


def test_lock_satisfies_pyproject(project):
    lock = {}
    for line in re.findall("^[^#].*", _text("requirements.lock"), re.M):
        assert re.fullmatch(r"[\w.-]+==[\w.]+", line), "exact public versions only"
        name, version = line.split("==")
        lock[canonicalize_name(name)] = version
    for name, allowed in every_requirement(project).items():
        assert allowed.contains(lock.get(name, "0")), f"{name} {allowed}: run `make lock`"


def test_environment_agrees_with_pyproject(project):
    environment = yaml.safe_load(_text("environment.yml"))["dependencies"]
    conda = requirements(line for line in environment if isinstance(line, str))
    allowed = every_requirement(project)
    assert conda.pop("python") == SpecifierSet(project["requires-python"])
    assert not str(conda.pop("pip"))
    for name, versions in conda.items():
        assert versions == allowed[CONDA_NAMES.get(name, name)], name
    assert {"pip": ["--editable .[dev]"]} in environment, "the rest comes from pyproject.toml"
    assert {"accelerate", "bitsandbytes"} <= set(allowed), "4-bit judges on a GPU"
    assert re.search(
        r"^ *# *- pytorch-gpu" + re.escape(str(conda["pytorch-cpu"])),
        _text("environment.yml"),
        re.M,
    )


def test_importing_vjudge_asks_for_no_jupyter_since_colab_brings_its_own(project):
    """A newer ipykernel than Colab's can crash the runtime that it is installed in."""
    jupyter = {"ipykernel", "jupyterlab", "papermill", "notebook", "nbformat"}
    assert not jupyter & set(requirements(project["dependencies"]))
    assert {"ipykernel", "jupyterlab", "papermill"} == set(
        requirements(project["optional-dependencies"]["lab"])
    )


def test_the_top_level_holds_the_projects_folders_and_what_tools_need():
    git = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if not git.stdout:
        pytest.skip("not a git checkout")
    assert {Path(name).parts[0] for name in git.stdout.split()} <= set(TOP.split())


def test_no_two_test_files_have_one_name():
    """pytest imports a test file by its name alone, and stops at the second."""
    names = Counter(file.name for file in (ROOT / "tests").rglob("test_*.py"))
    assert not [name for name, n in names.items() if n > 1]


def _text(name):
    return (ROOT / name).read_text(encoding="utf-8")
