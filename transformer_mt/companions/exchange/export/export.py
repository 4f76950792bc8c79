"""Exports a run and proves that the exported model translates like it; the export inside a run's folder."""

import contextlib
import importlib.util
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from transformer_mt.companions.exchange.export.format import ExportFormat, TrainedRun
from transformer_mt.companions.exchange.export.proof import (
    Proof,
    card_facts,
    model_card,
    probe_sentences,
    prove,
)
from transformer_mt.companions.exchange.verify import write_sums
from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import check_is_new, to_json, write_text
from transformer_mt.messages import say
from transformer_mt.run.report import events_of, value_of
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.engines.torch_engine import load_model
from transformer_mt.translator import Translator


def make_own_export(run: RunFolder, is_asked: bool = False) -> None:
    """Export the run's model into its folder if its config (`train.export`) or the user asks for it, unless
    the export exists or CTranslate2 is not installed. If the export is impossible or fails its proof, one
    line says why, and the run translates with torch.
    """
    config = run.config()
    if not ((config.train.export or is_asked) and config.data.directions):
        return
    if importlib.util.find_spec("ctranslate2") is None or run.own_export is not None:
        return
    shutil.rmtree(run.export_folder, ignore_errors=True)  # was made from other weights
    from transformer_mt.companions.exchange.export.to_ctranslate2 import ToCTranslate2

    try:
        proof = export(run, run.export_folder, ToCTranslate2(), None)
    except (InputError, WorkError, OSError) as error:
        say(f"note: {run} will translate with torch alone: {str(error).splitlines()[0]}")
    else:
        say(f"{run.export_folder}: to translate on CPUs; {proof}")


@contextlib.contextmanager
def unproven_folder(out: Path) -> Iterator[Path]:
    """A hidden folder next to `out`. Unless it becomes `out`, it is removed at the end, together with the
    parents of `out` that were created for it.
    """
    made = [folder for folder in out.parents if not folder.exists()]
    out.parent.mkdir(parents=True, exist_ok=True)
    unproven = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        yield unproven
    finally:
        shutil.rmtree(unproven, ignore_errors=True)
        if not out.exists():
            with contextlib.suppress(OSError):  # somebody else may have put something there
                for folder in made:
                    folder.rmdir()


def export(
    run: RunFolder,
    out: Path,
    target: ExportFormat,
    probe: str | None,
    license: str | None = None,
    extras: Sequence[str] = (),
) -> Proof:
    """Write the model of `run` to `out` in the target's format with a model card, and check its output; on
    failure nothing is kept. Nothing from the corpora is exported except the `extras`.

    InputError with every reason if the target cannot hold the model; WorkError if the export translates
    differently from the run.
    """
    config = run.config()
    run.check_weights()
    check_is_new(out)
    if reasons := target.reasons_against(config):
        lines = [f"{target.name} cannot hold this model: {reason}" for reason in reasons]
        raise InputError("\n".join([*lines, target.advice]))
    # All runtimes end their search this way. It is documented, so not every export needs to report it.
    decode = config.decode.model_copy(update={"stop_early": True})
    decode, without = target.supported_settings(decode)
    if without:
        changes = [f"decode.{n} {getattr(decode, n)} (here {getattr(config.decode, n)})" for n in without]
        say(f"{target.name} cannot search as this run does; the export has {', '.join(changes)}")
    config = config.model_copy(update={"decode": decode})
    model, tokenizer = load_model(run, config)
    model.eval()
    sentences = probe_sentences(run, config.data, tokenizer, probe)
    trained = TrainedRun(run, config, model, tokenizer, extras, sentences)
    with unproven_folder(out) as unproven:
        target.write(trained, unproven)
        _write_metadata(unproven, target.metadata(config))
        proven = config.decode.model_copy(update=target.proof_settings)
        ours = Translator.of_config(trained.model, trained.tokenizer, config, proven)
        try:
            proof = prove(ours, target, unproven, sentences)
        except WorkError as error:
            raise WorkError(*error.parts, weakness(run)) from error
        facts = card_facts(run, config, proof, license)
        write_text(unproven / "README.md", model_card(facts, run, config, target, out.name))
        _write_metadata(unproven, {**target.metadata(config), **facts})
        unproven.chmod(0o755)
        write_sums(unproven)
        target.pack(unproven, out, config)
    return proof


_WEAK_BLEU = 15.0


def weakness(run: RunFolder) -> str:
    """The advice to train longer, if the run's model is weak: then small differences change its output."""
    entries = run.entries()
    bleu = [value_of(entry, "BLEU") for entry in events_of(entries, "valid")]
    if not bleu or not max(bleu) < _WEAK_BLEU:
        return ""
    step, last = entries[-1]["step"], run.config().train.max_updates
    return (
        f"; the model is weak, with a validation BLEU of {max(bleu):.1f} after {step:,} of {last:,} updates, "
        "and a small difference changes what it writes: train it longer"
    )


def _write_metadata(folder: Path, facts: dict[str, Any]) -> None:
    write_text(folder / "metadata.json", to_json(facts, indent=1, ensure_ascii=False) + "\n")
