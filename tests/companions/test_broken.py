"""Whatever a package of others does wrong is one line that names it; what does not need it works."""

# ruff: noqa: E501 - each package stands in one place

import pytest
import yaml

from tests.conftest import TINY
from tests.helpers.installation import Installation

ENTRY = "from transformer_mt.companion import Command, Companion\ncompanion = Companion({brings})\n"
PARTS = """
from transformer_mt.corpora.corpus import Corpus
from transformer_mt.data.changes.change import Change
from transformer_mt.evaluation.metrics import MeanMetric
from transformer_mt.model.variants.attention_scores import AttentionScore
from transformer_mt.model.variants.position_bias import PositionBias
from transformer_mt.settings.section import Section
from transformer_mt.update.loss import Loss
from transformer_mt.translation.stages.stage import Stage
"""


def kinds(**values):
    return f"kinds={ {kind: {'odd': f'odd_parts:{name}'} for kind, name in values.items()} }"


def changed(**sections):
    return {key: {**TINY[key], **sections.get(key, {})} if key in sections else TINY[key] for key in TINY}


def loss(body):
    return PARTS + f"class Odd(Loss):\n    def __call__(self, batch, forward):\n        {body}\n"


# A package: its entry module, its parts, and words of the line that names it in any command.
LEFT_OUT = {
    "syntax": ("companion = (\n", "", "SyntaxError"),
    "not there": ("import not_there\n", "", "cannot be imported (No module named 'not_there')"),
    "exits": ("import sys\nsys.exit(3)\n", "", "SystemExit: 3"),
    "prints": ("print('hello')\nraise RuntimeError('first line\\nsecond line')\n", "", "RuntimeError: first line sec"),
    "a dict": ("companion = {}\n", "", "must be a Companion"),
    "misspelled kind": (ENTRY.format(brings="kinds={'losses': {'odd': 'odd_parts:Odd'}}"), "",
                        "but has `losses`; did you mean loss?"),
    "misspelled hook": (ENTRY.format(brings="hooks={'after_train': 'odd_parts:f'}"), "", "did you mean after_training?"),
    "a list of names": (ENTRY.format(brings="kinds={'loss': ['odd']}"), "", "AttributeError"),
    "no place": (ENTRY.format(brings="kinds={'loss': {'odd': 'odd_parts'}}"), "", "but names 'odd_parts'"),
    "a class": (ENTRY.format(brings="kinds={'loss': {'odd': int}}"), "", "but names <class 'int'>"),
    "no command": (ENTRY.format(brings="commands={'odd': 'odd_parts'}"), "", "must bring a Command"),
    "no group": (ENTRY.format(brings="commands={'odd': Command('odd_parts', 'x', 'other')}"), "", "in a group of"),
    "words": (ENTRY.format(brings="requires='exchange'"), "", "must have a list of names"),
    "requires": (ENTRY.format(brings="requires=['gone']"), "", "it requires gone"),
    "ours": (ENTRY.format(brings="commands={'serve': Command('odd_parts', 'x', 'use')}"), "",
             "it brings the command serve, as the companion serving does"),
}  # fmt: skip
# What nobody notices who does not use it.
UNUSED = {
    "gone": (
        ENTRY.format(brings=kinds(loss="Odd", corpus="Odd", metric="Odd", stage="Odd", logger="Odd")),
        None,
    ),
    "no such class": (ENTRY.format(brings=kinds(loss="Odd", corpus="Odd", attention_score="Odd")), PARTS),
    "a corpus and a loss in one module": (
        ENTRY.format(brings=kinds(loss="Odd", corpus="Pairs")),
        PARTS + "class Odd(Loss): pass\nclass Pairs(Corpus):\n    odd: str\n",
    ),
    "raises": (ENTRY.format(brings=kinds(loss="Odd", corpus="Odd")), "raise ValueError('no licence')\n"),
    "command": (ENTRY.format(brings="commands={'odd': Command('odd_parts', '100% odd', 'use')}"), "1 / 0\n"),
}
# A hook, or an option, which other commands ask for: noted in one line, and passed over.
NOTED = (
    (ENTRY.format(brings="hooks={'open_model': 'odd_parts:f'}"), "def f(*given): return given.nothing\n"),
    (ENTRY.format(brings="kinds={'document_format': {'odd': 'odd_parts:f'}}"), ""),
    (ENTRY.format(brings="kinds={'document_format': {'odd': 'odd_parts:f'}}"), "def f(): pass\n"),
    (
        ENTRY.format(brings="options={'translate': 'odd_parts:f'}"),
        "def f(parser): parser.add_argument('--beam')\n",
    ),
)
# A part that the config or the command line asks for: the command ends with one line.
USED = {
    "loss gone": (kinds(loss="Odd"), PARTS, {"train": {"loss": "odd"}}, "odd_parts:Odd, but odd_parts has no Odd"),
    "loss raises": (kinds(loss="Odd"), loss("return batch.nothing"), {"train": {"loss": "odd"}},
                    "the companion odd fails in odd_parts, line"),
    "loss of a mean": (kinds(loss="Odd"), loss("return forward(batch).summed(lambda t, p: -p.mean())"),
                       {"train": {"loss": "odd"}}, "must give a loss for each target token"),
    "loss of nothing": (kinds(loss="Odd"), loss("import torch; return torch.zeros((), requires_grad=True), "
                                                "torch.zeros(())"),
                        {"train": {"loss": "odd"}}, "odd_parts.Odd must return (loss, nll), two tensors of one "
                        "number each, computed by `forward`, but never calls it"),
    "loss of one": (kinds(loss="Odd"), loss("return forward(batch).cross_entropy(0.1)[0]"),
                    {"train": {"loss": "odd"}}, "but returns Tensor"),
    "loss detached": (kinds(loss="Odd"), loss("return tuple(x.detach() for x in forward(batch).cross_entropy(0.1))"),
                      {"train": {"loss": "odd"}}, "it has none (is it detached?)"),
    "loss a function": (kinds(loss="odd"), "def odd(batch, forward): pass\n", {"train": {"loss": "odd"}},
                        "must be a subclass of transformer_mt.update.loss.Loss, but is odd_parts.odd"),
    "score of a mean": (kinds(attention_score="Odd"), PARTS +
                        "class Odd(AttentionScore):\n    def __init__(self, heads, width): super().__init__()\n"
                        "    def forward(self, q, k): return (q @ k.mT).mean(1)\n",
                        {"model": {"attention": {"score": "odd"}}},
                        "odd_parts.Odd must give scores [batch, heads, queries, keys], here [1, 2, 2, 3] numbers, "
                        "but gives [1, 2, 3]"),
    "score detached": (kinds(attention_score="Odd"), PARTS +
                       "class Odd(AttentionScore):\n    def __init__(self, heads, width): super().__init__()\n"
                       "    def forward(self, q, k): return (q @ k.mT).detach()\n",
                       {"model": {"attention": {"score": "odd"}}}, "scores with a gradient"),
    "position": (kinds(position="Odd"), PARTS +
                 "class Odd(PositionBias):\n    def __init__(self, heads, width): super().__init__()\n"
                 "    def rotate(self, x, positions): return x[..., :1]\n",
                 {"model": {"position": "odd"}}, "odd_parts.Odd.rotate must keep the shape of the queries"),
    "change": (kinds(change="Odd"), PARTS + "class Odd(Change):\n"
               "    def __init__(self, rows, config, tokenizer): super().__init__(rows)\n"
               "    def rows(self, epoch, rows): return tuple([x[:1] for x in s] for s in super().rows(epoch, rows))\n",
               {"data": {"changes": ["odd"]}}, "must have as `lengths` the lengths of its rows"),
    "metric": (kinds(metric="Odd"), PARTS + "class Odd(MeanMetric):\n    name = 'odd'\n"
               "    def __init__(self, rules, language): pass\n"
               "    def statistics(self, *given): return [0.0]\n    def signature(self, references): return ''\n",
               {"train": {"monitor": "odd"}}, "odd_parts.Odd.statistics must give an array"),
    "corpus": (kinds(corpus="Odd"), PARTS + "class Odd(Corpus):\n    odd: str\n    def describe(self): return 'odd'\n"
               "    def stored_pairs(self, languages): yield 'a', None\n",
               {"data": {"train": {"odd": "x"}}}, "odd_parts.Odd: stored_pairs must give pairs of texts"),
}  # fmt: skip


