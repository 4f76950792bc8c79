"""What `transformer-mt inspect` reports of planted faults, and that it does not of clean pairs."""

import re
import zlib
from functools import lru_cache

import pytest
import yaml

from scripts.plant_faults import FAULTS, MISALIGNED, NEAR, SHIFTED, looked, planted, reported
from tests.helpers.faults import no_search_for_misaligned_pairs
from transformer_mt.companions.inspection.checks import RepetitionCheck, TokenisedCheck, is_tokenised
from transformer_mt.companions.inspection.finding import Example, Finding, GroupSample, weight_of
from transformer_mt.companions.inspection.inspect import CorpusReport, Inspection, inspect
from transformer_mt.companions.inspection.inspection_report import (
    assessment,
    html_page,
    keys_to_add,
    markdown,
)
from transformer_mt.companions.inspection.shifted_lines import find_shifts
from transformer_mt.config.load import load_config
from transformer_mt.corpora import toy
from transformer_mt.corpora.held_out import BlockSample

LANGUAGES = ("en", "de")


@lru_cache
def clean(size):
    return list(toy.generate("train", size))


@pytest.fixture
def unaligned(monkeypatch):
    """Misaligned pairs are not looked for, which takes most of the time."""
    no_search_for_misaligned_pairs(monkeypatch)


def test_nothing_is_reported_of_clean_pairs():
    assert looked(clean(3000), LANGUAGES).findings == []


@pytest.mark.usefixtures("unaligned")
@pytest.mark.parametrize(
    "fault, share", [(fault, (0.01, 0.1)[number % 2]) for number, fault in enumerate([*FAULTS, NEAR])]
)
def test_nine_tenths_of_the_planted_faults_are_reported(fault, share):
    pairs, count = planted(clean(1000), fault, share)
    look = looked(pairs, LANGUAGES)
    assert 0.9 * count <= reported(look, fault) <= count
    (finding,) = [s for s in look.findings if s.what == fault]
    assert finding.examples
    if all(example.row for example in finding.examples):
        assert all(pairs[example.row - 1] == example.pair for example in finding.examples)


@pytest.mark.parametrize("size, share", [(3000, 10 / 3000), (3000, 0.5)])
def test_misaligned_pairs_are_found(size, share):
    pairs, count = planted(clean(size), MISALIGNED, share)
    look = looked(pairs, LANGUAGES)
    assert 0.5 * count <= reported(look, MISALIGNED) <= 1.5 * count
    (finding,) = [s for s in look.findings if s.what == MISALIGNED]
    assert all(clean(size)[e.row - 1] != e.pair == pairs[e.row - 1] for e in finding.examples[:3])


def test_few_pairs_are_not_called_misaligned():
    assert reported(looked(planted(clean(900), MISALIGNED, 0.5)[0], LANGUAGES), MISALIGNED) == 0


@pytest.mark.parametrize("share, least", [(0.04, 0.8), (1.0, 0.9)])
def test_shifted_lines_are_found_with_the_number_of_lines(share, least):
    pairs, count = planted(clean(3000), SHIFTED, share)
    if share == 1:
        pairs = [(src, tgt) for (src, _), (_, tgt) in zip(clean(3000)[:-1], clean(3000)[1:])]
        count = len(pairs)
    look = looked(pairs, LANGUAGES)
    assert reported(look, SHIFTED) >= least * count
    (finding,) = [s for s in look.findings if s.what == SHIFTED]
    assert finding.note.startswith("rows ")
    assert finding.note.endswith(": target line N-1 matches source line N")


def test_lines_shifted_by_more_than_one():
    sample = BlockSample()
    for row, ((src, _), (_, tgt)) in enumerate(zip(clean(3000)[3:], clean(3000))):
        sample.add(row, (src, tgt))
    assert [shift.by for shift in find_shifts(sample.blocks(), LANGUAGES)] == [3]
    assert find_shifts(sample.blocks()[:3], LANGUAGES) == []  # too few lines to say


@pytest.mark.parametrize(
    "text, language, expected",
    [
        ("Das ist gut .", "de", True),
        ("state @-@ of", "en", True),
        ("it 's good", "en", True),
        ("Das ist gut.", "de", False),
        ("Costs 3 . 5", "en", True),
        ("Wait ... what", "en", False),
        ("很好， 谢谢", "zh_Hans", True),
        ("他有 iPhone 手机，很好。", "zh", False),
        ("저는 학생입니다", "ko", False),
    ],
)
def test_tokenised_text(text, language, expected):
    assert is_tokenised(text, language) == expected


