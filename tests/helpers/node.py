"""Node and the JavaScript libraries of exported pages, for tests."""

import shutil
import subprocess
from pathlib import Path

import pytest
from filelock import FileLock

from tests.conftest import ROOT
from transformer_mt.companions.browser.to_bergamot import ENGINE, VERSION
from transformer_mt.companions.browser.to_browser import npm_packages

NODE = shutil.which("node")


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """The libraries, installed once into build/; the test is skipped where npm cannot do that."""
    folder = ROOT / "build" / "npm"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        if not (folder / "node_modules" / ENGINE).is_dir():
            npm = shutil.which("npm")
            if NODE is None or npm is None:
                pytest.skip("there is no Node; install the packages nodejs and npm")
            command = [
                npm,
                "install",
                "--prefix",
                str(folder),
                "--ignore-scripts",
                *npm_packages(),
                f"{ENGINE}@{VERSION}",
            ]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"npm could not install the libraries: {done.stderr[-300:]}")
    return folder / "node_modules"
