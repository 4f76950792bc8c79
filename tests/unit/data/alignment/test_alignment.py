"""Word alignments of training pairs: from a file or an aligner, as links of pieces in every epoch."""

import os
import re
from collections import Counter

import numpy as np
import pytest
import torch

from tests.helpers.faults import small_blocks
from transformer_mt.config import Config, TokenizerConfig
from transformer_mt.data.batches.batch import Rows
from transformer_mt.data.batches.encoded_pairs import EncodedPairs
from transformer_mt.data.changes.training_rows import AlignedRows
from transformer_mt.data.preparation import training_links
from transformer_mt.data.preparation.training_links import PieceWords, aligned
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.preparation import prepare
from transformer_mt.settings.corpus_keys import FilterConfig

PAIRS = [
    ("the red house.", "das rote Haus."),
    ("the red house.", "das rote Haus."),  # dropped: it was there
    ("a small dog sleeps", "ein kleiner Hund schläft"),
    ("", "nichts"),  # dropped: it has no source
    ("the dog, the house", "der Hund, das Haus"),
]
LINKS = ["0-0 1-1 2-2", "0-0", "0-0 1-1 2-2 3-3", "", "0-0 1-1 2-2 3-3 0-2"]


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """The pairs and their links as files; a function that gives the config for them."""
    monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(tmp_path / "cache"))
    lines = {"a.en": [s for s, _ in PAIRS], "a.de": [t for _, t in PAIRS], "a.links": LINKS}
    for name, texts in lines.items():
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")

    def config(bpe_dropout=0.0, augment=None, **guided):
        return Config.model_validate(
            {
                "name": "aligned",
                "data": {
                    "source_lang": "en",
                    "target_lang": "de",
                    "train": {"source": str(tmp_path / "a.en"), "target": str(tmp_path / "a.de")},
                    "valid": {"toy": "valid", "size": 5},
                    "augment": augment or {},
                },
                "tokenizer": {"vocab_size": 60, "byte_fallback": False, "bpe_dropout": bpe_dropout},
                "model": {"num_decoder_layers": 2},
                "train": {"guided_alignment": {"weight": 0.1, **guided}},
            }
        )

    return config


def words_of(tokenizer, ids):
    return "".join(tokenizer.pieces_src(ids))


def linked_texts(batch, tokenizer, row):
    """{(source pieces, target pieces)} of a row's links, joined by target piece."""
    found = {}
    for t, s in zip(
        *(column[batch.links.rows == row].tolist() for column in (batch.links.tgt, batch.links.src))
    ):
        found.setdefault(t, []).append(s)
    src, tgt = batch.src[row].tolist(), batch.tgt_out[row].tolist()
    return {(words_of(tokenizer, [src[s] for s in sources]), words_of(tokenizer, [tgt[t]]))
            for t, sources in found.items()}  # fmt: skip


def test_the_links_of_a_file_are_those_of_the_pairs_that_are_kept(corpus, tmp_path, monkeypatch):
    small_blocks(monkeypatch, rows=2)
    data = prepare(corpus(file=str(tmp_path / "a.links")))
    rows = AlignedRows(Rows(data.train), data.links, data.tokenizer)
    batch = rows.batch(0, np.arange(3))
    sources = [words_of(data.tokenizer, data.train.src(i)) for i in range(3)]
    assert sources == ["▁the▁red▁house.", "▁a▁small▁dog▁sleeps", "▁the▁dog,▁the▁house"]
    by_word = {}
    for source, piece in linked_texts(batch, data.tokenizer, 0):
        by_word.setdefault(source, []).append(piece)
    assert set(by_word) == {"▁the", "▁red", "▁house."}
    assert re.sub("▁", "", "".join(sorted(by_word["▁the"], key="▁das".find))) == "das"
    # A target word with two links is linked to all pieces of both.
    assert any(source.startswith("▁the") and "house" not in source and source.count("▁the") == 2
               for source, _ in linked_texts(batch, data.tokenizer, 2))  # fmt: skip
    # The weights of a target piece sum to one.
    links, sums = batch.links, {}
    for row, tgt, weight in zip(links.rows.tolist(), links.tgt.tolist(), links.weights.tolist()):
        sums[row, tgt] = sums.get((row, tgt), 0.0) + weight
    assert len(sums) > 9 and list(sums.values()) == pytest.approx([1.0] * len(sums))


def linked_words(data, row):
    """The (source word, target word) of a row's links, both as their pieces say."""
    batch = AlignedRows(Rows(data.train), data.links, data.tokenizer).batch(0, np.array([row]))
    return {tuple(side.replace("▁", "") for side in pair) for pair in linked_texts(batch, data.tokenizer, 0)}