@pytest.mark.parametrize(
    "src, tgt, value",
    [("It is .", "这是", "source"), ("It is.", "这 是", "target"), ("It is .", "这 是", "true")],
)
def test_only_the_tokenised_side_is_to_be_joined(src, tgt, value):
    check = TokenisedCheck(("en", "zh"))
    for row in range(100):
        check.add(row, (src, tgt))
    assert check.findings()[0].action == f"filter: {{detokenize: {value}}}"


# Samples in flat memory


def test_blocks_are_consecutive_and_evenly_spaced():
    sample = BlockSample(size=4, most=10)
    for row in range(1001):
        sample.add(row, (str(row), ""))
    blocks = sample.blocks()
    assert 5 <= len(blocks) <= 11
    for block in blocks[:-1]:
        assert [src for src, _ in block.pairs] == [str(block.start + i) for i in range(4)]
    gaps = {second.start - first.start for first, second in zip(blocks[:-1], blocks[1:-1])}
    assert gaps == {4 * sample.stride}


@pytest.mark.parametrize("rows", [999, 100_000])
def test_the_weights_of_sampled_rows_sum_to_all_rows(rows):
    weights = [weight_of(row, 1000) for row in range(rows)]
    assert sum(weights) == pytest.approx(rows, rel=0.05)
    assert sum(map(bool, weights)) <= 1000 * (1 + rows.bit_length())


def test_a_sampled_key_has_all_its_pairs():
    sample = GroupSample(most=50)
    for round_ in range(3):
        for n in range(1000):
            sample.add(zlib.crc32(str(n).encode()), round_, (str(n), ""))
    groups = list(sample.groups())
    assert len(groups) <= 50 and all(len(group.partners) == 3 for group in groups)
    assert len(groups) * sample.weight == pytest.approx(1000, rel=0.5)


def test_a_group_too_large_for_the_sample_is_reported():
    check = RepetitionCheck(LANGUAGES)
    check._sides = GroupSample(most=10), GroupSample(most=10)
    for n in range(5000):
        check.add(n, (f"source {n}", f"target {n}" if n % 10 else "the same"))
    many = [s for s in check.findings() if s.what == "one target, many sources"]
    assert 450 <= many[0].pairs <= 1000


def test_a_large_source_with_a_single_target_has_not_many():
    check = RepetitionCheck(LANGUAGES)
    check._sides = GroupSample(most=10), GroupSample(most=10)
    for n in range(5000):
        check.add(n, ("All rights reserved", "Alle Rechte") if n % 10 == 0 else (f"s {n}", f"t {n}"))
    assert all(s.pairs == 0 for s in check.findings() if "many" in s.what)


@pytest.mark.parametrize("key_mask", range(4))
def test_a_pair_that_is_repeated_often_is_counted_as_often_as_it_is_there(key_mask):
    """Whether the sample of keys has its key or not: it was counted a multiple of times, or not at all."""
    check = RepetitionCheck(LANGUAGES)
    check._pairs = GroupSample(most=10)
    for n in range(5000):
        text = "".join(chr(97 + int(digit)) for digit in str(n))  # digits alone make no other sentence
        check.add(n, (f"again {'abcd'[key_mask]}", "noch einmal") if n % 10 == 0 else (text, text))
    (exact,) = [s for s in check.findings() if s.what == "exact duplicates"]
    assert 400 <= exact.pairs < 500


def test_sentences_that_differ_in_a_number_are_no_exact_duplicates():
    check = RepetitionCheck(LANGUAGES)
    for n in range(1000):
        check.add(n, (f"Chapter {n}", f"Kapitel {n}"))
    pairs = {finding.what: finding.pairs for finding in check.findings()}
    assert pairs["exact duplicates"] == 0 and pairs["near-duplicates"] == 997  # but for one of each length


# The whole


