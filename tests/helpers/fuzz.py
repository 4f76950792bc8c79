"""Damaged and malicious files of every kind that is read: does each end in one sentence?

    python -m tests.helpers.fuzz [KIND ...] --count 10000 --seed 1 --run runs/demo

Good files are changed: bytes, lengths, numbers, names with `..`, values of another kind, members of archives.
Each is read as a command reads it, in a process that may use ten times the file's size more than before, and
ten seconds. A mutant is bad if it ends in anything but success or an error for users, ends the process, or
leaves a file outside its folder; it is then kept in build/fuzz. The table counts what happened.
"""

import argparse
import copy
import faulthandler
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from transformer_mt.errors import UserError
from transformer_mt.messages import messages_to, table
from transformer_mt.run_folder import RunFolder

OUT = Path("build/fuzz")
BATCH = 200  # mutants of one process
SECONDS = 10
MORE = 512 * 2**20  # bytes of memory that any reading may take, besides ten times the file's size
ODD: list[Any] = [
    None, True, -1, 0, 2**31, 2**64, -(2**70), 1.5, float("nan"), "", "..", "../../outside", "/etc/passwd",
    "\0", "x" * 9999, [], {}, [[]], {"a": {}},
]  # fmt: skip


class Kind(NamedTuple):
    """A kind of file: `file` below a folder that `make` fills is changed, then `read(folder)` is called."""

    make: Callable[[Path], object]
    file: str
    read: Callable[[Path], object]


def changed(content: bytes, name: str, dice: random.Random) -> bytes:
    """A mutant of a file's content."""
    if name.endswith((".npz", ".zip", ".argosmodel", ".docx")) and dice.random() < 0.7:
        return changed_archive(content, dice)
    if name.endswith(".json") and dice.random() < 0.6:
        return changed_json(content, dice)
    if name.endswith(".safetensors") and dice.random() < 0.6:
        size = int.from_bytes(content[:8], "little")
        head = changed_json(content[8 : 8 + size], dice)
        return len(head).to_bytes(8, "little") + head + content[8 + size :]
    return changed_bytes(content, dice)


def changed_bytes(content: bytes, dice: random.Random) -> bytes:
    mutant = bytearray(content)
    for _ in range(dice.choice((1, 1, 2, 5, 20))):
        at, length = dice.randrange(len(mutant) + 1), dice.choice((1, 1, 2, 4, 8, 100))
        number = dice.choice((0, 1, 0x7F, 0xFF, 2**31, 2**31 - 1, 2**63, 2**64 - 1)) % 2 ** (
            8 * min(length, 8)
        )
        match dice.randrange(8):
            case 0:
                mutant[at : at + length] = dice.randbytes(length)
            case 1:
                mutant[at : at + length] = number.to_bytes(length, dice.choice(("little", "big")))
            case 2:
                del mutant[at:]
            case 3:
                del mutant[at : at + length]
            case 4:
                mutant[at:at] = mutant[at : at + length] * dice.choice((1, 2, 500))
            case 5:
                mutant[at:at] = dice.choice(
                    (b"\0", b"\xff\xfe", b"<!ENTITY a 'b'>", b"&a;", b"\t" * 9, b"\n", b"{" * 99, b"../")
                )
            case 6:
                other = dice.randrange(len(mutant) + 1)
                mutant[at : at + length] = mutant[other : other + length]
            case 7:
                if at < len(mutant):
                    mutant[at] ^= 1 << dice.randrange(8)
    return bytes(mutant)


def changed_json(content: bytes, dice: random.Random) -> bytes:
    """The JSON with one value, or one name, changed."""
    value = json.loads(content)
    for _ in range(dice.choice((1, 1, 3))):
        places = list(places_of(value))
        if not places:
            break
        parent, key = dice.choice(places)
        if isinstance(parent, dict) and dice.random() < 0.2:
            parent[str(dice.choice(ODD))] = parent.pop(key)
        elif dice.random() < 0.2:
            del parent[key]
        else:
            parent[key] = copy.deepcopy(dice.choice(ODD))
    return json.dumps(value).encode()


