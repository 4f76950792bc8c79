"""One command from a run to an exported folder that has proven itself."""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from transformer_mt.config.dump import dump_config
from transformer_mt.errors import InputError
from transformer_mt.export.ctranslate2_spec import num_positions, write_model
from transformer_mt.export.proof import Proof, probe_sentences, prove
from transformer_mt.files import digest, write_text
from transformer_mt.translation.ctranslate2_engine import supported_settings
from transformer_mt.translation.model_folder import is_exported, load_run_config
from transformer_mt.translation.torch_engine import TorchEngine, load_model
from transformer_mt.translation.translator import Translator

# What `translate` and `evaluate` need besides CTranslate2's own files.
_OF_THE_RUN = (
    "tokenizer.model", "tokenizer.src.model", "tokenizer.tgt.model",
    "held_out.valid.jsonl", "held_out.test.jsonl",
)  # fmt: skip


def export(run: Path, out: Path, quantization: str, probe: str | None, say: Callable[[str], None]) -> Proof:
    """Write the model of `run` to the folder `out` and check its output; on failure nothing is kept.

    InputError if CTranslate2 cannot run it, with every reason; WorkError if it translates otherwise than the
    run does.
    """
    config = load_run_config(run)
    if is_exported(run):
        raise InputError(f"{run}: must be a run's folder, but is exported already; name the run it came from")
    if out.exists():
        raise InputError(f"{out}: must not be there yet, but is; remove it or name another folder")
    decode, without = supported_settings(config.decode)
    if without:
        say(f"CTranslate2 has no decode.{', decode.'.join(without)}: the export translates without")
        config = config.model_copy(update={"decode": decode})
    model, tokenizer = load_model(run, config)
    model.eval()
    sentences = probe_sentences(run, config, tokenizer, probe, say)
    made = [folder for folder in out.parents if not folder.exists()]
    out.parent.mkdir(parents=True, exist_ok=True)
    unproven = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        write_model(model, tokenizer, config, unproven, quantization)
        for name in _OF_THE_RUN:
            if (run / name).exists():
                shutil.copyfile(run / name, unproven / name)
        write_text(unproven / "config.yaml", dump_config(config))
        weights = digest(run / "model.safetensors")
        facts = {"run": config.name, "weights": weights, "positions": num_positions(config)}
        write_text(unproven / "export.json", json.dumps(facts, indent=1) + "\n")
        ours = Translator(TorchEngine(model, tokenizer), tokenizer, config)
        theirs = Translator.load(unproven, device="cpu")
        proof = prove(ours, theirs, sentences, quantization, config.data.target_lang)
        write_text(unproven / "export.json", json.dumps({**facts, **vars(proof)}, indent=1) + "\n")
        unproven.chmod(0o755)
        unproven.rename(out)
    finally:
        shutil.rmtree(unproven, ignore_errors=True)
        if not out.exists():
            with contextlib.suppress(OSError):  # somebody else may have put something there
                for folder in made:
                    folder.rmdir()
    return proof