@pytest.fixture
def inspection(write_config, tmp_path):
    pairs, _ = planted(clean(400), "markup", 0.1)
    pairs[7] = ("", "leer")
    for side, name in ((0, "en"), (1, "de")):
        text = "".join(pair[side] + "\n" for pair in pairs)
        (tmp_path / f"corpus.{name}").write_text(text, encoding="utf-8")
    corpus = {"source": str(tmp_path / "corpus.en"), "target": str(tmp_path / "corpus.de"), "name": "mine"}
    train = [corpus, {"toy": "train", "size": 300, "filter": {"copy": True}}]
    return inspect(load_config(write_config(data={"train": train, "remove_duplicates": False})))


def test_a_config_is_inspected_with_its_validation_and_test_sets(inspection):
    mine, toy_train, valid, test = inspection.corpora
    assert [look.name for look in inspection.corpora] == ["mine", "toy train", "toy valid", "toy test"]
    assert [look.is_training for look in inspection.corpora] == [True, True, False, False]
    assert (mine.rows, mine.empty) == (400, 1)
    assert mine.scripts == ({"Latin": 1.0}, {"Latin": 1.0})
    assert inspection.vocab_size == 450 and mine.tokens[0] > 3
    assert "Good enough after a correction" in assessment(inspection) or "Not good" in assessment(inspection)
    assert "First, for mine: set filter: {markup: true} (markup, about" in assessment(inspection)


def test_few_pairs_without_weight_decay_are_noted(inspection, write_config):
    few = {"train": {"toy": "train", "size": 100}}
    muon = inspect(load_config(write_config(data=few, train={"optimizer": "muon"})))
    assert any("`train.weight_decay: 2`" in note for note in muon.notes)  # for 24 updates
    assert not any("weight_decay" in note for note in inspection.notes)  # adamw was not measured
    decayed = load_config(write_config(data=few, train={"optimizer": "muon", "weight_decay": 0.1}))
    assert not any("weight_decay" in note for note in inspect(decayed).notes)


def test_the_reports_have_every_suspicion_and_escape_text(inspection):
    page, report = html_page(inspection), markdown(inspection)
    assert "&lt;b&gt;" in page and "<b>" not in page
    assert not re.search(r"(src|href)=|<script", page)  # self-contained
    for text in ("markup", "mine", "toy valid", assessment(inspection)):
        assert text in report
    assert len(re.findall(r"^- row", report, re.M)) == 5


def look(rows, *findings, is_training=True, name="c"):
    empty: tuple = ({}, {})
    return CorpusReport(name, LANGUAGES, is_training, rows, 0, ([], []), empty, list(findings), [])


@pytest.mark.parametrize(
    "looks, expected",
    [
        (
            [look(500)],
            "Good enough; about 500 usable pairs are few. First, get more data; no other setting "
            "needs to change.",
        ),
        (
            [look(50_000, Finding("markup", "filter: {markup: true}", 1000))],
            "Good enough after a correction: about 49,000 pairs are usable as they are. First, for c: set "
            "filter: {markup: true} (markup, about 1,000 pairs, 2.0%).",
        ),
        (
            [look(50_000, Finding("shifted lines", "add lines", 20_000))],
            "Not good enough yet: about 30,000 pairs are usable as they are. First, for c: add lines "
            "(shifted lines, about 20,000 pairs, 40.0%).",
        ),
        (  # what is dropped by default needs nothing
            [look(50_000, Finding("exact duplicates", "done already", 25_000, weight=0.0))],
            "Good enough: about 25,000 usable pairs. First, train; no other setting needs to change.",
        ),
        (  # a bad test set is worth a correction, too
            [look(50_000), look(100, Finding("wrong language", "act", 50), is_training=False, name="t")],
            "Not good enough yet: about 50,000 pairs are usable as they are. First, for t: look at the "
            "examples (wrong language, about 50 pairs, 50.0%).",
        ),
        (  # all of it is in a test set, too
            [look(300, Finding("validation or test sentences", "done already", 300, weight=0.0))],
            "Not good enough: no pair is left for training. First, look at the table of each corpus.",
        ),
        (  # some odd pairs in it are not, since no rule drops them
            [look(50_000), look(100, Finding("wrong language", "act", 5), is_training=False, name="t")],
            "Good enough: about 50,000 usable pairs. Found: wrong language (about 5 pairs of t). First, "
            "look at the examples, then train; no key acts on such pairs.",
        ),
        (  # a few pairs in a hundred thousand
            [look(100_000, Finding("markup", "filter: {markup: true}", 60))],
            "Good enough: about 99,940 usable pairs. Found: markup (about 60 pairs). First, add the keys "
            "below, then train; they act on some of these pairs.",
        ),
        (  # the others are named, too
            [look(50_000, Finding("markup", "act", 4_000), Finding("escaped text", "act", 60))],
            "Good enough after a correction: about 45,945 pairs are usable as they are. First, for c: act "
            "(markup, about 4,000 pairs, 8.0%). Also found: escaped text (about 60 pairs).",
        ),
    ],
)
def test_the_verdict_names_every_finding(looks, expected):
    assert assessment(Inspection("x", looks, [], None)) == expected


