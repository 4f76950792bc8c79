"""The tensors of a model's folder: safetensors, in one file or in several."""

import json
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from transformer_mt.errors import InputError

_FILE = "model.safetensors"
NOT_SAFE = (
    "whose files may hold code that runs when they are read; convert it with transformers: "
    "AutoModelForSeq2SeqLM.from_pretrained(MODEL).save_pretrained(FOLDER), and the same with AutoTokenizer"
)
"""The error of a model that is there in the older form alone."""


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors by their names. InputError if there are none or a file is damaged."""
    if (folder / _FILE).exists():
        return _read(folder / _FILE)
    index = folder / f"{_FILE}.index.json"
    if index.exists():
        files = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        parts = [_read(folder / Path(file).name) for file in sorted(files)]
        return {name: tensor for part in parts for name, tensor in part.items()}
    if (folder / "pytorch_model.bin").exists():
        raise InputError(f"{folder}: must hold {_FILE}, but holds pytorch_model.bin, {NOT_SAFE}")
    raise InputError(f"{folder}: must hold {_FILE}, but does not; download it again")


def _read(file: Path) -> dict[str, Tensor]:
    try:
        return load_file(file)
    except FileNotFoundError:
        raise InputError(f"{file}: is named in the index, but is not there; download it again") from None
    except (SafetensorError, OSError) as error:
        reason = str(error).strip().split("\n")[0][:200]
        raise InputError(f"{file}: must be a file of weights, but is damaged: {reason}") from None