def write_aligned(tmp_path, rows):
    for name, texts in zip(("a.en", "a.de", "a.links"), zip(*rows)):
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return str(tmp_path / "a.links")


def whole_words(config):
    tokenizer = config.tokenizer.model_copy(update={"kind": "word", "vocab_size": 400, "bpe_dropout": 0.0})
    return config.model_copy(update={"tokenizer": tokenizer})


def test_a_reversed_corpus_has_its_links_reversed(corpus, tmp_path):
    words = [f"w{number:02}" for number in range(12)]
    rows = [
        (f"{a} {b} {c}", f"{c.upper()} {a.upper()} {b.upper()}", "0-1 1-2 2-0")
        for a, b, c in zip(words, words[1:], words[2:])
    ]
    config = whole_words(corpus(file=write_aligned(tmp_path, rows)))
    files = config.data.entries[0]
    both = config.data.model_copy(
        update={"train": [files, files.model_copy(update={"reverse": True, "name": "back"})]}
    )
    guided = config.train.guided_alignment.model_copy(update={"file": [tmp_path / "a.links"] * 2})
    train = config.train.model_copy(update={"guided_alignment": guided})
    data = prepare(config.model_copy(update={"data": both, "train": train}))
    assert linked_words(data, 0) == {("w00", "W00"), ("w01", "W01"), ("w02", "W02")}
    assert linked_words(data, data.sizes[0]) == {("W00", "w00"), ("W01", "w01"), ("W02", "w02")}


def test_words_are_those_of_the_file_whatever_a_filter_or_the_vocabulary_makes_of_them(corpus, tmp_path):
    """White space is Unicode's; words of invisible characters have no pieces; marks may be joined."""
    rows = [
        ("one\u3000two\u00a0three four", "EINS ZWEI DREI VIER", "0-0 1-1 2-2 3-3"),
        ("one \u200b\u200b two", "EINS \u2060 ZWEI", "0-0 1-1 2-2"),
        ("one , two ( three ) .", "EINS , ZWEI ( DREI ) .", "0-0 1-1 2-2 3-3 4-4 5-5 6-6"),
        *((text, text.upper(), "0-0 1-1") for text in ("five one", "five two", "six one", "six two")),
    ]
    config = corpus(file=write_aligned(tmp_path, rows))
    data = config.data.model_copy(update={"filter": FilterConfig(detokenize=True)})
    settings = {"kind": "char", "vocab_size": 60, "normalization": "nmt_nfkc"}
    tokenizer = config.tokenizer.model_copy(update=settings)
    prepared = prepare(config.model_copy(update={"data": data, "tokenizer": tokenizer}))
    spaced = [word_letters(prepared, row) for row in range(3)]
    assert spaced[0] == {"one": "EINS", "two": "ZWEI", "three": "DREI", "four": "VIER"}
    assert spaced[1] == {"one": "EINS", "two": "ZWEI"}
    assert {key: spaced[2][key] for key in ("one", "two", "three", ",")} == {
        "one": "EINS", "two": "ZWEI", "three": "DREI", ",": ",",
    }  # fmt: skip


def word_letters(data, row):
    """The target letters that are linked to each source word, whose pieces are letters."""
    links = AlignedRows(Rows(data.train), data.links, data.tokenizer).batch(0, np.array([row])).links
    src, tgt = (side(row).tolist() for side in (data.train.src, data.train.tgt))
    pieces = data.tokenizer.pieces_src
    of_target = {}
    for t, s in zip(links.tgt.tolist(), links.src.tolist()):
        of_target.setdefault(t, []).append(s)
    words = {}
    for t in sorted(of_target):
        source = "".join(pieces([src[s] for s in sorted(of_target[t])])).replace("▁", "")
        words[source] = words.get(source, "") + "".join(pieces([tgt[t]])).replace("▁", "")
    return words


def test_links_of_words_that_a_filter_has_changed_are_refused_by_its_name(corpus, tmp_path):
    rows = [(f"nbsp {word} x", f"FUER {word} x", "0-0 1-1") for word in ("one", "two", "three")]
    config = corpus(file=write_aligned(tmp_path, [("x&nbsp;y z", "A B", "0-0 1-1"), *rows]))
    data = config.data.model_copy(update={"filter": FilterConfig(encoding="repair")})
    message = (
        "with target 'A B'; the corpus's filter changes words .encoding: repair.: leave that out, or align"
    )
    with pytest.raises(InputError, match=message):
        prepare(config.model_copy(update={"data": data}))


