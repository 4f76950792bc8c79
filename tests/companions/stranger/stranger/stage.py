"""A stage of translation."""

from dataclasses import replace

from transformer_mt.translation.stages.stage import Stage


class Vowels(Stage):
    """Reports how many vowels a translation has."""

    def finish(self, line, result):
        count = sum(letter in "aeiou" for letter in result.translation.lower())
        return replace(result, problems=[*result.problems, f"{count} vowels"])
