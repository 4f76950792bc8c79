"""Columns of text, and arrays, as the bytes of a file."""

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow


def text_bytes(columns: Mapping[str, list[Any]]) -> bytes:
    """Columns of equal length."""
    table = pyarrow.table(columns)
    with pyarrow.BufferOutputStream() as stream:
        options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
        with pyarrow.ipc.new_file(stream, table.schema, options=options) as writer:
            writer.write_table(table)
        return stream.getvalue().to_pybytes()


def text_columns(content: bytes) -> dict[str, list[Any]]:
    """The columns that `text_bytes` wrote."""
    return pyarrow.ipc.open_file(content).read_all().to_pydict()


def array_bytes(**arrays: np.ndarray) -> bytes:
    """Arrays by their names."""
    file = BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def arrays_of(content: bytes) -> dict[str, np.ndarray]:
    """The arrays that `array_bytes` wrote."""
    with np.load(BytesIO(content)) as file:
        return dict(file)
