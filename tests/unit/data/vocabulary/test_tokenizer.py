""""""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.public_models import sentencepiece_model, toy_lines
from transformer_mt.config import TokenizerConfig
from transformer_mt.corpora import toy
from transformer_mt.data.vocabulary.given_tokenizer import with_new_pieces
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD, UNK, Numbering, Tokenizer
from transformer_mt.errors import InputError


@pytest.fixture(scope="module")
def pairs():
    return list(toy.generate("train", 800))


@pytest.fixture(scope="module")
def tokenizer(pairs):
    return Tokenizer.train(pairs, TokenizerConfig(vocab_size=450))


@settings(max_examples=50)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_nothing_is_ever_unknown_and_a_decoded_line_is_one_line(tokenizer, text):
    ids = tokenizer.encode_tgt([text])[0]
    assert UNK not in ids
    decoded = tokenizer.decode_tgt(ids)
    assert "\n" not in decoded and "\r" not in decoded


def test_bytes_that_spell_a_line_break_do_not_break_the_line(tokenizer):
    newline = tokenizer.tgt.piece_to_id("<0x0A>")
    word = tokenizer.encode_tgt(["Hund"])[0]
    assert tokenizer.decode_tgt([*word, newline, *word]) == "Hund Hund"


def test_text_comes_back_and_special_ids_have_none(tokenizer, pairs):
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)
    assert [tokenizer.src.id_to_piece(i) for i in range(4)] == ["<pad>", "<unk>", "<s>", "</s>"]
    german = [de for _, de in pairs[:50]]
    for text, ids in zip(german, tokenizer.encode_tgt(german)):
        assert tokenizer.decode_tgt(ids) == tokenizer.decode_tgt([BOS, *ids, EOS, PAD, PAD]) == text


def test_separate_vocabularies_and_another_form_of_vocabulary_save_and_load(pairs, tokenizer, tmp_path):
    separate = Tokenizer.train(pairs, TokenizerConfig(vocab_size=400, shared=False, kind="unigram"))
    assert not separate.shared
    for one, other in ((tokenizer, separate), (separate, tokenizer)):
        one.save(tmp_path)
        other.save(tmp_path)
        loaded = Tokenizer.load(tmp_path)
        assert loaded.fingerprint == other.fingerprint
        assert (loaded.encode_src(["The dog."]) == loaded.encode_tgt(["The dog."])) is other.shared


def test_training_twice_gives_the_same_vocabulary(pairs, tokenizer):
    assert Tokenizer.train(pairs, TokenizerConfig(vocab_size=450)).fingerprint == tokenizer.fingerprint


def test_without_byte_fallback_a_strange_character_is_unknown(pairs):
    tokenizer = Tokenizer.train(pairs, TokenizerConfig(vocab_size=200, byte_fallback=False))
    assert UNK in tokenizer.encode_src(["中"])[0]


@pytest.mark.parametrize("normalization, text", [
    ("auto", "10² № ½ ª ㅋㅋ ，می\u200cرود é ộ 각 \u0958"),
    ("nmt_nfkc", "102 No 1⁄2 a \u110f\u110f ,می رود é ô\u0323 각 \u0915\u093c"),
    ("identity", "10² № ½ ª ㅋㅋ ，می\u200cرود e\u0301 o\u0302\u0323 \u1100\u1161\u11a8 \u0958"),
])  # fmt: skip
def test_normalization(pairs, normalization, text):
    tokenizer = Tokenizer.train(pairs, TokenizerConfig(vocab_size=450, normalization=normalization))
    line = "10² № ½ ª ㅋㅋ ，می\u200cرود e\u0301 o\u0302\u0323 \u1100\u1161\u11a8 \u0958"
    assert tokenizer.decode_tgt(tokenizer.encode_tgt([line])[0]) == text


def test_a_smaller_coverage_leaves_rare_characters_to_bytes(pairs):
    rare = [*pairs, ("ж", "ж")]
    full, part = (
        Tokenizer.train(rare, TokenizerConfig(vocab_size=450, character_coverage=c)) for c in (1.0, 0.98)
    )
    assert len(full.encode_src(["ж"])[0]) < len(part.encode_src(["ж"])[0])


def test_long_lines_are_learnt_from():
    """SentencePiece leaves out lines of more than 4,192 bytes otherwise."""
    document = "the dog sleeps and the cat sees a house " * 200
    assert "▁house" in Tokenizer.train([(document, "")], TokenizerConfig(vocab_size=320)).all_pieces_src


