"""How true the chrF is that `evaluate` expects without references: texts of several lengths, with bounds.

    python scripts/expected_chrf.py RUN --fit valid.en valid.de --test test.en test.de [--test ...]

The confidence of the run's model is fitted on the first files, as training does at its end. Each test set is
cut into texts of consecutive lines. A row of the table gives for one length the chrF of the texts, the mean
and the mean absolute error of the expected one, half the width of its bounds, and how many texts are inside.
"""

import argparse

import numpy as np

from transformer_mt import Translator
from transformer_mt.config import EvaluateConfig
from transformer_mt.evaluation.calibration import calibrate
from transformer_mt.evaluation.metrics import build_metrics
from transformer_mt.text.lines import read_lines
from transformer_mt.translation.expected_quality import ExpectedQuality

LENGTHS = (10, 30, 100, 300)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--fit", nargs=2, required=True, metavar=("SOURCE", "REFERENCE"))
    parser.add_argument("--test", nargs=2, action="append", required=True, metavar=("SOURCE", "REFERENCE"))
    options = parser.parse_args()
    translator = Translator.load(options.run)
    rules = EvaluateConfig()
    pairs = [(source, (reference,)) for source, reference in zip(*map(read_lines, options.fit))]
    fitted = calibrate(translator, pairs, rules, None)
    if fitted is None or fitted.calibration.errors is None:
        parser.error("the sentences of --fit must be at least 50, with translations")
    translator = translator.with_resources(calibration=fitted.calibration)
    print(f"{options.run}: {fitted.calibration.errors}\n")
    print("| test set | lines a text | texts | chrF | mean error | absolute | bounds ± | inside |")
    print("|---|---|---|---|---|---|---|---|")
    (chrf,) = build_metrics(rules, translator.target_lang, ["chrF"])
    for source, reference in options.test:
        sources, references = list(read_lines(source)), [[line] for line in read_lines(reference)]
        results = translator.translate(sources)
        statistics = chrf.statistics(sources, [result.translation for result in results], references)
        for length in (*LENGTHS, len(sources)):
            values, errors, halves = [], [], []
            for start in range(0, len(sources) - length + 1, length):
                quality = ExpectedQuality(fitted.calibration)
                for result in results[start : start + length]:
                    quality.add(result)
                if expected := quality.expected:
                    values.append(chrf.value(statistics[start : start + length].sum(axis=0).tolist()))
                    errors.append(expected.chrf - values[-1])
                    halves.append((expected.high - expected.low) / 2)
            inside = np.mean(np.abs(errors) <= halves)
            print(
                f"| {source} | {length:,} | {len(errors)} | {np.mean(values):.1f} | {np.mean(errors):+.1f} | "
                f"{np.mean(np.abs(errors)):.1f} | {np.mean(halves):.1f} | {inside:.0%} |"
            )


if __name__ == "__main__":
    main()
