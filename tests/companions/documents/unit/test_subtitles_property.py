"""Random subtitles through a model that writes capitals come back as they were, but for the words."""

import random

import pytest

from tests.helpers.upper_case import capitals, upper_case_translator
from transformer_mt.companions.documents.document_translation import translate_pieces
from transformer_mt.companions.documents.subtitles import parse_srt

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
        parts += [
            f"{number}{end}" * (draw.random() < 0.95),
            " --> ".join(stamps),
            draw.choice(("", " X1:10")),
            end,
        ]
        parts += [end.join(lines), end * draw.choice((1, 2, 2, 2, 3))]
    return draw.choice(("", "\ufeff")) + "".join(parts)


def translated(srt):
    translator = upper_case_translator()
    return "".join(part.written for part in translate_pieces(translator, parse_srt(srt, "de")))


@pytest.mark.parametrize("start", range(0, 1000, 100))
def test_only_the_words_change(start):
    for seed in range(start, start + 100):
        srt = file(random.Random(seed))
        assert capitals(translated(srt)) == capitals(srt), f"seed {seed}"
