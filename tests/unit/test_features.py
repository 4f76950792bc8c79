"""Each feature has files and keys of its own; what else may know it is listed here."""

import ast
from dataclasses import dataclass, field
from functools import cache

import pytest

from tests.helpers.companions import needs
from tests.unit.test_house import MODULES, imports, module_name


@dataclass(frozen=True)
class Feature:
    modules: set[str]
    keys: set[str] = field(default_factory=set)
    """Dotted ends of its keys of the YAML, as code reads them."""
    users: set[str] = field(default_factory=set)
    """Other modules that may import it or read its keys, besides those that build stages and changes."""


BUILD = {
    "translation.stages.build_stages",
    "data.changes.training_rows",
    "config.data_section",
    "config.train_section",
}
TERMS = {"terms.glossary", "terms.glossary_file", "terms.stems"}
FEATURES = {
    "sentence splitting": Feature(
        {"translation.stages.sentence_splitting"},
        {"split_sentences"},
        {"config.resolve", "training.model_selection", "companions.browser.to_onnx"},
    ),
    "capitals": Feature({"translation.stages.capitals"}, {"lowercase_capitals"}),
    "protected text": Feature(
        {"translation.stages.protected_text"}, {"protect_usual"}, {"companions.serving.batcher"}
    ),
    "translation memory": Feature(
        {"translation.stages.from_memory", "memories.translation_memory", "memories.tmx_writer"},
        users={"cli.translating.memory_out"},
    ),
    "terms": Feature(
        {
            "translation.stages.required_terms", "translation.stages.forced_terms",
            "data.changes.term_annotation",
            "data.vocabulary.term_pieces", "settings.terms_section", *TERMS,
        },
        {"data.terms"},
        {
            "config.guided_alignment", "data.preparation.training_links", "data.vocabulary.tokenizer",
            "evaluation.term_rate", "companions.lab.job_facts", "companions.inspection.inspect",
            "companions.inspection.term_checks", "new_config.user_files", "companions.serving.batcher",
            "companions.serving.http.requests", "companions.teacher.prompt", "training.early_checks",
        },
    ),
    "translating again": Feature({"translation.retry"}, users={"translation.translator"}),
    "ends of lines": Feature({"translation.stages.ends", "translation.stages.line_edges"}, {"match_ends"}),
    "flags": Feature(
        {"translation.stages.problem_flags"},
        users={"companions.lab.breakdown", "companions.teacher.answer_checks"},
    ),
    "confidence": Feature(
        {"translation.stages.confidence", "translation.expected_quality"},
        users={
            "cli.evaluate", "cli.translate", "companions.documents.translate_file",
            "companions.teacher.candidate_scores", "evaluation.calibration", "evaluation.set_evaluation",
            "translation.translator",
        },
    ),
    "augmentation": Feature(
        {"data.changes.augmentation", "config.augment", "text.text_changes", "text.typos"},
        {"data.augment"},
        {"companions.lab.robustness", "training.data_notes"},
    ),
    "BPE-dropout": Feature(
        {"data.changes.bpe_dropout", "data.changes.subword_dropout", "data.changes.merges"},
        {"bpe_dropout"},
        {"config.tokenizer_section", "new_config.write", "config.resolve", "training.run_data"},
    ),
    "objectives": Feature(
        {
            "data.changes.objectives", "data.changes.denoising", "data.changes.masking",
            "config.pretraining",
        },
        {"data.denoise", "data.masked_lm"},
        {"language_models.scores"},
    ),
    "guided alignment": Feature(
        {
            "data.changes.links", "config.guided_alignment", "data.alignment.aligner",
            "data.alignment.pharaoh", "data.preparation.training_links",
        },
        {"train.guided_alignment"},
        {
            "config.packable", "data.preparation.prepare", "companions.lab.job_facts",
            "companions.lab.synthetic", "companions.inspection.inspect", "companions.inspection.misaligned",
            "training.early_checks", "training.state.run", "training.update.build_updater",
            "translation.engines.torch_engine",
        },
    ),
    "low-rank adaptation": Feature(
        {"config.lora_section", "model.variants.low_rank"}, {"train.lora"}, {"training.update.adaptation"}
    ),
}  # fmt: skip


@cache
def chains(path):
    """The attributes that a module reads, as `.config.data.terms.share.`."""
    return list(_chains(path))


def _chains(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if names and isinstance(node, ast.Name):
            yield f".{'.'.join([node.id, *reversed(names)])}."


@pytest.mark.parametrize("name", FEATURES)
@needs("inspection", "lab", "serving", "exchange", "documents")
def test_only_the_listed_modules_know_a_feature(name):
    feature, users = FEATURES[name], set()
    for path in MODULES:
        module = module_name(path).removesuffix("__init__")
        if module in feature.modules | BUILD:
            continue
        if set(imports(path)) & feature.modules:
            users.add(module)
        if any(f".{key}." in chain for chain in chains(path) for key in feature.keys):
            users.add(module)
    assert users == feature.users
