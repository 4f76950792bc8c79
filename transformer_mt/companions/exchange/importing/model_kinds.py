"""Kind of a model folder, recognised by its files alone."""

from pathlib import Path

MODEL_BIN = "model.bin"


def is_public(folder: Path) -> bool:
    """True if a public model is there: in the layout of the Hugging Face hub, or as Marian, CTranslate2's
    converters or Argos Translate write it.
    """
    if (folder / "config.yaml").exists():
        return False
    return (folder / "config.json").exists() or is_ctranslate2(folder) or is_marian(folder)


def is_marian(path: Path) -> bool:
    """True if the path is a file of Marian's or a folder with one."""
    return (path.suffix == ".npz" and path.is_file()) or (path.is_dir() and any(path.glob("*.npz")))


def is_ctranslate2(folder: Path) -> bool:
    """True if the folder holds a model of CTranslate2 that is not an export of this project."""
    return (ctranslate2_inside(folder) / MODEL_BIN).exists() and not (folder / "export.json").exists()


def ctranslate2_inside(folder: Path) -> Path:
    """Folder of the model: inside an Argos package, a subfolder."""
    return folder if (folder / MODEL_BIN).exists() else folder / "model"