def installed(folder, entry, parts):
    """The project, with a package that attaches itself."""
    installation = Installation(folder)
    add(folder, entry, parts, "odd")
    return installation


def add(folder, entry, parts, name):
    facts = folder / f"{name}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[transformer_mt.companions]\n{name} = {name}:companion\n")
    (folder / f"{name}.py").write_text(entry.replace("odd", name))
    if parts is not None:
        (folder / f"{name}_parts.py").write_text(parts.replace("odd", name))


def all_installed(folder, packages):
    """The project with all these packages: odda, oddb, ..."""
    installation = Installation(folder)
    for letter, (entry, parts, *_) in zip("abcdefghijklmnopqrstuvwxyz", packages):
        add(folder, entry, parts, f"odd{letter}")
    (folder / "tiny.yaml").write_text(yaml.safe_dump(TINY), encoding="utf-8")
    return installation


def lines_of(result):
    return [line for line in result.err.splitlines() if line]


def test_each_malformed_package_is_left_out_in_one_line(tmp_path):
    shown = all_installed(tmp_path, LEFT_OUT.values()).run("config", "show", "tiny.yaml")
    assert shown.status == 0 and "hello" not in shown.out
    lines = [line for line in lines_of(shown) if line != "hello"]
    assert len(lines) == len(LEFT_OUT)
    for letter, (_, _, words) in zip("abcdefghijklmnopqrstuvwxyz", LEFT_OUT.values()):
        begin = f"note: the companion odd{letter} is left out: "
        (line,) = [line for line in lines if line.startswith(begin)]
        assert words.replace("odd", f"odd{letter}") in line