@pytest.mark.usefixtures("unaligned")
def test_the_keys_stand_in_one_block_to_paste(write_config, tmp_path):
    lines = [f"{src}\t{tgt}" for src, tgt in clean(2000)]
    lines[5:15] = [f"<b>{n}</b> {line}" for n, line in enumerate(lines[5:15])]
    lines[20:30] = [line.upper() for line in lines[40:50]]
    (tmp_path / "a.tsv").write_text("\n".join(lines) + "\n")
    corpus = {"file": str(tmp_path / "a.tsv"), "columns": [1, 2]}
    config = load_config(write_config(data={"train": corpus, "filter": {"copy": True}}))
    block = re.search(r"```yaml\n(.*?)```", markdown(inspect(config)), re.S)[1]
    assert block == "data:\n  remove_duplicates: near\n  filter: {copy: true, markup: true}\n"
    added = load_config(write_config(data={"train": corpus, **yaml.safe_load(block)["data"]}))
    report = markdown(inspect(added))
    assert "```" not in report and "no other setting needs to change" in report


def test_the_block_has_each_key_once_and_rules_of_an_entry_as_a_comment():
    markup = Finding("markup", "filter: {markup: true}", 60)
    near = Finding("n", "data.remove_duplicates: near", 60)
    exact = Finding("exact duplicates", "data.remove_duplicates: true", 60)
    both = Inspection("x", [look(9_000, near, exact)], [], None)
    assert keys_to_add(both) == "data:\n  remove_duplicates: near\n"
    report = look(9_000, markup)
    report.has_own_rules, report.rules = True, {"copy": True}
    comment = "# in the entry of c: filter: {copy: true, markup: true}\n"
    assert keys_to_add(Inspection("x", [report], [], None)) == comment
    several = [look(9_000, markup, name="a"), look(9_000, name="b")]
    assert keys_to_add(Inspection("x", several, [], None)) == "# in the entry of a: filter: {markup: true}\n"
    assert keys_to_add(Inspection("x", [look(9_000)], [], None)) == ""


def test_without_the_extras_their_checks_are_left_out_and_it_is_said(write_config, monkeypatch):
    import sys

    from transformer_mt.text import languages

    languages._model.cache_clear()
    for name in ("py3langid.langid", "thot", "thot.alignment"):
        monkeypatch.setitem(sys.modules, name, None)
    report = markdown(inspect(load_config(write_config(data={"train": {"toy": "train", "size": 100}}))))
    assert "Languages were not checked: py3langid, which identifies languages, is not installed" in report
    assert "Misaligned pairs were not looked for: to align words this needs thot: pip install" in report
    languages._model.cache_clear()


def test_a_test_split_that_is_not_there_is_a_note(write_config, tmp_path):
    (tmp_path / "train.jsonl").write_text('{"en": "one dog", "de": "ein Hund"}\n' * 5, encoding="utf-8")
    test = {"hub": str(tmp_path), "split": "test"}
    report = inspect(load_config(write_config(data={"train": {"toy": "train", "size": 100}, "test": [test]})))
    assert "no split `test`; the splits are train" in markdown(report) and len(report.corpora) == 2


def test_of_many_damaged_rows_some_are_named(write_config, tmp_path):
    (tmp_path / "a.tsv").write_text("en\tde\n" + "one\teins\ntwo\n" * 300, encoding="utf-8")
    found = inspect(load_config(write_config(data={"train": {"file": str(tmp_path / "a.tsv")}})))
    (damaged,) = (f for f in found.corpora[0].findings if f.what == "damaged rows")
    assert damaged.note.endswith("; and 280 more") and len(damaged.note) < 2000


