""""""

import gzip
import io
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_mt.errors import InputError
from transformer_mt.text.lines import as_read, read_lines, read_ready, seen_positions
from transformer_mt.translator import ChunkSize


def test_lines_end_at_lf_and_crlf_only(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("one\r\ntwo \u2028 \x0b \x0c \x85 still two\n\nlast".encode())
    assert list(read_lines(path)) == ["one", "two \u2028 \x0b \x0c \x85 still two", "", "last"]


def test_packed_files_are_unpacked_and_byte_order_marks_dropped(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress("\ufeffone\ntwo\n".encode()))
    assert list(read_lines(path)) == ["one", "two"]


def test_invalid_utf8_is_named_with_file_and_line(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"fine\nstra\xdfe\n")
    with pytest.raises(InputError, match=r"a.txt:2: must be UTF-8, but byte 0xdf is not"):
        list(read_lines(path))
    path.write_bytes(b"\xef\xbb\xbfe\xff\n")  # a byte-order mark is not the byte that is wrong
    with pytest.raises(InputError, match=r"a.txt:1: must be UTF-8, but byte 0xff is not"):
        list(read_lines(path))


@pytest.mark.parametrize("content", [b"not packed", gzip.compress(b"text " * 1000, mtime=0)[:-20]])
def test_damaged_packed_files_and_streams_are_named(tmp_path, content):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a.txt.gz: cannot be read after line"):
        list(read_lines(path))
    with gzip.open(path) as stream, pytest.raises(InputError, match="a.gz: cannot be read"):
        list(read_ready(stream, "a.gz", lambda: 10))


@given(
    st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line and not line.endswith(b"\r"))),
    st.integers(1, 4),
)
def test_every_line_is_given_out_once_and_in_order(lines, most):
    chunks = list(read_ready(io.BytesIO(b"".join(line + b"\n" for line in lines)), "memory", lambda: most))
    assert [line for chunk in chunks for line in chunk] == lines
    assert all(1 <= len(chunk) <= most for chunk in chunks)


def test_a_line_in_a_pipe_is_given_out_before_the_next_is_written():
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", buffering=0) as pipe:
        chunks = read_ready(stream, "pipe", lambda: 100)
        pipe.write(b"first\r\nhalf of the ")
        assert next(chunks) == [b"first"]
        pipe.write(b"second")
        pipe.close()
        assert next(chunks) == [b"half of the second"]
        assert list(chunks) == []


def test_a_list_is_as_long_as_asked_for_when_it_begins():
    sizes = iter([2, 3, 1, 9, 9])
    text = io.BytesIO(b"".join(b"%d\n" % i for i in range(9)))
    assert [len(chunk) for chunk in read_ready(text, "memory", lambda: next(sizes))] == [2, 3, 1, 3]


def test_chunks_grow_while_they_are_done_quickly(monkeypatch):
    now = iter([0.0, 1.0, 2.0, 3.0, 4.0, 20.0, 21.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    size = ChunkSize()
    assert [size.next() for _ in range(7)] == [1024, 2048, 4096, 8192, 16384, 16384, 16384]
    now = iter([0.0, 30.0, 60.0, 61.0])
    size = ChunkSize()
    assert [size.next() for _ in range(4)] == [1024, 1024, 1024, 2048]


# Characters that are not seen are not given to a model, but where a script needs them.


@pytest.mark.parametrize(
    "text, read",
    [
        ("run\u00adning in the gar\u200bden", "running in the garden"),
        ("\ufeffrun\u2060ning \u200erun\u200dning\u202c", "running running"),
        ("Hund\u200ce", "Hunde"),
        ("می\u200cرود", "می\u200cرود"),
        ("क्\u200dष", "क्\u200dष"),
        ("ไป\u200bมา", "ไป\u200bมา"),
        ("👩\u200d🔬 ❤\ufe0f", "👩\u200d🔬 ❤\ufe0f"),
        ("a\x07b", "a b"),
        ("plain", "plain"),
    ],
)
def test_invisible_characters_are_left_out(text, read):
    assert as_read(text) == read
    assert "".join(text[i] for i in seen_positions(text)).replace("\x07", " ") == read
