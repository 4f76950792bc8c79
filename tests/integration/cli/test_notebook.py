"""The notebook, cell by cell."""

import os
import sys

import pytest

from tests.conftest import ROOT


@pytest.mark.slow
def test_the_notebook_goes_from_files_to_a_server(tmp_path, monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    # Its shell commands are those of this environment.
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
    notebook = nbformat.read(ROOT / "docs/notebooks/first_translator.ipynb", as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert "translatedText" in str(notebook.cells[-2].outputs[-1])
    pictures = [out for cell in notebook.cells for out in cell.get("outputs", []) if "image/png" in str(out)]
    assert len(pictures) == 2
    said = "".join(out.get("text", "") for cell in notebook.cells for out in cell.get("outputs", []))
    assert "BLEU" in said and "done: runs/mine" in said
