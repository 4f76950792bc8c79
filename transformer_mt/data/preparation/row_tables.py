"""Columns of text as the bytes of a file."""

from collections.abc import Mapping
from typing import Any

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
