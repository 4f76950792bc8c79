"""Keys and rates of a server."""

import pytest

from transformer_mt.companions.serving.http.limits import ApiKeys, RequestRate
from transformer_mt.errors import InputError


def test_keys_are_read_with_their_rates(tmp_path):
    (tmp_path / "keys").write_text("# ours\nalpha\n\nbeta 5\n", encoding="utf-8")
    keys = ApiKeys.read(tmp_path / "keys")
    alpha, beta = keys.find("alpha"), keys.find("beta")
    assert alpha[1] is None and beta[1] == 5 and alpha[0] != beta[0] and "alpha" not in alpha[0]
    for wrong in ("", "gamma", "alpha ", "beta 5", "#", "älpha", "\ud800"):
        assert keys.find(wrong) is None


@pytest.mark.parametrize(
    "text, message",
    [
        ("a b\n", "1: must be a key, with"),
        ("a 1 2\n", "1: must be"),
        ("a\nb 0\n", "2: must be a key, with its requests per minute .1 or more."),
        ("#\n", "must have a key"),
    ],
)
def test_a_file_of_keys_with_mistakes_is_refused(tmp_path, text, message):
    (tmp_path / "keys").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        ApiKeys.read(tmp_path / "keys")


def test_a_file_of_keys_must_be_there_and_be_text(tmp_path):
    with pytest.raises(InputError, match="keys: no such file"):
        ApiKeys.read(tmp_path / "keys")
    (tmp_path / "keys").write_bytes(b"a\xff\n")
    with pytest.raises(InputError, match="keys:1: must be UTF-8"):
        ApiKeys.read(tmp_path / "keys")
    (tmp_path / "keys").write_text("a\u2028b\n", encoding="utf-8")  # one line, of two words
    with pytest.raises(InputError, match="keys:1: must be a key"):
        ApiKeys.read(tmp_path / "keys")


def test_a_rate_counts_the_last_minute_of_each_client():
    now = [0.0]
    rate = RequestRate(lambda: now[0])
    assert [rate.seconds_to_wait("a", 2) for _ in range(2)] == [0.0, 0.0]
    now[0] = 10.0
    assert rate.seconds_to_wait("a", 2) == 50.0 and rate.seconds_to_wait("b", 2) == 0.0
    now[0] = 60.0
    assert rate.seconds_to_wait("a", 2) == 0.0


def test_clients_of_long_ago_are_forgotten():
    """Ten thousand are remembered: the memory of a server has an end."""
    rate = RequestRate(lambda: 0.0)
    clients = [f"client {number}" for number in range(10_001)]
    assert not any(rate.seconds_to_wait(client, 1) for client in clients)
    assert rate.seconds_to_wait(clients[-1], 1) > 0 and rate.seconds_to_wait(clients[0], 1) == 0
