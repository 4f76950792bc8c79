"""Placeholders of programs come through a model that drops, doubles and changes words, or are reported."""

import json
import random

import pytest

from tests.helpers.upper_case import UpperCaseEngine, upper_case_translator
from transformer_mt.companions.documents.document_translation import parse, translate_pieces
from transformer_mt.data.vocabulary.tokenizer import EOS
from transformer_mt.search.hypothesis import Hypothesis

GRAMMARS = {
    "printf": ("%s", "%1$s", "%-5.2f", "%%", "%@", "%ld", "%*d", "%2$@"),
    "Python": ("{}", "{name}", "{total:,.2f}", "{pct:.1%}", "{n:>10}", "{user.name!r}", "%(count)d"),
    ".NET": ("{0}", "{0:N2}", "{1,10:yyyy}"),
    "ICU": ("{count, number}", "{when, date, short}"),
    "templates": ("{{name}}", "{{ n, number }}", "${name}", "#{name}", "%{name}", "%<total>.2f", "%name%"),
    "i18next": ("$t(common.woman)", "__name__"),
    "Laravel": (":name", ":attribute"),
    "extensions": ("$USER$", "$1"),
    "Vue": ("@:common.woman", "@.lower:common.woman"),
    "tags": ("<0/>", "<br/>", "&nbsp;"),
    "dates": ("%Y-%m-%d", "%H:%M"),
    "Fluent": ("{ $user }", "{ -brand }"),
}
WORDS = ("a", "dog", "runs", "in", "the", "garden", "and", "Sees", "half")


class CarelessEngine(UpperCaseEngine):
    """Writes the words of its source in capitals; some it drops, some it writes twice."""

    def search(self, requests, settings, n_best):
        for i, request in enumerate(requests):
            text = self.tokenizer.src.decode(request.src)
            rng = random.Random(text)
            words = [word.upper() for word in text.split() for _ in range(rng.choice((0, 1, 1, 1, 2)))]
            ids = self.tokenizer.encode_tgt([" ".join(words) or "X"])[0]
            yield i, [Hypothesis([*ids, EOS], -1.0, -1.0)]


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_each_is_in_the_translation_once_or_reported(grammar):
    rng = random.Random(grammar)
    for _ in range(60):
        words = [rng.choice(WORDS) for _ in range(rng.randint(1, 6))]
        placeholders = rng.sample(GRAMMARS[grammar], rng.randint(1, min(3, len(GRAMMARS[grammar]))))
        for placeholder in placeholders:
            words.insert(rng.randint(0, len(words)), placeholder)
        source = " ".join(words) + rng.choice((".", "", "!"))
        pieces = parse(json.dumps({"a": source}), "json", ("en", "de"), "x")
        parts = list(translate_pieces(upper_case_translator(engine=CarelessEngine), pieces))
        translation = json.loads("".join(part.written for part in parts))["a"]
        for placeholder in placeholders:
            is_kept = translation.count(placeholder) == source.count(placeholder)
            assert is_kept or any(part.problems for part in parts), (source, translation)
