from collections import Counter

from transformer_mt.data.cleaning_rules import length_reason, reason_table


def test_misfits():
    assert length_reason(9, 9, max_length=10, max_ratio=4.0) is None
    assert length_reason(10, 9, max_length=10, max_ratio=4.0) == "over-long"
    assert length_reason(2, 18, max_length=100, max_ratio=4.0) is None
    assert length_reason(2, 19, max_length=100, max_ratio=4.0) == "length ratio"
    assert length_reason(19, 2, max_length=100, max_ratio=4.0) == "length ratio"
    assert length_reason(0, 3, max_length=100, max_ratio=4.0) == "empty side"


def test_table_has_a_line_a_reason_with_its_share():
    lines = reason_table(Counter({"read": 1000, "empty side": 10, "kept": 990})).split("\n")
    assert len(lines) == 7
    assert lines[0].split() == ["read", "1,000", "100.00%"]
    assert lines[1].split() == ["empty", "side", "10", "1.00%"]
