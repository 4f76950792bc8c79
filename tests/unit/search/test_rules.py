"""Each rule against exhaustive search over the sequences it allows."""

import random

import pytest
import torch

from tests.helpers.table import EOS, IDS, every_sequence, search, table_model
from transformer_mt.search.rules import BannedText, MinLength, NoRepeatNgram, Prefix

PIECES = ["<s>", "</s>", "▁a", "b", "▁ab"]


def has_ngram_twice(body, n):
    ngrams = [body[i : i + n] for i in range(len(body) - n + 1)]
    return len(set(ngrams)) < len(ngrams)


def writes(body, text):
    written = "".join(PIECES[token] for token in body)
    return text in (written if written.startswith("▁") else "▁" + written)


HARD = {
    "min_length": (MinLength(2, EOS), lambda body: len(body) >= 2),
    "no_repeat_1": (NoRepeatNgram(1), lambda body: not has_ngram_twice(body, 1)),
    "no_repeat_2": (NoRepeatNgram(2), lambda body: not has_ngram_twice(body, 2)),
    "banned": (
        BannedText(["▁ab", "bb"], PIECES),
        lambda body: not writes(body, "▁ab") and not writes(body, "bb"),
    ),
    "prefix": (Prefix([[3, 2]]), lambda body: body[:2] == (3, 2)),
}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("seed", range(2))
def test_what_a_rule_forbids_is_all_that_is_missing(name, seed):
    rule, allowed = HARD[name]
    logits, step, state = table_model(seed)
    expected = every_sequence(logits, 0, 5, allowed=allowed)
    (found,) = search(step, state, [5], IDS, beam=120, rules=[rule])
    assert [h.tokens for h in found] == [tokens for _, _, tokens in expected][:120]
    assert [h.log_prob for h in found] == pytest.approx([total for _, total, _ in expected][:120], abs=1e-5)


@pytest.mark.parametrize("seed", range(2))
def test_all_rules_at_once(seed):
    logits, step, state = table_model(seed)
    allowed = lambda body: all(allowed(body) for _, allowed in HARD.values())  # noqa: E731
    expected = every_sequence(logits, 0, 5, allowed=allowed)
    (found,) = search(step, state, [5], IDS, beam=120, rules=[rule for rule, _ in HARD.values()])
    assert [h.tokens for h in found] == [tokens for _, _, tokens in expected]


def test_rules_know_the_sentence_of_each_row():
    """Prefixes of different lengths, in sentences that leave at different times."""
    _, step, state = table_model(seed=4, num_sentences=4)
    prefixes = [[2], [], [4, 3, 2], [3, 3]]
    together = search(step, state, [3, 1, 8, 5], IDS, beam=2, rules=[Prefix(prefixes)])
    for prefix, found in zip(prefixes, together):
        assert all(h.tokens[: len(prefix)] == prefix for h in found)
    assert search(step, state, [3, 1, 8, 5], IDS, beam=2)[1] == together[1]


def test_rules_that_leave_nothing_find_nothing():
    _, step, state = table_model(seed=0)
    assert search(step, state, [4], IDS, beam=2, rules=[MinLength(9, EOS)]) == [[]]


@pytest.mark.parametrize("name", ["no_repeat_1", "no_repeat_2"])
@pytest.mark.parametrize("seed", range(2))
def test_a_prefix_that_rules_forbid_stands_and_they_hold_for_what_follows(name, seed):
    logits, step, state = table_model(seed)
    prefix, (rule, _) = (3, 4, 3, 4), HARD[name]
    expected = every_sequence(
        logits, 0, 7,
        # Each token after the prefix completes nothing that is forbidden.
        allowed=lambda body: body[: len(prefix)] == prefix
        and all(_completes_nothing(body[:end], name) for end in range(len(prefix) + 1, len(body) + 1)),
    )  # fmt: skip
    (found,) = search(step, state, [7], IDS, beam=120, rules=[Prefix([prefix], [rule])])
    assert expected and [h.tokens for h in found] == [tokens for _, _, tokens in expected][:120]