def places_of(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places_of(value[key])


def changed_archive(content: bytes, dice: random.Random) -> bytes:
    """The archive with one member changed, renamed, doubled or left out."""
    with tempfile.TemporaryFile() as old, tempfile.TemporaryFile() as new:
        old.write(content)
        with zipfile.ZipFile(old) as before, zipfile.ZipFile(new, "w", dice.choice((0, 8))) as after:
            names = before.namelist()
            chosen = dice.choice(names)
            for name in names:
                inside = before.read(name)
                if name == chosen:
                    match dice.randrange(5):
                        case 0:
                            continue
                        case 1:
                            name = dice.choice((f"../{name}", f"/tmp/{name}", "a/../../b", "", "x" * 300))
                        case 2:
                            after.writestr(name, inside)
                        case _:
                            inside = changed(inside, name, dice)
                after.writestr(name or "empty", inside)
        new.seek(0)
        return new.read()


def mutants(kind: str, made: Path, numbers: range, seed: int, results: Path) -> None:
    """In a process of its own: read each mutant, and note what happened, one line each."""
    _, file, read = KINDS[kind]
    good = (made / file).read_bytes()
    faulthandler.enable(open(os.devnull, "w"))  # noqa: SIM115
    signal.signal(signal.SIGALRM, _too_long)
    with tempfile.TemporaryDirectory() as place, results.open("a", encoding="utf-8") as notes:
        folder = Path(place) / "inside/folder"
        shutil.copytree(made, folder, symlinks=True)
        os.chdir(folder)
        os.environ["TRANSFORMER_MT_CACHE"] = f"{place}/cache"
        import torch  # noqa: F401

        read(folder)  # so that memory for libraries is there before it is limited
        limit = memory() + MORE
        for number in numbers:
            mutant = changed(good, file, random.Random(f"{kind} {seed} {number}"))
            (folder / file).write_bytes(mutant)
            resource.setrlimit(resource.RLIMIT_AS, (limit + 10 * len(mutant), resource.RLIM_INFINITY))
            print(number, "begun", file=notes, flush=True)
            signal.alarm(SECONDS)
            try:
                with messages_to(lambda text: None):
                    read(folder)
                outcome = "read"
            except (UserError, OSError) as error:
                text = str(error)
                outcome = (
                    "refused"
                    if text and "\n\n" not in text and len(text) < 2000
                    else f"BAD text: {text[:300]!r}"
                )
            except TimeoutError:
                outcome = f"BAD: more than {SECONDS} seconds"
            except BaseException:
                outcome = "BAD: " + traceback.format_exc()[-700:].replace("\n", " | ")
            signal.alarm(0)
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            if sorted(path.name for path in Path(place).iterdir()) not in (["inside"], ["cache", "inside"]):
                outcome = "BAD: a file outside the folder"
            print(number, outcome, file=notes, flush=True)


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError


def memory() -> int:
    """The address space of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def show(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def in_child(work: Callable[[], object]) -> int:
    """Do the work in a fork, which leaves no threads of libraries here; returns its exit status."""
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def fuzz(kind: str, count: int, seed: int) -> Counter[str]:
    """Read `count` mutants; returns how they ended."""
    ends: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        made, results = Path(place) / "made", Path(place) / "results"
        made.mkdir()
        results.touch()
        in_child(lambda: KINDS[kind].make(made))
        next_one = 0
        while next_one < count:
            numbers = range(next_one, min(count, next_one + BATCH))
            status = in_child(lambda: mutants(kind, made, numbers, seed, results))  # noqa: B023
            lines = [line.split(" ", 1) for line in results.read_text(encoding="utf-8").splitlines()]
            last = int(lines[-1][0]) if lines else next_one
            if status and lines and lines[-1][1] == "begun":
                with results.open("a", encoding="utf-8") as notes:
                    print(last, f"BAD: the process ended with {status}", file=notes)
            elif status:
                raise SystemExit(f"{kind}: the good file cannot be read")
            next_one = last + 1
        good = (made / KINDS[kind].file).read_bytes()
        for line in results.read_text(encoding="utf-8").splitlines():
            number, outcome = line.split(" ", 1)
            if outcome == "begun":
                continue
            ends[outcome.split(":")[0].split(" ")[0]] += 1
            if outcome.startswith("BAD"):
                OUT.mkdir(parents=True, exist_ok=True)
                mutant = changed(good, KINDS[kind].file, random.Random(f"{kind} {seed} {number}"))
                name = f"{kind}-{number}{Path(KINDS[kind].file).suffix}"
                (OUT / name).write_bytes(mutant)
                show(f"{name}: {outcome}")
    return ends


# The kinds. `RUN`, a run's folder, is given by --run.

RUN = Path("runs/demo")
TEXT = "The dog sleeps."


def run_in(folder: Path) -> None:
    for name in (
        "config.yaml",
        "tokenizer.model",
        "model.safetensors",
        "calibration.json",
        "seen.safetensors",
    ):
        if (RUN / name).exists():
            shutil.copy(RUN / name, folder)


def checkpoint_in(folder: Path) -> None:
    newest = max((RUN / "checkpoints").glob("step-*"))
    shutil.copytree(newest, folder / "step-00000001")


def export_in(folder: Path) -> None:
    shutil.copytree(RUN / "ctranslate2", folder, dirs_exist_ok=True)


def archive_in(folder: Path) -> None:
    words = ["export", RUN.resolve(), folder / "m.argosmodel", "--to", "argos", "--quantization", "float32"]
    subprocess.run([sys.executable, "-m", "transformer_mt", *words], check=True, capture_output=True)


def argos_folder_in(folder: Path) -> None:
    archive_in(folder)
    with zipfile.ZipFile(folder / "m.argosmodel") as archive:
        top = archive.namelist()[0].split("/")[0]
        archive.extractall(folder)
    for path in (folder / top).iterdir():
        path.rename(folder / path.name)
    (folder / "m.argosmodel").unlink()


def public_in(folder: Path) -> None:
    from tests.helpers.public_models import write_marian

    write_marian(folder / "public")
    shutil.copytree(folder / "public", folder, dirs_exist_ok=True)
    shutil.rmtree(folder / "public")


def marian_in(folder: Path) -> None:
    from tests.helpers.public_models import write_marian, write_npz

    write_marian(folder / "public")
    write_npz(folder / "npz", folder / "public")
    shutil.copytree(folder / "npz", folder, dirs_exist_ok=True)
    for name in ("npz", "public"):
        shutil.rmtree(folder / name)
    next(folder.glob("*.npz")).rename(folder / "model.npz")


def bergamot_in(folder: Path) -> None:
    """The same in int8, as Firefox has its models."""
    import numpy as np

    from transformer_mt.companions.exchange.marian_layout import OPTIONS, write_bin

    marian_in(folder)
    with np.load(folder / "model.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    options = arrays.pop(OPTIONS).tobytes().rstrip(b"\0").decode()
    write_bin(folder / "model.bin", arrays, options, int8=True)
    (folder / "model.npz").unlink()


def answers_in(folder: Path) -> None:
    from transformer_mt.companions.teacher.answers import Answers, Cost
    from transformer_mt.companions.teacher.prompt import Answer

    answers = Answers(folder / "a.sqlite")
    answers.put({"A dog.": Answer("Ein Hund.", None)}, "http://localhost", Cost(1, 5, 5, 0.0))
    answers.close()
    for rest in folder.glob("a.sqlite-*"):
        rest.unlink()


def writes(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text, encoding="utf-8")


def read_weights(folder: Path) -> None:
    RunFolder(folder).weights()


def translate(folder: Path) -> None:
    from transformer_mt import Translator

    Translator.load(folder, device="cpu").translate([TEXT])


def read_checkpoint(folder: Path) -> None:
    from transformer_mt.checkpoint import load

    load(folder / "step-00000001")


def read_vocabulary(folder: Path) -> None:
    tokenizer = RunFolder(folder).tokenizer()
    tokenizer.decode_tgt(tokenizer.encode_src([TEXT])[0])


def verify(folder: Path) -> None:
    from transformer_mt.companions.exchange.verify import verify as rows_of

    rows_of(next(folder.glob("*.argosmodel"), folder), None, None, None)


def import_public(folder: Path) -> None:
    from transformer_mt.companions.exchange.importing.foreign_model import Languages
    from transformer_mt.companions.exchange.importing.import_model import import_model

    out = folder.parent / "run"
    shutil.rmtree(out, ignore_errors=True)
    import_model(folder, out, "m", Languages("en", "de"))


def read_config(folder: Path) -> None:
    from transformer_mt.config.load import load_config

    load_config(folder / "config.yaml")


def read_calibration(folder: Path) -> None:
    translate(folder)


def read_seen(folder: Path) -> None:
    if (seen := RunFolder(folder).seen()) is not None:
        seen.both.has_trained([TEXT])


def glossary(name: str) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        from transformer_mt.companions.terms.glossary import read_glossary

        read_glossary(folder / name, ("en", "de")).find("The dog and the cat sleep in the house.")

    return read


def memory_of(name: str) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        from transformer_mt.companions.terms.memory import read_memory

        read_memory(folder / name, ("en", "de")).exact(TEXT)

    return read


def corpus(name: str) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        from transformer_mt.corpora.file import FileCorpus

        for _ in FileCorpus(file=str(folder / name)).stored_pairs(("en", "de")):
            pass

    return read


def parquet_in(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"en": ["A dog."] * 50, "de": ["Ein Hund."] * 50}), folder / "c.parquet")


def read_answers(folder: Path) -> None:
    from transformer_mt.companions.teacher.answers import Answers

    for rest in folder.glob("a.sqlite-*"):
        rest.unlink()
    answers = Answers(folder / "a.sqlite")
    try:
        answers.of("A dog.")
        answers.receipt(["A dog."], None)
    finally:
        answers.close()


def _unit(source: str, target: str) -> str:
    sides = (("en", source), ("de", target))
    return (
        "<tu>" + "".join(f'<tuv xml:lang="{lang}"><seg>{text}</seg></tuv>' for lang, text in sides) + "</tu>"
    )


_UNITS = _unit(TEXT, "Der Hund schläft.") + _unit("A <ph>1</ph> cat.", "Eine <ph>1</ph> Katze.")
TMX = f'<?xml version="1.0"?>\n<tmx version="1.4"><header srclang="en"/><body>{_UNITS}</body></tmx>'
_TERMS = "".join(
    f'<langSet xml:lang="{lang}"><tig><term>{term}</term></tig></langSet>'
    for lang, term in (("en", "dog"), ("de", "Hund"))
)
TBX = f'<?xml version="1.0"?>\n<tbx><text><body><termEntry>{_TERMS}</termEntry></body></text></tbx>'
KINDS: dict[str, Kind] = {
    "weights": Kind(run_in, "model.safetensors", read_weights),
    "checkpoint tensors": Kind(checkpoint_in, "step-00000001/model.safetensors", read_checkpoint),
    "checkpoint state": Kind(checkpoint_in, "step-00000001/state.json", read_checkpoint),
    "checkpoint manifest": Kind(checkpoint_in, "step-00000001/manifest.json", read_checkpoint),
    "vocabulary": Kind(run_in, "tokenizer.model", read_vocabulary),
    "config of a run": Kind(run_in, "config.yaml", translate),
    "calibration": Kind(run_in, "calibration.json", read_calibration),
    "seen sentences": Kind(run_in, "seen.safetensors", read_seen),
    "config": Kind(
        lambda folder: shutil.copy("configs/multi30k_en_de.yaml", folder / "config.yaml"),
        "config.yaml",
        read_config,
    ),
    "export model": Kind(export_in, "model.bin", translate),
    "export facts": Kind(export_in, "export.json", translate),
    "export vocabulary": Kind(export_in, "shared_vocabulary.json", translate),
    "export config": Kind(export_in, "config.json", translate),
    "argos archive": Kind(archive_in, "m.argosmodel", verify),
    "argos facts": Kind(argos_folder_in, "metadata.json", import_public),
    "argos vocabulary": Kind(argos_folder_in, "model/shared_vocabulary.json", import_public),
    "public config": Kind(public_in, "config.json", import_public),
    "public weights": Kind(public_in, "model.safetensors", import_public),
    "public vocabulary": Kind(public_in, "vocab.json", import_public),
    "marian": Kind(marian_in, "model.npz", import_public),
    "bergamot": Kind(bergamot_in, "model.bin", import_public),
    "glossary": Kind(
        writes("g.tsv", "dog\tHund\ncat\tKatze\nthe house\tdas Haus\n"), "g.tsv", glossary("g.tsv")
    ),
    "glossary tbx": Kind(writes("g.tbx", TBX), "g.tbx", glossary("g.tbx")),
    "memory": Kind(writes("m.tmx", TMX), "m.tmx", memory_of("m.tmx")),
    "memory table": Kind(
        writes("m.tsv", "en\tde\nThe dog sleeps.\tDer Hund schläft.\n"), "m.tsv", memory_of("m.tsv")
    ),
    "corpus json": Kind(
        writes("c.jsonl", '{"en": "A dog.", "de": "Ein Hund."}\n' * 5), "c.jsonl", corpus("c.jsonl")
    ),
    "corpus table": Kind(writes("c.csv", 'en,de\n"A dog.","Ein Hund."\n'), "c.csv", corpus("c.csv")),
    "corpus parquet": Kind(parquet_in, "c.parquet", corpus("c.parquet")),
    "corpus tmx": Kind(writes("c.tmx", TMX), "c.tmx", corpus("c.tmx")),
    "teacher answers": Kind(answers_in, "a.sqlite", read_answers),
}


def main() -> int:
    global RUN
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--run", type=Path, default=RUN, help="a finished run with an export")
    options = parser.parse_args()
    RUN = options.run.resolve()
    rows = []
    for kind in options.kinds or KINDS:
        begun = time.monotonic()
        ends = fuzz(kind, options.count, options.seed)
        rows.append([kind, ends["read"], ends["refused"], ends["BAD"], f"{time.monotonic() - begun:.0f}"])
        show(*rows[-1])
    show(table(rows, ["file", "read", "refused", "bad", "seconds"]))
    return int(any(row[3] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