def test_bpe_dropout_moves_links_with_their_characters(corpus, tmp_path):
    """What is linked are the same characters, whatever the pieces."""
    config = corpus(bpe_dropout=0.5, file=str(tmp_path / "a.links"))
    data = prepare(config)
    rows, usual = (
        data.rows(config, data.mixture(config)),
        AlignedRows(Rows(data.train), data.links, data.tokenizer),
    )

    def characters(batch, row):
        found = set()
        ends = [np.cumsum([0, *(len(p) for p in data.tokenizer.pieces_src(ids))])
                for ids in (batch.src[row].tolist(), batch.tgt_out[row].tolist())]  # fmt: skip
        mine = batch.links.rows == row
        for t, s in zip(batch.links.tgt[mine].tolist(), batch.links.src[mine].tolist()):
            found |= {(a, b) for a in range(*ends[0][s : s + 2]) for b in range(*ends[1][t : t + 2])}
        return found

    for epoch in range(3):
        there, here = usual.batch(epoch, np.arange(3)), rows.batch(epoch, np.arange(3))
        assert there.src.shape != here.src.shape or not torch.equal(there.src, here.src)
        for row in range(3):
            assert characters(here, row) == characters(there, row)


def test_a_row_of_another_text_has_no_links(corpus, tmp_path):
    config = corpus(augment={"typos": 0.5}, file=str(tmp_path / "a.links"))
    data = prepare(config)
    rows = data.rows(config, data.mixture(config))
    src, _ = rows.rows(0, np.arange(3))
    kept = [np.array_equal(src[i], data.train.src(i)) for i in range(3)]
    assert any(kept) and not all(kept)
    links = rows.batch(0, np.arange(3)).links
    assert [bool((links.rows == i).any()) for i in range(3)] == kept


def test_corpora_of_plain_text_have_no_links(corpus, tmp_path):
    config = corpus(file=str(tmp_path / "a.links"))
    data = config.model_dump(exclude_unset=True)
    text = {"text": str(tmp_path / "a.de"), "language": "de", "objective": "denoise"}
    data["data"]["train"] = [text, data["data"]["train"]]
    mixed = prepare(Config.model_validate(data))
    links = mixed.links
    assert len(links) == len(mixed.train) and 0 < mixed.sizes[0] < len(links)
    for row in range(len(links)):
        assert (links.lengths(0)[row] > 1) == (row >= mixed.sizes[0])


def test_a_damaged_cache_of_links_is_made_again(corpus, tmp_path):
    config = corpus(file=str(tmp_path / "a.links"))
    first = prepare(config)
    (file,) = (tmp_path / "cache").glob("links-*/00000.arrow")
    whole = file.read_bytes()
    for damage in (b"", whole[:50]):
        file.write_bytes(damage)
        again = prepare(config)
        assert again.fingerprint == first.fingerprint and file.read_bytes() == whole
    file.unlink()
    assert len(prepare(config).links) == len(first.links)


