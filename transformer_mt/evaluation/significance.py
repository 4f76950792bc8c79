"""Whether one system's BLEU is better than another's, or only luckier with its test set."""

from collections.abc import Sequence

from transformer_mt.evaluation.metrics import bleu_metric

SAMPLES = 1000


def paired_bootstrap(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[str],
    target_lang: str,
    tokenize: str = "auto",
    lowercase: bool = False,
) -> float:
    """p of the difference in BLEU, by sacreBLEU's paired bootstrap resampling (Koehn 2004; 1,000 samples,
    seed 12345).
    """
    from sacrebleu.significance import PairedTest

    if list(baseline) == list(system):
        return 1.0  # sacreBLEU counts samples in which they differ by at least nothing
    metric = bleu_metric(target_lang, tokenize, lowercase)
    systems = [("baseline", list(baseline)), ("system", list(system))]
    test = PairedTest(systems, {"BLEU": metric}, [list(references)], test_type="bs", n_samples=SAMPLES)
    return test()[1]["BLEU"][1].p_value
