"""Subtitles: times and tags stay, sentences over several subtitles are one text."""

import random
import re
from dataclasses import replace

import pytest

from tests.helpers.upper_case import capitals, upper_case_translator
from transformer_mt.companions.documents.document_translation import translate_pieces
from transformer_mt.companions.documents.markup.marked_text import BREAK, MarkedText
from transformer_mt.companions.documents.subtitles import parse_srt
from transformer_mt.errors import InputError


def srt(*contents):
    return "".join(
        f"{n}\n00:00:{n:02},000 --> 00:00:{n:02},900\n{content}\n\n" for n, content in enumerate(contents, 1)
    )


def texts(*contents):
    pieces = parse_srt(srt(*contents), "de")
    return [piece.text for piece in pieces if isinstance(piece, MarkedText)]


def written(pieces):
    return "".join(piece if isinstance(piece, str) else piece.render() for piece in pieces)


@pytest.mark.parametrize(
    "contents, expected",
    [
        (["One line.", "Another."], ["One line.", "Another."]),
        (["The old teacher", "sees a bird", "in the garden.", "Then"],
         ["The old teacher sees a bird in the garden.", "Then"]),
        (["- Yes?\n- No."], ["Yes?", "No."]),
        (["...", "12:30", ""], []),
        (["{\\an8}up here"], ["up here"]),
        (["<i>all of it</i>"], ["all of it"]),
        (["an open <i>tag", "and its end</i> here."], ["an open tag and its end here."]),
        (["<i>The <i>dog</i>", "and the cat", "sleep."], ["The dog and the cat sleep."]),
        (["<b>The <i>dog</b> sleeps</i>."], ["The dog sleeps."]),
        (["<i>- The dog.\n- The cat.</i>"], ["The dog.", "The cat."]),
    ],
)  # fmt: skip
def test_texts_are_sentences_and_all_else_stays(contents, expected):
    assert texts(*contents) == expected
    assert written(parse_srt(srt(*contents), "de")) == srt(*contents)


def test_positions_of_later_subtitles_of_a_sentence_stay():
    out = written(parse_srt(srt("{\\an8}The dog #", "{\\an8}and the cat sleep."), "de"))
    assert out.count("{\\an8}") == 2 and out.count("#") == 1
    assert out.index("{\\an8}and") > out.index("00:00:02")


def test_chinese_is_divided_between_characters_but_never_in_a_tag():
    pieces = parse_srt(srt("one two"), "zh")
    (text,) = [piece for piece in pieces if isinstance(piece, MarkedText)]
    assert "\n" in text.finish("这是一个很长的句子，" * 4)
    for size in range(1, 40):
        out = text.finish("我" * size + " <i>睡觉</i>了{\\an8}" + "吗" * 20)
        assert "<i>" in out and "</i>" in out and "{\\an8}" in out


def test_long_lines_are_divided_evenly_and_tags_stay_whole():
    pieces = parse_srt(srt("<i>short</i>"), "de")
    (text,) = [piece for piece in pieces if isinstance(piece, MarkedText)]
    words = "viele Wörter " * 6
    out = text.finish(f"<font color=red>{words.strip()}</font>").split("\n")
    assert len(out) == 2 and max(map(len, out)) - min(map(len, out)) < 20
    assert "<font color=red>" in out[0] and "</font>" in out[1]


def test_a_subtitle_never_becomes_empty():
    """Where the alignment puts a break at an end, the text is divided in proportion."""
    pieces = parse_srt(srt("The old teacher", "sees a bird."), "de")
    (text,) = [piece for piece in pieces if isinstance(piece, MarkedText)]
    parts = re.split(r"\n\n2\n.*\n", text.finish(BREAK + "Der alte Lehrer sieht einen Vogel."))
    assert len(parts) == 2 and all(parts)


SONG = "♪ A man is playing ♪"


