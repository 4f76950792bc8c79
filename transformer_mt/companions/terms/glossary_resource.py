"""The resource of `translate --glossary FILE`. Imports nothing slow, because `--help` loads this class."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.messages import say
from transformer_mt.translation.stages.call import Call, Resource

if TYPE_CHECKING:
    from transformer_mt.companions.terms.glossary import Glossary
    from transformer_mt.translation.stages.stage import Stage


class GlossaryResource(Resource):
    """Makes translations have the terms of a glossary."""

    help = "terms and their required translations (.tsv, .csv, .tbx)"
    before = "ends"
    needs_selection = True

    def __init__(self, glossary: "Glossary") -> None:
        self.glossary, self.languages = glossary, glossary.languages

    @classmethod
    def read(cls, file: str | Path, languages: tuple[str, str]) -> "GlossaryResource":
        from transformer_mt.companions.terms.glossary import read_glossary

        return cls(read_glossary(file, languages))

    @classmethod
    def of_request(
        cls, terms: Mapping[str, Sequence[str]], languages: tuple[str, str], behind: Resource | None
    ) -> "GlossaryResource":
        """The terms of one request to a server. The server's own glossary, `behind`, is searched second."""
        from transformer_mt.companions.terms.glossary import Glossary, Term

        rows = [Term(source, tuple(targets)) for source, targets in terms.items()]
        assert behind is None or isinstance(behind, GlossaryResource)
        return cls(Glossary(rows, languages, behind.glossary if behind else None))

    def stage(self, call: Call) -> "Stage":
        from transformer_mt.companions.terms.required_terms import Terms  # NumPy takes time to import

        return Terms(self.glossary, call.planner, call.settings)

    def texts(self) -> Iterator[str]:
        for term in self.glossary.terms:
            yield from (term.source, *term.targets)

    def scores(
        self, sources: Sequence[str], translations: Sequence[str], references: Sequence[Sequence[str]]
    ) -> list[tuple[str, float, str]]:
        """How many of the terms that a source and one of its references have are in the translation, in per
        cent: in any inflected form, and as they stand in the glossary. Empty, and said, if there are none.
        """
        exact = any_form = total = lines = 0
        for source, translation, targets in zip(sources, translations, references):
            terms = max((self.glossary.in_both(source, target) for target in targets), key=len, default=[])
            total, lines = total + len(terms), lines + bool(terms)
            exact += sum(self.glossary.is_rendered(term, translation, exactly=True) for term in terms)
            any_form += sum(self.glossary.is_rendered(term, translation) for term in terms)
        if not total:
            say("glossary: no pair of this set has a term on its left and the translation on its right")
            return []
        counted = f"of {total:,} terms in {lines:,} sentences"
        return [
            ("terms", 100 * any_form / total, f"in any form, {counted}"),
            ("terms as they stand", 100 * exact / total, counted),
        ]