@pytest.mark.usefixtures("unaligned")
def test_a_single_damaged_row_is_named_first_as_training_refuses_it(write_config, tmp_path):
    lines = "".join(f"one dog number {i}\tein Hund Nummer {i}\n" for i in range(3000))
    (tmp_path / "a.tsv").write_text(f"en\tde\n{lines}two\n", encoding="utf-8")
    (tmp_path / "v.tsv").write_text(
        "en\tde\ntwo\n" + "a cat sleeps\teine Katze schläft\n" * 3, encoding="utf-8"
    )
    good = {"file": str(tmp_path / "a.tsv"), "damaged_rows": "drop"}
    for train, valid, first in (
        ({"file": str(tmp_path / "a.tsv")}, {"toy": "valid"}, "a.tsv"),
        (good, {"file": str(tmp_path / "v.tsv")}, "v.tsv"),
    ):
        text = markdown(inspect(load_config(write_config(data={"train": train, "valid": valid}))))
        assert "Not good enough yet" in text and f"{first}: correct them, or damaged_rows: drop" in text


def test_a_key_that_is_on_is_said_to_be_on(write_config, tmp_path):
    (tmp_path / "a.tsv").write_text("en\tde\n" + "<b>same</b>\t<b>same</b>\n" * 20, encoding="utf-8")
    entry = {"file": str(tmp_path / "a.tsv"), "filter": {"copy": True}}
    found = inspect(load_config(write_config(data={"train": entry}))).corpora[0]
    actions = {s.what: s.action for s in found.findings}
    assert actions["source equals target"] == "already done (filter: {copy: true})"
    assert actions["markup"] == "filter: {markup: true}"
    assert actions["exact duplicates"] == "already done (data.remove_duplicates: true)"


@pytest.mark.parametrize(
    "joined, action",
    [
        (False, "filter: {detokenize: target}"),
        ("source", "filter: {detokenize: true}"),
        ("target", "left after joining; look at the examples"),
        (True, "left after joining; look at the examples"),
    ],
)
def test_a_side_that_is_not_joined_is_still_to_be_joined(joined, action):
    check = TokenisedCheck(("en", "de"), joined)
    for row in range(100):
        check.add(row, ("It is.", "Das ist ."))
    (finding,) = check.findings()
    assert finding.action == action and (finding.weight == 0) == action.startswith("left")


def test_a_few_marks_do_not_make_a_corpus_tokenised():
    """`detokenize` changes all pairs, of which most would be right."""
    check = TokenisedCheck(("en", "de"))
    for row in range(2000):
        check.add(row, ("It is .", "Das ist .") if row % 700 == 0 else ("It is.", "Das ist."))
    (finding,) = check.findings()
    assert finding.pairs == 3 and not finding.is_setting and finding.weight == 0


def test_joined_text_is_not_to_be_joined_again(write_config, tmp_path):
    rows = [f"It is {n} .\tDas ist {n} .\n" for n in range(40)]
    (tmp_path / "a.tsv").write_text("en\tde\n" + "".join(rows), encoding="utf-8")
    entry = {"file": str(tmp_path / "a.tsv"), "filter": {"detokenize": "source"}}
    found = inspect(load_config(write_config(data={"train": entry}))).corpora[0]
    actions = {s.what: s.action for s in found.findings}
    assert actions["tokenised text"] == "filter: {detokenize: true}"


def test_plain_text_is_not_called_a_copy_of_itself(write_config):
    text = {"toy": "train", "size": 300, "language": "de", "objective": "denoise"}
    data = {"train": text, "valid": {"from_train": {"share": 0.1}}, "test": []}
    found = inspect(load_config(write_config(data=data)))
    assert "source equals target" not in [finding.what for finding in found.corpora[0].findings]


def test_references_in_synthetic_pairs_are_counted(write_config, tmp_path):
    references = [german for _, german in toy.generate("valid", 30)]
    rows = [f"New text {n}.\t{german}\n" for n, german in enumerate(references)]
    (tmp_path / "a.tsv").write_text("en\tde\n" + "".join(rows), encoding="utf-8")
    entry = {"file": str(tmp_path / "a.tsv"), "synthetic": True}
    data = {"train": entry, "valid": {"toy": "valid", "size": 30}}
    found = inspect(load_config(write_config(data=data))).corpora[0]
    (leak,) = [s for s in found.findings if s.what == "validation or test sentences"]
    assert leak.pairs == 30