@pytest.mark.parametrize(
    "contents, expected",
    [
        # Lyrics: each line between notes.
        ([f"{SONG}\n♪ A woman is singing ♪"], ["A man is playing", "A woman is singing"]),
        (["<i>♪ A man</i>\n<i># is playing</i>"], ["A man", "is playing"]),
        (["♪ A man\nis playing ♪"], ["A man is playing"]),
        # Speakers and remarks.
        ([">> Who?\n>>> News."], ["Who?", "News."]),
        (["<i>- Yes.</i>\n<i>– No.</i>"], ["Yes.", "No."]),
        (["[door slams]\nWho is it?"], ["door slams", "Who is it?"]),
        (["- (SIGHS) I know.\n- [laughs]"], ["SIGHS", "I know.", "laughs"]),
        (["A man\n\nA woman"], ["A man", "A woman"]),
    ],
)
def test_lines_of_their_own(contents, expected):
    assert texts(*contents) == expected
    assert written(parse_srt(srt(*contents), "de")) == srt(*contents)


def cue(number, begin, content):
    times = [f"00:00:{begin:02},000", f"00:00:{begin + 1:02},500"]
    return f"{number}\n{' --> '.join(times)}\n{content}\n\n"


def cut(*cues):
    return [piece.text for piece in parse_srt("".join(cues), "de") if isinstance(piece, MarkedText)]


def test_subtitles_are_joined_only_across_a_short_gap():
    near, far = cue(2, 3, "runs in the street."), cue(2, 10, "runs in the street.")
    assert cut(cue(1, 1, "The man"), near) == ["The man runs in the street."]
    assert cut(cue(1, 1, "The man"), far) == ["The man", "runs in the street."]


def test_subtitles_without_sentence_ends_are_not_joined():
    """Speech recognition writes neither capitals nor stops."""
    lines = [cue(n, 2 * n, f"a man number is running {'x' * n}") for n in range(1, 12)]
    assert len(cut(*lines)) == 11
    ended = [cue(n, 2 * n, f"a man is running {'x' * n}{'.' * (n % 2)}") for n in range(1, 12)]
    assert len(cut(*ended)) == 6


@pytest.mark.parametrize(
    "source",
    [
        "\ufeff1\r\n00:00:01,000 --> 00:00:02,000\r\nA dog\r\nruns.\r\n\r\n\r\n2\r\n00:00:03.5 --> "
        "00:00:04.0 X1:5\r\nA cat\r\n",
        "00:00:01,000 --> 00:00:02,000\nno number\n\n\n00:00:03,000 --> 00:00:04,000\n\n",
        "7\n0:0:1,0 --> 0:0:2,5\n  spaces  \n here \n\n",
        "",
        "\n\n",
    ],
)
def test_files_in_other_forms_stay_as_they_are(source):
    assert written(parse_srt(source, "de")) == source


def test_times_without_hours_are_minutes_and_seconds():
    out = written(parse_srt("1\n00:01,000 --> 00:02,500\nA dog is running.\n\n", "de"))
    assert out == "1\n00:00:01,000 --> 00:00:02,500\nA dog is running.\n\n"


@pytest.mark.parametrize("times", ["00:00:01 --> 00:00:02", "1,000 --> 2,000", "a --> b"])
def test_times_in_no_known_form_are_refused_with_their_line(times):
    good = "1\n00:00:01,000 --> 00:00:02,000\nA dog.\n\n"
    with pytest.raises(
        InputError, match=r"x.srt: must have times such as 00:00:01,000 in line 6, but has others"
    ):
        parse_srt(f"{good}2\n{times}\nA cat.\n", "de", "x.srt")


def test_what_is_no_subtitles_is_refused():
    with pytest.raises(InputError, match="x.srt: must be subtitles in SRT format, but line 1 is not"):
        parse_srt("hello\nworld", "de", "x.srt")


def test_cues_without_words_keep_their_heads():
    lines = [cue(1, 1, "A dog."), cue(2, 3, "www.opensubtitles.org"), cue(3, 4, "www.addic7ed.com")]
    assert written(parse_srt("".join(lines), "de")) == "".join(lines)


def test_cues_in_the_wrong_order_are_not_joined():
    assert cut(cue(1, 50, "A man is"), cue(2, 1, "running away.")) == ["A man is", "running away."]


def test_a_line_that_is_divided_has_the_line_ends_of_the_file():
    pieces = parse_srt(cue(1, 1, "short").replace("\n", "\r\n"), "de")
    (text,) = [piece for piece in pieces if isinstance(piece, MarkedText)]
    assert text.finish("viele Wörter " * 6).count("\r\n") == 1