def test_broken_parts_that_nobody_uses_are_not_noticed(tmp_path):
    installation = all_installed(tmp_path, UNUSED.values())
    helped = installation.run("--help")
    assert helped.status == 0 and helped.err == "" and "  serve " in helped.out and "100% odd" in helped.out
    shown = installation.run("config", "show", "tiny.yaml")
    assert shown.status == 0 and shown.err == ""


def test_a_corpus_and_a_loss_in_one_module_are_used(tmp_path):
    """Its corpus is imported for the config, and its loss imports the config."""
    pairs = (
        "class Pairs(Corpus):\n    odd: int\n    def describe(self): return 'odd pairs'\n"
        "    def stored_pairs(self, languages):\n"
        "        for i in range(self.odd): yield f'a dog {i % 97} {i // 97}', f'ein Hund {i % 97} {i // 97}'\n"
    )
    parts = loss("return forward(batch).cross_entropy(0.1)") + pairs
    installation = installed(tmp_path, ENTRY.format(brings=kinds(loss="Odd", corpus="Pairs")), parts)
    train = {"loss": "odd", "max_updates": 2, "validate_every": 2, "warmup": 1}
    data = {"train": [{"odd": 400}], "valid": {"toy": "valid", "size": 4}, "test": []}
    config = changed(train=train, data=data, tokenizer={"vocab_size": 300})
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    trained = installation.run("train", "tiny.yaml", cwd=tmp_path)
    assert trained.status == 0 and "odd pairs" in trained.err, trained.err
    mistake = installation.run("config", "show", "tiny.yaml", "data.train=[{odd: x}]", cwd=tmp_path)
    assert mistake.status == 2
    assert lines_of(mistake) == ["command line: `data.train.0.odd` must be a whole number, but is 'x'"]
    unknown = installation.run("config", "show", "tiny.yaml", "data.train=[{od: x}]", cwd=tmp_path)
    assert "{odd: ...}" in unknown.err and "did you mean `odd`?" in unknown.err


def test_hooks_that_fail_are_passed_over(tmp_path):
    shown = all_installed(tmp_path, NOTED).run("translate", "gone", "x")
    *notes, last = lines_of(shown)
    assert shown.status == 2 and last.startswith("gone: no such folder")
    assert all(line.startswith("note: ") for line in notes), shown.err
    for letter in "abcd":
        assert any(f"odd{letter}" in line for line in notes), shown.err


def test_a_resource_whose_option_is_taken_is_left_out(tmp_path):
    brings = ENTRY.format(brings="kinds={'resource': {'beam': 'odd_parts:Odd'}}")
    parts = (
        "from transformer_mt.translation.stages.call import Resource\n"
        "class Odd(Resource):\n    help, before = '100% odd', 'ends'\n"
    )
    shown = installed(tmp_path, brings, parts).run("translate", "--help")
    assert shown.status == 0 and "--beam N" in shown.out
    assert lines_of(shown)[0].startswith("note: the resource beam is left out: argument --beam: conflicting")


# Each trains in a process of its own: three stand for all in `make test`.
OFTEN = ("loss of a mean", "metric", "corpus")


@pytest.mark.parametrize("case", [c if c in OFTEN else pytest.param(c, marks=pytest.mark.long) for c in USED])
def test_a_part_that_gives_something_else_ends_in_one_line(case, tmp_path):
    brings, parts, sections, words = USED[case]
    installation = installed(tmp_path, ENTRY.format(brings=brings), parts)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(changed(**sections)), encoding="utf-8")
    result = installation.run("train", "tiny.yaml", cwd=tmp_path)
    assert result.status in (1, 2) and "Traceback" not in result.err, result.err
    assert words in lines_of(result)[-1], result.err


def test_a_stage_that_gives_something_else_ends_in_one_line(tiny_run, tmp_path):
    parts = PARTS + "class Odd(Stage):\n    def finish(self, line, result): pass\n"
    installation = installed(tmp_path, ENTRY.format(brings=kinds(stage="Odd")), parts)
    result = installation.run("translate", tiny_run, "The dog.", "--set", "decode.stages=[odd]")
    assert result.status == 2 and lines_of(result) == [
        "the stage odd, odd_parts.Odd.finish, must give a Translation, but gives None"
    ]


def test_a_command_that_is_broken_stops_itself_alone(tmp_path):
    installation = installed(tmp_path, *UNUSED["command"])
    broken = installation.run("odd")
    assert broken.status == 1 and lines_of(broken) == [
        "the companion odd names odd_parts, which cannot be imported (ZeroDivisionError: division by zero)"
    ]
    assert "--sevre is not an option" in installation.run("train", "tiny.yaml", "--sevre").err
