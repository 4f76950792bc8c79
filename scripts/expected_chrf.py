"""How true the chrF is that `evaluate` expects without references: texts of several lengths, with bounds.

    python scripts/expected_chrf.py RUN --trained train.en --fit valid.en valid.de --test test.en test.de

The confidence of the run's model is fitted on the files of `--fit`, as training does at its end, with the
training sources for what is familiar. Each test set is cut into texts of consecutive lines. A row of the
table gives for one length the chrF of the texts, how many have an expected one, its mean and mean absolute
error, half the width of its bounds, how many of those with an estimate are inside, and the lines of the set
that are marked as unfamiliar.
"""

import argparse
from itertools import chain

import numpy as np

from transformer_mt import Translator
from transformer_mt.config import EvaluateConfig
from transformer_mt.evaluation.calibration import calibrate, fit_familiarity
from transformer_mt.evaluation.metrics import build_metrics
from transformer_mt.evaluation.scoring import ExpectedQuality
from transformer_mt.text.lines import read_lines

LENGTHS = (10, 30, 100, 300)


def some_lines(path: str, most: int = 20_000) -> list[str]:
    lines = list(read_lines(path))
    return lines[:: max(1, len(lines) // most)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--trained", required=True, metavar="SOURCE")
    parser.add_argument("--fit", nargs=2, required=True, metavar=("SOURCE", "REFERENCE"))
    parser.add_argument("--test", nargs=2, action="append", required=True, metavar=("SOURCE", "REFERENCE"))
    options = parser.parse_args()
    translator = Translator.load(options.run)
    rules = EvaluateConfig()
    pairs = [(source, (reference,)) for source, reference in zip(*map(read_lines, options.fit))]
    ids = translator.tokenizer.encode_src(some_lines(options.trained))
    usual = {translator.source_lang: [source for source, _ in pairs]}
    familiarity = fit_familiarity(translator.tokenizer, np.array(list(chain(*ids))), usual)
    fitted = calibrate([(translator, pairs, None)], rules, familiarity)
    if fitted is None or fitted.calibration.errors is None:
        parser.error("the sentences of --fit must be at least 50, with translations")
    translator = translator.with_resources(calibration=fitted.calibration)
    print(f"{options.run}: {fitted.calibration.errors}\n")
    print("| test set | lines a text | texts | chrF | estimates | error | absolute | ± | inside | marked |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    (chrf,) = build_metrics(rules, translator.target_lang, ["chrF"])
    for source, reference in options.test:
        sources, references = list(read_lines(source)), [[line] for line in read_lines(reference)]
        results = translator.translate(sources)
        statistics = chrf.statistics(sources, [result.translation for result in results], references)
        marked = np.mean(["unfamiliar" in result.flags for result in results])
        for length in (*(length for length in LENGTHS if length < len(sources)), len(sources)):
            values, errors, halves = [], [], []
            for start in range(0, len(sources) - length + 1, length):
                quality = ExpectedQuality(fitted.calibration)
                for result in results[start : start + length]:
                    quality.add(result)
                values.append(chrf.value(statistics[start : start + length].sum(axis=0).tolist()))
                if expected := quality.expected:
                    errors.append(expected.chrf - values[-1])
                    halves.append((expected.high - expected.low) / 2)
            cells = [source, f"{length:,}", len(values), f"{np.mean(values):.1f}", len(errors)]
            if errors:
                absolute = np.abs(errors)
                cells += [f"{np.mean(errors):+.1f}", f"{np.mean(absolute):.1f}", f"{np.mean(halves):.1f}"]
                cells += [int(np.sum(absolute <= halves))]
            else:
                cells += ["–"] * 4
            print("|", " | ".join(map(str, [*cells, f"{marked:.1%}"])), "|")


if __name__ == "__main__":
    main()
