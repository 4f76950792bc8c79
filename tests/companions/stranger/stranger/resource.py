"""A file that translations follow: `translate --least FILE`."""

from dataclasses import replace
from pathlib import Path

from transformer_mt.translation.engines.engine import Wanted
from transformer_mt.translation.stages.call import Resource
from transformer_mt.translation.stages.stage import Choice, Stage


class Least(Resource):
    """The fewest tokens that a translation may have."""

    help, before, needs_selection = "a file with the fewest tokens of a translation", "flags", True

    def __init__(self, tokens, languages):
        self.tokens, self.languages = tokens, languages

    @classmethod
    def read(cls, file, languages):
        return cls(int(Path(file).read_text(encoding="utf-8")), languages)

    def stage(self, call):
        return Longer(self.tokens)


class Longer(Stage):
    """Searches again for what is too short."""

    def __init__(self, tokens):
        self.tokens = tokens

    def choose(self, unit, candidates):
        return Choice(candidates, is_enough=len(candidates[0].tokens) >= self.tokens)

    def search_again(self, units, search):
        wanted = Wanted("at_least", self.tokens)
        requests = [replace(one.unit.request, wanted=wanted) for _, one in units]
        longer = dict(search.again([one.unit for _, one in units], requests))
        return [(number, longer.get(i, before)) for i, (number, before) in enumerate(units)]