def test_other_links_are_other_data(corpus, tmp_path):
    given = corpus(file=str(tmp_path / "a.links"))
    first = prepare(given).fingerprint
    assert prepare(given).fingerprint == first != prepare(corpus(weight=0.0)).fingerprint
    (tmp_path / "a.links").write_text("0-0\n\n\n\n\n", encoding="utf-8")
    assert prepare(given).fingerprint != first


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (LINKS[:-1], "must have a line for each pair of .*a.en.*, but one of them ends first"),
        ([*LINKS, "0-0"], "must have a line for each pair of .*a.en.*, but one of them ends first"),
        (["0-0 1:1", *LINKS[1:]], r"each line must have links such as 0-0 1-2 .*, but line 1 is '0-0 1:1'"),
        (["99999999999999999999-0", *LINKS[1:]], "each line must have links such as 0-0 1-2"),
        (["0-0 7-1", *LINKS[1:]], "the links do not match the words of the pair with target 'das rote Haus"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(corpus, tmp_path, lines, said):
    file = tmp_path / "a.links"
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with pytest.raises(InputError, match=said):
        prepare(corpus(file=str(file)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"train": {"guided_alignment": {"weight": 0.1, "layer": 9}}}, "at most model.num_dec.*9"),
        ({"train": {"guided_alignment": {"weight": 0.1, "file": ["a", "b"]}}}, "file per training corpus.*2"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(corpus, change, said):
    with pytest.raises(ValueError, match=said):
        Config.model_validate(corpus().model_dump(exclude_unset=True) | change)


def test_marks_and_characters_of_scripts_without_spaces_are_words():
    settings = TokenizerConfig(vocab_size=60, byte_fallback=False)
    tokenizer = Tokenizer.train([("the big dogs, in Berlin.", "大きな犬が、ベルリンに。")] * 20, settings)
    words = PieceWords(tokenizer.src)

    def of(text):
        ids = np.array(tokenizer.encode_src([text])[0])
        return words.words(ids, words.word_of(ids))

    assert of("the big dogs, in Berlin.") == ["the", "big", "dogs", ",", "in", "berlin", "."]
    japanese = of("大きな犬が、ベルリンに。")
    assert {"、", "。"} < set(japanese) and "".join(japanese) == "大きな犬が、ベルリンに。"
    # Pieces of languages belong to no word.
    settings = TokenizerConfig(vocab_size=30, byte_fallback=False)
    tagged = Tokenizer.train([("the dog", "der Hund")] * 20, settings, [">>de<<"])
    ids = np.array([tagged.control_id(">>de<<"), *tagged.encode_src(["the dog"])[0]])
    words = PieceWords(tagged.src)
    assert words.word_of(ids)[0] == -1 and words.words(ids, words.word_of(ids)) == ["the", "dog"]


def test_many_pairs_are_aligned_in_parts_of_a_bounded_size(corpus, tmp_path, monkeypatch):
    small_blocks(monkeypatch, rows=100)
    small_blocks(monkeypatch, aligned=250)
    config = corpus().model_dump()
    text = {"text": str(tmp_path / "a.en"), "language": "en", "objective": "denoise"}
    again = {"toy": "train", "size": 600, "tag": "<b>"}
    config["data"]["train"] = [{"toy": "train", "size": 200}, text, again]
    config["tokenizer"]["vocab_size"] = 200
    data = prepare(Config.model_validate(config))
    files = sorted((tmp_path / "cache").glob("links-*/*.arrow"))
    sizes = [len(EncodedPairs([file])) for file in files]
    assert sum(sizes) == len(data.train) == len(data.links)
    assert 100 <= min(sizes) <= max(sizes) <= 350 and 1 < len(files) < len(data.blocks)
    numbers = data.links.lengths(0) - 1
    assert not numbers[data.sizes[0] : data.sizes[0] + data.sizes[1]].any()  # plain text
    assert (numbers == 0).mean() < 0.05
    sides = PieceWords(data.tokenizer.src), PieceWords(data.tokenizer.tgt)
    rows = range(len(data.links))
    ids = [(data.train.src(row), data.train.tgt(row)) for row in rows]
    word_of = [[side.word_of(row) for side, row in zip(sides, of_row)] for of_row in ids]
    words = [[side.words(row, of) for side, row, of in zip(sides, *of_row)] for of_row in zip(ids, word_of)]
    found = Counter()
    for row, (src, tgt) in zip(rows, word_of):
        of_row = set(zip(src[data.links.src(row)].tolist(), tgt[data.links.tgt(row)].tolist()))
        found.update((words[row][0][s], words[row][1][t]) for s, t in of_row)
    # It finds the words of the toy language.
    for word, translation in (("garden", "garten"), ("teacher", "lehrer")):
        assert max((pair for pair in found if pair[0] == word), key=found.get)[1] == translation
    last = len(rows) - sizes[-1]  # the same part gives the same links again
    for row, links in zip(rows[last:], aligned(words[last:])):
        src, tgt = word_of[row]
        of_row = set(zip(src[data.links.src(row)].tolist(), tgt[data.links.tgt(row)].tolist()))
        assert of_row == set(map(tuple, links.tolist()))


def test_the_aligner_uses_no_more_processes_than_fit_the_memory(corpus, monkeypatch):
    small_blocks(monkeypatch, rows=2)
    small_blocks(monkeypatch, aligned=2)
    aligned_in = []
    monkeypatch.setattr(training_links, "say", lambda text: aligned_in.append(os.getpid()))
    monkeypatch.setattr(training_links, "free_memory", lambda device: 1)
    assert len(prepare(corpus()).links) == 3
    assert len(aligned_in) > 1 and {*aligned_in} == {os.getpid()}


def test_links_follow_their_lines_when_a_dropped_pair_moves(corpus, tmp_path):
    config = corpus(file=str(tmp_path / "a.links"))
    before = prepare(config)
    pairs = [PAIRS[3], *PAIRS[:3], PAIRS[4]]  # the pair without a source is the first now
    write_aligned(tmp_path, [(*pair, line) for pair, line in zip(pairs, LINKS)])
    after = prepare(config)
    assert len(after.train) == len(before.train)
    assert len(before.links.src(1)) > 0 == len(after.links.src(1))


def test_a_corpus_that_lost_pairs_since_its_preparation_is_refused(corpus, tmp_path):
    config = corpus(file=str(tmp_path / "a.links"))
    data = prepare(config)
    write_aligned(tmp_path, [(*pair, line) for pair, line in zip(PAIRS[:3], LINKS)])
    with pytest.raises(InputError, match="a.de: has changed since its preparation"):
        training_links.with_links(config, data)