def test_duplicates_that_are_kept_are_not_said_to_be_dropped(write_config, tmp_path):
    (tmp_path / "a.tsv").write_text("en\tde\n" + "a dog\tein Hund\n" * 20, encoding="utf-8")
    config = write_config(data={"train": {"file": str(tmp_path / "a.tsv")}, "remove_duplicates": False})
    (exact,) = [s for s in inspect(load_config(config)).corpora[0].findings if s.what == "exact duplicates"]
    assert exact.action == "data.remove_duplicates: true" and exact.weight == 1.0


def test_a_ratio_that_is_set_is_not_advised_again(write_config, tmp_path):
    rows = [f"{src}\t{tgt}\n" for src, tgt in planted(clean(400), "unbalanced lengths", 0.1)[0]]
    (tmp_path / "a.tsv").write_text("en\tde\n" + "".join(rows), encoding="utf-8")
    data = {"train": {"file": str(tmp_path / "a.tsv")}, "max_length_ratio": 2.0}
    found = inspect(load_config(write_config(data=data))).corpora[0]
    (unbalanced,) = [s for s in found.findings if s.what == "unbalanced lengths"]
    assert unbalanced.action == "already done (data.max_length_ratio: 2.0)" and unbalanced.weight == 0


def test_labels_are_not_compared_with_translations():
    """They are short, repeat, and have no numbers of the text."""
    pairs = [(f"A film {'that goes on ' * (n % 9)}with {n} scenes.", str(n % 2)) for n in range(2000)]
    for languages in (("en", "label"), ("label", "en")):
        findings = looked(pairs, languages).findings
        assert not {"unbalanced lengths", "numbers that differ", "one target, many sources"} & {
            finding.what for finding in findings
        }


def test_a_language_that_is_not_known_is_not_filtered():
    rows = [(french, tgt) for (_, tgt), french in zip(clean(60), ["Le chien traverse la rue."] * 60)]
    (wrong,) = [s for s in looked(rows, ("en", "tlh")).findings if s.what == "wrong language"]
    assert wrong.action == "remove these pairs; filter.language does not know tlh"


def test_control_characters_are_not_printed(write_config, tmp_path):
    rows = [f"Hello \x1b[2J {n}\tHallo\rda {n}\n" for n in range(30)]
    (tmp_path / "a.tsv").write_text("en\tde\n" + "".join(rows), encoding="utf-8", newline="\n")
    report = markdown(inspect(load_config(write_config(data={"train": {"file": str(tmp_path / "a.tsv")}}))))
    assert "\x1b" not in report and "\r" not in report and r"Hello \x1b[2J" in report


def test_examples_are_spread_over_the_corpus():
    finding = Finding("x", "y")
    for row in range(1000):
        finding.add(row, (str(row), ""), 1)
    rows = [example.row for example in finding.examples]
    assert len(rows) == 5 and max(rows) > 400
    assert finding.examples[0] == Example(rows[0], (str(rows[0] - 1), ""))


def test_all_damaged_rows_are_listed(tmp_path):
    """`inspect` does not end at the first of them, as training does."""
    rows = [
        f"The dog {i} sleeps.\tDer Hund {i} schläft.{chr(9) + 'x' if i % 3 == 0 else ''}\n" for i in range(30)
    ]
    (tmp_path / "a.tsv").write_text("en\tde\n" + "".join(rows), encoding="utf-8")
    config = tmp_path / "a.yaml"
    for policy, action in (("refuse", "correct them, or damaged_rows: drop"), ("drop", "already done")):
        config.write_text(
            "data:\n  source_lang: en\n  target_lang: de\n  valid: {toy: valid, size: 20}\n"
            f"  train: {{file: {tmp_path / 'a.tsv'}, damaged_rows: {policy}}}\n",
            encoding="utf-8",
        )
        inspected = inspect(load_config(config))
        (report, _) = inspected.corpora
        finding = next(finding for finding in report.findings if finding.what == "damaged rows")
        assert (report.rows, finding.pairs) == (20, 10) and finding.action.startswith(action)
        assert all(f"row {i + 2} must have 2 columns, but has 3" in finding.note for i in range(0, 30, 3))
        assert "row 2 must have 2 columns" in markdown(inspected)
