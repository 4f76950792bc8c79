"""Existing SentencePiece models for a new training."""

import io

import pytest
import sentencepiece
import yaml
from sentencepiece import sentencepiece_model_pb2

from tests.conftest import TINY
from tests.helpers.companions import needs
from transformer_mt.config import TokenizerConfig, load_config
from transformer_mt.config.resolve import Known
from transformer_mt.corpora import toy
from transformer_mt.corpora.toy import generate
from transformer_mt.data.vocabulary.given_tokenizer import given_tokenizer, lost_letters_notes, settle
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.settings.part import PartName
from transformer_mt.training import train

LINES = [side for pair in toy.generate("train", 800) for side in pair]


def learnt(**options):
    """A SentencePiece model; by default with SentencePiece's own ids: UNK 0, BOS 1, EOS 2, no PAD."""
    model = io.BytesIO()
    options = {"model_type": "bpe", "vocab_size": 300, "minloglevel": 2, **options}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(LINES), model_writer=model, **options)
    return model.getvalue()


def settled(config):
    """The config with the keys that its vocabulary decides."""
    return settle(config, Known())[1]


@pytest.fixture
def configured(tmp_path):
    """Writes the model files and gives back the config that names them."""

    def configured(*models, tags=(), **keys):
        files = [tmp_path / f"spm{number}.model" for number in range(len(models))]
        for file, model in zip(files, models):
            file.write_bytes(model)
        named = str(files[0]) if len(files) == 1 else [str(file) for file in files]
        few = {part: {"toy": part, "size": 10} for part in ("valid", "test")}
        data = {**TINY["data"], "train": {"toy": "train", "size": 300}, **few, "test": [few["test"]]}
        values = {**TINY, "data": data, "tokenizer": {"file": named, **keys}}
        path = tmp_path / "given.yaml"
        path.write_text(yaml.safe_dump(values), encoding="utf-8")
        return load_config(path)

    return configured


KINDS = [
    {},
    {"model_type": "unigram", "byte_fallback": True, "vocab_size": 500},
    {"unk_id": 3, "bos_id": 0, "eos_id": 1, "pad_id": 2, "unk_piece": "[UNK]"},
    {"model_type": "char", "hard_vocab_limit": False, "control_symbols": ["<2de>"]},
]


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_special_pieces_get_our_ids_and_text_is_divided_as_before(configured, options):
    model = learnt(**options)
    tokenizer = given_tokenizer(configured(model))
    before, now = sentencepiece.SentencePieceProcessor(model_proto=model), tokenizer.src
    assert (now.pad_id(), now.unk_id(), now.bos_id(), now.eos_id()) == (PAD, UNK, BOS, EOS)
    assert set(tokenizer.all_pieces_src) >= {before.id_to_piece(i) for i in range(before.vocab_size())}
    texts = [*LINES[:200], "Ünknöwn wörds, 42 <2de> <pad> 😀"]
    for text, ids in zip(texts, tokenizer.encode_src(texts)):
        assert tokenizer.pieces_src(ids) == [before.id_to_piece(i) for i in before.encode(text)]
        assert now.decode(ids) == before.decode(before.encode(text))


@needs("terms")
def test_two_files_are_two_vocabularies_for_all_rules(configured):
    config = configured(learnt(), learnt(vocab_size=310))
    data = config.data.model_copy(update={"changes": [PartName("terms")]})
    message = r"tokenizer.shared must be true with data.changes: terms.*`tokenizer.file`"
    with pytest.raises(InputError, match=message):
        settle(config.model_copy(update={"data": data}), Known())


def test_our_own_vocabulary_stays_as_it_is(configured):
    own = learnt(pad_id=0, unk_id=1, bos_id=2, eos_id=3)
    pieces = sentencepiece.SentencePieceProcessor(model_proto=own)
    assert given_tokenizer(configured(own)).all_pieces_src == [pieces.id_to_piece(i) for i in range(300)]


def test_the_run_keeps_the_vocabulary_and_its_facts(configured, tmp_path):
    config = configured(learnt(model_type="unigram"))
    folder = train(config.model_copy(update={"train": short(config)}), tmp_path / "run")
    kept = load_config(folder / "config.yaml").tokenizer
    assert (kept.kind, kept.vocab_size, kept.byte_fallback, kept.shared) == ("unigram", 301, False, True)
    assert Tokenizer.load(folder).fingerprint == given_tokenizer(config).fingerprint
    (tmp_path / "spm0.model").unlink()
    longer = config.train.model_copy(update={"max_updates": 4, "validate_every": 2, "save_every": 2})
    train(config.model_copy(update={"train": longer}), folder)  # resumed without the file


def short(config):
    return config.train.model_copy(update={"max_updates": 2, "validate_every": 2, "save_every": 2})