def test_a_subtitle_that_is_left_without_text_is_reported():
    class Short:
        """A translator whose every translation is one word."""

        def __init__(self):
            self.translator = upper_case_translator()

        def stream(self, lines, options):
            return self.translator.stream(["Ja" for _ in lines], options)

    pieces = parse_srt(cue(1, 1, "The man") + cue(2, 3, "runs.") + cue(3, 9, "Yes."), "de")
    problems = [problem for part in translate_pieces(Short(), pieces) for problem in part.problems]
    assert problems == ["a subtitle has no text: 'JA' is split into 2"]


@pytest.mark.parametrize("name", ["JOHN: ", "- JOHN: ", "MR. SMITH: ", ">> ANNA-LENA: ", "МАМА: "])
def test_a_speakers_name_in_capitals_stays(name):
    cue = f"1\n00:00:01,000 --> 00:00:02,000\n{name}I am here.\nAnd I: too.\n"
    pieces = parse_srt(cue, "de")
    assert name in pieces
    assert [piece.text for piece in pieces if isinstance(piece, MarkedText)] == ["I am here.", "And I: too."]


def test_no_space_is_lost_where_the_break_is_elsewhere_in_the_translation():
    source = srt("Because the child does not sleep,", "the mother sings.")
    (text,) = (piece for piece in parse_srt(source, "de") if isinstance(piece, MarkedText))
    (mark,) = text.marks
    german = "Weil das Kind nicht schläft, singt die Mutter."
    for at in (german.index("singt"), german.index(" die")):
        moved = replace(mark, begin=at, end=at)
        rendered = replace(text, text=german, marks=(moved,)).render()
        words = re.sub(r"\d\n[^\n]*-->[^\n]*", "", rendered).split()
        assert words == german.split()


# Random subtitles through a model that writes capitals come back as they were, but for the words.


_WORDS = ("a", "dog", "runs", "fast", "über", "don't", "the", "cat,", "(see", "there)", "x.", "I", "what?")
_OTHERS = ("42", "3.5 kg", "…", "&", "<3", "{name}", "https://x.example/a", "...", "12:30", "&amp;", "🌷")
_LINES = (
    "{}", "{}", "- {}", "– {}", "♪ {} ♪", "# {}", ">> {}", "[{}]", "({}) {}", "<i>{}</i>", "<i>- {}</i>",
    "{{\\an8}}{}", "<b>{} {}</b> {}", "{} <i>{}</i>", '<font color="red">{}</font>', "<i>{}", "{}</i>",
    "  {} ",     "♪ <i>{}</i> ♪", "<i>♪ {} ♪</i>",
)  # fmt: skip


def words(draw):
    return " ".join(
        draw.choice(_OTHERS if draw.random() < 0.15 else _WORDS) for _ in range(draw.randint(1, 7))
    )


def file(draw):
    end, time, parts = draw.choice(("\n", "\r\n")), 0, []
    for number in range(1, draw.randint(2, 8)):
        time += draw.choice((1, 1, 1, 5, 100))
        stamps = [
            f"{t // 3600:02}:{t // 60 % 60:02}:{t % 60:02}{draw.choice(',.')}{draw.randint(0, 999):03}"
            for t in (time, time + 1)
        ]
        lines = []
        for _ in range(draw.choice((1, 1, 2, 2, 3))):
            template = draw.choice(_LINES)
            lines.append(template.format(*(words(draw) for _ in range(3))))
        parts += [f"{number}{end}" * (draw.random() < 0.95), " --> ".join(stamps)]
        parts += [draw.choice(("", " X1:10")), end]
        parts += [end.join(lines), end * draw.choice((1, 2, 2, 2, 3))]
    return draw.choice(("", "\ufeff")) + "".join(parts)


def translated(srt):
    translator = upper_case_translator()
    return "".join(part.written for part in translate_pieces(translator, parse_srt(srt, "de")))


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_of_random_subtitles_only_the_words_change(count):
    for seed in range(count):
        srt = file(random.Random(seed))
        assert capitals(translated(srt)) == capitals(srt), f"seed {seed}"
