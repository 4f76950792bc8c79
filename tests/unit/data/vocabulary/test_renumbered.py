"""SentencePiece models under other ids: which pieces text becomes, and which none does."""

from tests.helpers.public_models import sentencepiece_model, toy_lines
from transformer_mt.data.vocabulary.tokenizer import EOS, UNK, Numbering, Tokenizer

MODEL = sentencepiece_model(toy_lines()[0])


def tokenizer(*pieces):
    there = {piece: i for i, piece in enumerate(["</s>", "<unk>", "▁The", "▁", "s", *pieces, "<pad>"])}
    special = {"pad": len(there) - 1, "unk": 1, "bos": len(there) - 1, "eos": 0}
    return Tokenizer(MODEL, numberings=[Numbering.of(there, special)])


def test_a_character_that_only_the_vocabulary_knows_is_text_and_no_tag():
    found = tokenizer("猫", ">>fra<<", "madeupword")
    assert found.pieces_src(found.encode_src(["猫"])[0]) == ["▁", "猫"]
    assert set(found.control_ids) == {">>fra<<", "madeupword"}


def test_what_nothing_knows_is_unknown_and_specials_have_their_ids():
    found = tokenizer("a")
    assert found.encode_src(["犬"])[0][-1] == UNK
    assert found.all_pieces_src[:4] == ["<pad>", "<unk>", "<s>", "</s>"]
    assert found.numberings[0].foreign_ids()[EOS] == 0
    assert [found.numberings[0].order[i] for i in found.numberings[0].foreign_ids()[4:]] == [4, 5, 6, 7]
