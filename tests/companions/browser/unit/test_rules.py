"""The page does by rules what `translate` does: both read the same patterns, and both are asked the same."""

# ruff: noqa: E501 - lines that a table holds
import json
import random
import subprocess

import pytest

from tests.conftest import ROOT
from tests.helpers.node import NODE
from transformer_mt.companions.browser.page import rules_of
from transformer_mt.config import DecodeConfig
from transformer_mt.text.sentences import match_end
from transformer_mt.translation.stages.text_stages import Capitals, Edges, Unchanged, capitals_of
from transformer_mt.translation.units import SourceLine

PAIRS = [("en", "de"), ("de", "en"), ("tr", "en"), ("en", "tr"), ("en", "el"), ("en", "ka"), ("en", "zh")]
LINES = [
    "The dog sleeps.", "", "   ", "---", "2024", "* * *", "12.50", "😀 😀", "12 kg", "3,5 km/h", "- A dog", "+ A dog", "1) A dog",
    "1. A dog", "(a) A dog", "• ", "https://example.org/a?b=c", "see www.example.org/x", "me@example.org", "%s", "{name}",
    "{{ name }}", "<b>", "&nbsp;", "THE DOG SLEEPS.", "EU, NATO", "I SEE A DOG AND I RUN", "STRASSE", "STRAßE IST LANG",
    "ΟΔΟΣ ΤΩΝ ΣΚΥΛΩΝ", "İSTANBUL'DA IŞIK VAR", "ISTANBUL IS A CITY", "  A DOG, 12 KG\t", "狗睡觉。", "「狗」", "dog?!", "dog…",
    "dog.", "the dog (sleeps.)", "A\u00adB", "%(name)s %5.2f", "${HOME}", "5 %", "°C", "Ǆ", "ﬁ", "ᾳ", "ÉTÉ COMME HIVER", "🇩🇪",
    "A", "ABCDE", "ABCD", "A B C", "HTTP://EXAMPLE.ORG/PATH", "5G", "№ 5", "½", "Ⅳ", "ª",
]  # fmt: skip
PARTS = [
    *"abABÉßiIıİσΣ.!?。！…)(\"'12,-•%{}<>@:/°😀狗\t", "http://", "www.", "kg", "km",
]  # fmt: skip


def lines():
    draw = random.Random(0)
    return [
        *LINES,
        *("".join(draw.choice([*PARTS, " "]) for _ in range(draw.randint(1, 12))) for _ in range(1500)),
    ]


def by_stages(text, source, target, match_ends):
    """The line where the model says what it is asked."""
    line = SourceLine.of(text)
    for stage in (Edges(source), Capitals(source, target), Unchanged()):
        stage.divide(line)
    written = ""
    for segment in line.segments:
        if segment.known is not None:
            written += segment.known
        elif segment.replacement is not None:
            written += "".join(capitals_of(segment.searched, target))
        else:
            written += segment.text
    result = line.before + written + line.after
    return match_end(text, result, target) if match_ends else result


@pytest.mark.skipif(NODE is None, reason="there is no Node; install the package nodejs")
def test_the_page_and_the_stages_do_the_same(tmp_path):
    script = ROOT / "transformer_mt/companions/browser/web/translator.js"
    (tmp_path / "translator.mjs").write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
    cases, expected = [], []
    for source, target in PAIRS:
        for match_ends in (False, True):
            rules = rules_of(source, target, DecodeConfig(match_ends=match_ends))
            direction = {"from": source, "to": target, "before": [], "prompt": [], "rules": rules}
            direction |= {"source_has_spaces": True, "target_has_spaces": True}
            cases.append([direction, lines()])
            expected.append([by_stages(line, source, target, match_ends) for line in lines()])
    program = """import { readFileSync } from "node:fs";
    import { Translator } from "./translator.mjs";
    const answers = [];
    for (const [direction, lines] of JSON.parse(readFileSync(0, "utf8"))) {
      const facts = { directions: [direction], never: [], tags: {}, max_source: 64, split_sentences: false };
      const translator = new Translator({}, facts, [null, null], [{}]);
      translator.encode = (text) => [text];
      translator.searched = async (asked) => asked.map(([text]) => ({ text }));
      const all = [];
      for (const line of lines) all.push(await translator.translate(line));
      answers.push(all);
    }
    console.log(JSON.stringify(answers));"""
    for (direction, _), ours, theirs in zip(cases, expected, _run(program, cases, tmp_path), strict=True):
        differing = [(line, a, b) for line, a, b in zip(lines(), ours, theirs, strict=True) if a != b]
        assert differing == [], f"{direction['from']} to {direction['to']}"


def _run(program, cases, folder):
    (folder / "run.mjs").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [NODE, "run.mjs"], input=json.dumps(cases), capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
