"""What is installed from a wheel is the whole package."""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built from a copy: building writes beside the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*command, "--wheel-dir", folder, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_a_wheel_holds_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    source = ROOT / "src"
    files = {str(path.relative_to(source)) for path in (source / "mixveil").rglob("*") if path.is_file()}
    wanted = {name for name in files if "__pycache__" not in name}
    assert len(wanted) > 300 and wanted == {name for name in wheel.namelist() if name.startswith("mixveil/")}


def test_a_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    told = {name.rsplit("/", 1)[1]: wheel.read(name).decode() for name in wheel.namelist() if ".dist-info/" in name}
    about = email.message_from_string(told["METADATA"])
    assert (about["Name"], about["Version"]) == ("mixveil", PROJECT["version"])
    assert about["License-Expression"] == "Apache-2.0" and "LICENSE" in told
    assert "Programming Language :: Python :: 3.11" in about.get_all("Classifier", [])
    assert "mixveil = mixveil.cli.main:main" in told["entry_points.txt"]


def test_citation_and_changelog_are_of_this_version() -> None:
    version = PROJECT["version"]
    assert re.search(rf"^version: {re.escape(version)}$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()
