from transformer_mt.corpora import toy
from transformer_mt.corpora.held_out import EvaluationSet
from transformer_mt.evaluation.set_evaluation import notes_on_set

PAIRS = list(toy.generate("test", 40))


def notes(pairs, languages=("en", "de")):
    sentences = [(src, (tgt,)) for src, tgt in pairs]
    return [
        line.removeprefix("note: a set: ")
        for line in notes_on_set(EvaluationSet("t", "a set", sentences), languages)
    ]


def test_a_sound_set_has_no_notes():
    assert notes(PAIRS) == []
    assert notes([(src, "label") for src, _ in PAIRS], ("en", "label")) == []  # nothing is known of labels


def test_what_is_wrong_with_a_set_is_said_in_a_line_each():
    assert notes([("", "x"), (" ", ""), *PAIRS]) == [
        "2 of 42 sources are empty",
        "1 of 42 references are empty",
    ]
    assert notes([*PAIRS, *PAIRS]) == ["40 of 80 sentences are repeated, with the same references"]
    assert notes([*PAIRS[:30], *((f"{src} x", f"{src} x") for src, _ in PAIRS[30:])]) == [
        "10 of 40 references copy the source"
    ]
    swapped = notes([(tgt, src) for src, tgt in PAIRS])
    assert len(swapped) == 2 and swapped[0].endswith("of the sources are likely not en")
    (line,) = notes([(src, "今天第一只狗在房子里睡觉。" + str(i)) for i, (src, _) in enumerate(PAIRS)])
    assert line == "100% of the references are likely not de"


def test_several_references_are_one_sentence():
    sentences = [(src, (tgt, tgt + " ja")) for src, tgt in PAIRS]
    assert list(notes_on_set(EvaluationSet("t", "a set", sentences), ("en", "de"))) == []
    sentences[0] = (PAIRS[0][0], ("", "Ja."))
    assert list(notes_on_set(EvaluationSet("t", "a set", sentences), ("en", "de"))) == []
