"""Random mutants of the code, and how many of them the tests of their own package find within a minute.

A mutant is the code with one change: another comparison or operator, another constant, a condition reversed.
Each is tested in a copy of the repository by the tests in the folders of its package, those that name its
module first. What survives is printed with its line: it shows a promise without a test, or changes nothing.

    python scripts/mutants.py --count 300 --seed 1 --workers 2
"""

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parent.parent
PACKAGES = ("search", "training", "data", "translation", "evaluation", "documents", "serving")
# Other tests of a package than those in its folders.
MORE_TESTS = {"training": ["tests/distributed"]}
SECONDS = 60
COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One changed place in a file."""

    file: Path
    line: int
    change: str
    source: str


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        id(below)
        for node in ast.walk(tree)
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None
        for below in ast.walk(node.annotation)
    }
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in skipped:
            continue
        for change, attribute, value in _changes(node):
            mutated = copy.deepcopy(tree)
            twin = next(other for i, other in enumerate(ast.walk(mutated)) if i == number)
            setattr(twin, attribute, value)
            yield Mutant(
                path, getattr(node, "lineno", 0), change, ast.unparse(ast.fix_missing_locations(mutated))
            )


def _changes(node: ast.AST) -> Iterator[tuple[str, str, object]]:
    """(what changes, attribute of the node, its new value)."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        other = COMPARISONS[type(node.ops[0])]
        yield f"{type(node.ops[0]).__name__} -> {other.__name__}", "ops", [other(), *node.ops[1:]]
    elif isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in OPERATORS:
        operator = OPERATORS[type(node.op)]
        yield f"{type(node.op).__name__} -> {operator.__name__}", "op", operator()
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{node.value} -> {not node.value}", "value", not node.value
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield f"{node.value} -> {node.value + 1}", "value", node.value + 1
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        negated = ast.UnaryOp(ast.Not(), node.test)
        yield "condition reversed", "test", negated


def tests_of(package: str, module: str) -> list[str]:
    """The files of the package's tests, those that name the module most often first."""
    folders = [f"tests/unit/{package}", f"tests/integration/{package}", *MORE_TESTS.get(package, [])]
    files = [file for folder in folders for file in sorted((ROOT / folder).rglob("test_*.py"))]

    def relevance(file: Path) -> tuple[int, int]:
        name = module.rpartition(".")[2]
        return (-(file.stem == f"test_{name}"), -file.read_text(encoding="utf-8").count(name))

    return [str(file.relative_to(ROOT)) for file in sorted(files, key=relevance)]


def survives(mutant: Mutant, folder: Path) -> bool:
    """Whether the package's tests pass in the copy of the repository with this mutant."""
    module = mutant.file.relative_to(ROOT / "transformer_mt")
    target = folder / mutant.file.relative_to(ROOT)
    tests = tests_of(module.parts[0], ".".join(module.with_suffix("").parts))
    target.write_text(mutant.source, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    own = {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        command, cwd=folder, env={**os.environ, **own}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        return process.wait(SECONDS) == 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.wait()
        shutil.copyfile(mutant.file, target)


def main() -> None:
    """Test the mutants and print those that live."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--packages", nargs="*", default=list(PACKAGES))
    options = parser.parse_args()
    files = [file for name in options.packages for file in (ROOT / "transformer_mt" / name).rglob("*.py")]
    rng = random.Random(options.seed)
    found = {file: list(mutants_of(file)) for file in sorted(files)}
    weights = [len(mutants) for mutants in found.values()]
    chosen = [rng.choice(found[file]) for file in rng.choices(list(found), weights, k=options.count)]
    folders: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="mutants") as temporary:
        for number in range(options.workers):
            copied = Path(temporary) / str(number)
            ignored = shutil.ignore_patterns(".venv", ".git", "runs", "__pycache__")
            shutil.copytree(ROOT, copied, ignore=ignored)
            folders.put(copied)

        def test(mutant: Mutant) -> tuple[Mutant, bool, float]:
            folder, start = folders.get(), time.monotonic()
            try:
                return mutant, survives(mutant, folder), time.monotonic() - start
            finally:
                folders.put(folder)

        counts: Counter[tuple[str, bool]] = Counter()
        with ThreadPoolExecutor(options.workers) as pool:
            for mutant, lives, seconds in pool.map(test, chosen):
                name = mutant.file.relative_to(ROOT / "transformer_mt")
                counts[name.parts[0], lives] += 1
                state = "lives" if lives else "found"
                print(f"{state} after {seconds:3.0f} s  {name}:{mutant.line}  {mutant.change}", flush=True)
    for name in options.packages:
        print(f"{name}: {counts[name, False]} found, {counts[name, True]} live")
    total = sum(count for (_, lives), count in counts.items() if not lives)
    print(f"{total} of {options.count} found")


if __name__ == "__main__":
    main()