def _completes_nothing(body, name):
    """True if the last token of the body completes nothing that the rule forbids."""
    n = int(name[-1])
    ends = [body[i : i + n] for i in range(len(body) - n + 1)]
    return len(body) < n or ends[-1] not in ends[:-1]


def test_a_prefix_that_is_banned_stands():
    _, step, state = table_model(seed=0)
    (found,) = search(step, state, [7], IDS, beam=120, rules=[Prefix([[2, 4, 4]], [HARD["banned"][0]])])
    assert found and all(h.tokens[:3] == [2, 4, 4] for h in found)
    assert not any(writes(h.tokens[3:-1], "▁ab") or writes(h.tokens[3:-1], "bb") for h in found)


def test_the_least_length_counts_from_the_end_of_a_prefix():
    logits, step, state = table_model(seed=1, num_sentences=2)
    prefixes = [[3, 2], []]
    rules = [Prefix(prefixes, [MinLength(2, EOS, [2, 0])])]
    for prefix, found in zip(prefixes, search(step, state, [6, 6], IDS, beam=50, rules=rules)):
        lengths = {len(h.tokens) - 1 - len(prefix) for h in found}
        assert min(lengths) == 2


def test_a_banned_mark_is_not_looked_for_in_the_names_of_tokens():
    """`</s>` is no text with a slash in it, nor is `<0x2F>` one with a `<`."""
    pieces = ["<pad>", "<unk>", "<s>", "</s>", "▁a", "/", "a/b", "<0x2F>", "<"]
    for text, banned in (("/", [5, 6]), ("<", [8]), ("<0x2F>", [7])):
        log_probs = torch.zeros(1, len(pieces))
        BannedText([text], pieces, controls=range(4))(torch.tensor([[4]]), log_probs, torch.tensor([0]))
        assert (log_probs[0] == -torch.inf).nonzero()[:, 0].tolist() == banned


def test_a_banned_word_is_banned_after_a_hyphen_and_a_mark_wherever_it_stands():
    pieces = ["<s>", "</s>", "▁Body", "-", "Mann", "-Mann", "▁Mann", "▁Mannes", "e", ".", "▁z.B."]
    rule = BannedText(["▁Mann", "."], pieces)
    for tokens, banned in (
        ([2], [5, 6, 9, 10]),
        ([2, 3], [4, 5, 6, 9, 10]),
        ([7], [5, 6, 9, 10]),
        ([2, 8], [5, 6, 9, 10]),
    ):
        log_probs = torch.zeros(1, len(pieces))
        rule(torch.tensor([tokens]), log_probs, torch.tensor([0]))
        assert (log_probs[0] == -torch.inf).nonzero()[:, 0].tolist() == banned


def test_banned_text_is_what_the_texts_themselves_say():
    """Random pieces and texts: a token is impossible where what is written then ends with a banned text, or
    where it holds one without a mark.
    """
    rng = random.Random(5)
    for _ in range(200):
        pieces = ["".join(rng.choice("▁ab-") for _ in range(rng.randint(1, 4))) for _ in range(8)]
        texts = [
            rng.choice(["▁", ""]) + "".join(rng.choices("ab-▁", weights=[4, 4, 1, 1], k=rng.randint(1, 4)))
        ]
        tokens = [rng.randrange(8) for _ in range(rng.randint(0, 6))]
        log_probs = torch.zeros(1, 8)
        BannedText(texts, pieces)(torch.tensor([tokens], dtype=torch.int64), log_probs, torch.tensor([0]))
        before = "▁" + "".join(pieces[token] for token in tokens)
        found = set((log_probs[0] == -torch.inf).nonzero()[:, 0].tolist())
        assert found == {i for i, piece in enumerate(pieces) if completes(before, piece, texts[0])}


def completes(before, piece, text):
    ends = [len(before) + len(piece)]  # a word is banned as a whole, anything else wherever it stands
    if not text.startswith("▁"):
        ends = range(len(before) + 1, ends[0] + 1)
    written = before + piece
    for end in ends:
        start = end - len(text)
        if start < 0:
            continue
        part = written[start:end]
        # What is in the piece alone is read by the same rule as what goes over its beginning.
        if part == text or (text[0] == "▁" and not part[0].isalnum() and part[1:] == text[1:]):
            return True
    return False
