"""A model's translations of test sets, made once and kept with it."""

from collections.abc import Sequence
from dataclasses import replace

from transformer_mt.corpora.evaluation_sets import EvaluationSet
from transformer_mt.errors import InputError, WorkError
from transformer_mt.evaluation.outputs import kept_translations
from transformer_mt.evaluation.set_evaluation import evaluate
from transformer_mt.messages import say
from transformer_mt.runs.folder import RunFolder
from transformer_mt.translation.translator import Translator


def translated(folder: RunFolder, tests: Sequence[EvaluationSet], device: str) -> list[list[str]]:
    """The translations of each test set by the model in the folder; those kept there are used again where
    they are still its own.
    """
    config, weights = folder.config(), folder.weights_digest()
    usual = config.data.source_lang, config.data.target_lang
    tags = folder.tokenizer().control_ids if any(test.tag for test in tests) else {}
    translator, outputs = None, []
    for test in tests:
        if test.tag and test.tag not in tags:
            say(f"{folder}: translates {test.corpus} without {test.tag}, which it does not have")
            test = replace(test, tag=None)
        kept = kept_translations(folder, test, config.decode.model_dump(), weights, usual)
        if kept is None:
            translator = translator or Translator.load(folder.path, device)
            say(f"{folder}: translates {test.corpus}, {translator.decode.in_words}")
            try:
                evaluation = evaluate(translator, test, config.evaluate, weights=weights)
            except InputError as error:
                raise InputError(f"{folder}: {test.corpus}: ", *error.parts) from None
            try:
                # Under a name of its own: the folder may hold an `evaluate` of another set or search.
                evaluation.save(folder, replace(test, name=f"compare-{test.name}"))
            except WorkError as error:  # the folder of a shared model may be read-only
                say(f"warning: {error}")
            kept = [row["translation"] for row in evaluation.rows]
        outputs.append(kept)
    return outputs