def test_two_files_are_the_two_sides(configured):
    source, target = learnt(), learnt(model_type="unigram")
    config = configured(source, target)
    tokenizer = given_tokenizer(config)
    assert not tokenizer.shared and not settled(config).tokenizer.shared
    src, tgt = (encode(["The dog."])[0] for encode in (tokenizer.encode_src, tokenizer.encode_tgt))
    assert tokenizer.pieces_tgt(tgt) != tokenizer.pieces_src(src)


def test_both_files_must_allow_bpe_dropout(configured):
    config = configured(learnt(), learnt(model_type="unigram"), bpe_dropout=0.1)
    with pytest.raises(InputError, match="must be 0.0 with a file of kind bpe and unigram, but is 0.1"):
        settled(config)


def test_the_true_size_may_be_given_also_with_tags(configured):
    config = configured(learnt(pad_id=0, unk_id=1, bos_id=2, eos_id=3), vocab_size=300)
    tagged = config.data.model_copy(update={"train": config.data.train.model_copy(update={"tag": "<bt>"})})
    config = config.model_copy(update={"data": tagged})
    assert settled(config).tokenizer.vocab_size == 301


def test_what_the_file_decides_must_not_be_asked_for_otherwise(configured):
    config = configured(learnt(model_type="unigram"), kind="bpe", vocab_size=8000, bpe_dropout=0.1)
    with pytest.raises(InputError) as error:
        settled(config)
    assert str(error.value).splitlines() == [
        "`tokenizer.kind` must be 'unigram', as in tokenizer.file, but is 'bpe'; leave it out",
        "`tokenizer.vocab_size` must be 301, as in tokenizer.file, but is 8000; leave it out",
        "`tokenizer.bpe_dropout` must be 0.0 with a file of kind unigram, but is 0.1",
    ]


@pytest.mark.parametrize("content", [b"", b"These are words.\n"])
def test_a_file_that_is_no_sentencepiece_model_is_refused(configured, content):
    with pytest.raises(InputError, match="spm0.model: is not a SentencePiece model"):
        given_tokenizer(configured(content))


def test_a_file_with_a_piece_twice_is_refused(configured):
    proto = sentencepiece_model_pb2.ModelProto.FromString(learnt())
    proto.pieces.append(proto.pieces[-1])
    with pytest.raises(InputError, match="must be a SentencePiece model, but is damaged: .*already defined"):
        given_tokenizer(configured(proto.SerializeToString()))


def test_a_missing_file_is_named(configured, tmp_path):
    config = configured(learnt())
    (tmp_path / "spm0.model").unlink()
    with pytest.raises(
        InputError, match="`tokenizer.file` must be a SentencePiece model, but .*spm0.model can"
    ):
        given_tokenizer(config)


@pytest.mark.parametrize("value", ["[a, b, c]", "3"])
def test_the_key_takes_one_file_or_two(write_config, value):
    with pytest.raises(InputError, match="file must be a SentencePiece model, or a list of two"):
        load_config(write_config(), [f"tokenizer.file={value}"])


def test_a_vocabulary_that_lies_in_a_new_runs_folder_is_not_overwritten(configured, tmp_path):
    config, folder = configured(learnt()), tmp_path / "run"
    folder.mkdir()
    mine = learnt(vocab_size=200)
    (folder / "tokenizer.model").write_bytes(mine)
    with pytest.raises(InputError, match="name it in `tokenizer.file`"):
        train(config, folder)
    assert (folder / "tokenizer.model").read_bytes() == mine


# Letters that a vocabulary lacks or replaces are named, with the share of the pairs that have them.


REPLACED = (
    "note: the vocabulary's normalisation replaces {}, in {} of the pairs; tokenizer.normalization: "
    "auto keeps them, if the vocabulary is learnt"
)


@pytest.mark.parametrize(
    "normalization, notes", [("auto", []), ("nmt_nfkc", [REPLACED.format("² ½ № U+200C", "75.0%")])]
)
def test_replaced_letters_are_named(normalization, notes):
    config = TokenizerConfig(vocab_size=400, normalization=normalization)
    tokenizer = Tokenizer.train(generate("train", 300), config)
    pairs = [("10² 5²", "x"), ("½", "№ ²"), ("e\u0301 \u00a0é", "é"), ("a", "می\u200cرود")]
    assert list(lost_letters_notes(tokenizer, pairs, is_given=False)) == notes


def test_letters_that_a_given_vocabulary_lacks_are_named():
    config = TokenizerConfig(vocab_size=200, byte_fallback=False)
    tokenizer = Tokenizer.train(generate("train", 300), config)
    pairs = [("the ɾ", "x ŧ"), ("a", "b"), ("ŧ", "b")]
    assert list(lost_letters_notes(tokenizer, pairs, is_given=False)) == []
    assert list(lost_letters_notes(tokenizer, pairs, is_given=True)) == [
        "note: the vocabulary lacks ŧ ɾ, which occur in 66.7% of the pairs: they become <unk>; "
        "data.new_pieces (with init_from) adds tokens for them"
    ]