def test_new_pieces_are_learnt_from_text_as_the_vocabulary_reads_it(pairs, tmp_path):
    """Thai's vowel AM is two characters after NFKC, which this vocabulary never sees."""
    (tmp_path / "th.txt").write_text("น้ำเย็น ทำงาน คำถาม ทำ น้ำ คำ\n" * 20, encoding="utf-8")
    parent = Tokenizer.train(pairs, TokenizerConfig(vocab_size=450, normalization="identity"))
    child = with_new_pieces(parent, str(tmp_path / "th.txt"), 30)
    assert not any(piece.startswith("<0x") for piece in child.pieces_src(child.encode_src(["น้ำ"])[0]))


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_vocabulary_too_large_or_too_small_is_told_with_the_bound(kind):
    pairs = [("a b c d hello world", "hallo welt"), ("the dog", "der Hund")]
    with pytest.raises(InputError, match=r"`tokenizer.vocab_size` must be at most \d+ for this .* is 8000"):
        Tokenizer.train(pairs, TokenizerConfig(kind=kind, vocab_size=8000))
    with pytest.raises(InputError, match=r"`tokenizer.vocab_size` must be more than 2\d\d, .*but is 100"):
        Tokenizer.train(pairs, TokenizerConfig(kind=kind, vocab_size=100))


def test_missing_and_damaged_models_are_told(tmp_path):
    with pytest.raises(InputError, match="there is no tokenizer.model in it"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"nonsense")
    with pytest.raises(InputError, match=f"{tmp_path}: the tokenizer must be .*, but is damaged"):
        Tokenizer.load(tmp_path)


def test_words_are_written_as_in_the_middle_of_a_sentence():
    """A mark stands before a word only where words have spaces: Chinese has none."""
    pairs = [("I see a dog.", "我看见一只大狗。"), ("The dog sleeps.", "狗睡觉。"), ("A cat.", "一只猫。")]
    tokenizer = Tokenizer.train(pairs, TokenizerConfig(vocab_size=300))
    assert tokenizer.as_written(["狗", "dog", ".", "大狗"]) == ["狗", "▁dog", ".", "大狗"]
    assert tokenizer.as_written(["/"]) == ["<0x2F>"]  # a mark that has no piece of its own


def test_spans_are_the_characters_each_piece_was_made_of(tiny_run):
    tokenizer = Tokenizer.load(tiny_run)
    text = "  The  dog\u2026 \ufb01nds 東 \U0001f600."
    ids, spans = tokenizer.spans_src(text)
    assert ids == tokenizer.encode_src([text])[0] and len(spans) == len(ids)
    assert "".join(text[begin:end] for begin, end in spans).split() == text.split()
    decoded = tokenizer.decode_tgt(ids)
    of_target = tokenizer.spans_tgt(ids)
    assert len(of_target) == len(ids) and "".join(decoded[b:e] for b, e in of_target) == decoded


@pytest.mark.parametrize(
    "kind, pieces", [("char", ["▁", "d", "e", "r", "▁", "H"]), ("word", ["▁der", "▁Hund"])]
)
def test_every_character_or_word_is_a_piece(pairs, kind, pieces):
    config = TokenizerConfig(kind=kind, shared=False, byte_fallback=False, normalization="identity")
    tokenizer = Tokenizer.train(pairs, config)
    ids = tokenizer.encode_tgt(["der Hund"])[0]
    assert tokenizer.pieces_tgt(ids)[: len(pieces)] == pieces and tokenizer.decode_tgt(ids) == "der Hund"
    assert tokenizer.tgt.vocab_size() < 8000  # as many as there are


def test_words_cannot_be_spelled_in_bytes():
    with pytest.raises(
        ValueError, match="byte_fallback must be false with tokenizer.kind: word, but is true"
    ):
        TokenizerConfig(kind="word")


# SentencePiece models under other ids: which pieces text becomes, and which none does.


MODEL = sentencepiece_model(toy_lines()[0])


def renumbered(*pieces):
    there = {piece: i for i, piece in enumerate(["</s>", "<unk>", "▁The", "▁", "s", *pieces, "<pad>"])}
    special = {"pad": len(there) - 1, "unk": 1, "bos": len(there) - 1, "eos": 0}
    return Tokenizer(MODEL, numberings=[Numbering.of(there, special)])


def test_a_character_that_only_the_vocabulary_knows_is_text_and_no_tag():
    found = renumbered("猫", ">>fra<<", "madeupword")
    assert found.pieces_src(found.encode_src(["猫"])[0]) == ["▁", "猫"]
    assert set(found.control_ids) == {">>fra<<", "madeupword"}


def test_what_nothing_knows_is_unknown_and_specials_have_their_ids():
    found = renumbered("a")
    assert found.encode_src(["犬"])[0][-1] == UNK
    assert found.all_pieces_src[:4] == ["<pad>", "<unk>", "<s>", "</s>"]
    assert found.numberings[0].foreign_ids()[EOS] == 0
    assert [found.numberings[0].order[i] for i in found.numberings[0].foreign_ids()[4:]] == [4, 5, 6, 7]
