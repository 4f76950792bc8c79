"""Reads the shortlists of Bergamot's engine."""

import struct

import numpy as np


def unpacked(content: bytes) -> list[np.ndarray]:
    """The list of each source token in a file of Marian's BinaryShortlistGenerator, checked as it does."""
    magic, checksum, _, _, offsets, count = struct.unpack("<6Q", content[:48])
    begins = np.frombuffer(content[48 : 48 + 8 * offsets], "<u8")
    tokens = np.frombuffer(content[48 + 8 * offsets :], "<u4")
    assert magic == 0xF11A48D5013417F5 and len(tokens) == count == begins[-1]
    assert (begins[:-1] < count).all()
    expected = 0
    for (word,) in struct.iter_unpack("<Q", content[16 : len(content) // 8 * 8]):
        expected = (expected ^ (word + 0x9E3779B9 + (expected << 6) + (expected >> 2))) % 2**64
    assert checksum == expected
    return np.split(tokens, begins[1:-1].astype(int))
