"""Hashes and signatures of exports: is a folder what its maker wrote, and who was that?

An export holds SHA256SUMS, which `sha256sum -c` reads, too. Signatures are those of OpenSSF's model signing:
a Sigstore bundle over the hashes of all files.
"""

import hashlib
import itertools
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import digest, missing, write_text
from transformer_mt.messages import say
from transformer_mt.run_folder import RunFolder, facts_of

SUMS, SIGNATURE = "SHA256SUMS", "model.sig"
_EVALUATION = "evaluation"
"""The folder that `evaluate` and `compare` add to a model: no part of it, neither hashed nor signed."""


class Row(NamedTuple):
    """A line of the table."""

    check: str
    found: str
    is_wrong: bool = False


def verify(path: Path, key: str | None, identity: str | None, issuer: str | None) -> list[Row]:
    """Everything that can be checked of an export or a run."""
    if not path.exists():
        raise InputError(missing(path))
    rows = [*_files(path), *_receipt(path)] if path.is_dir() else _archive(path)
    return [*rows, _signature(path, key, identity, issuer)]


def write_sums(folder: Path) -> None:
    """Write the hash of each file in the folder to SHA256SUMS."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SUMS)
    lines = [f"{_sha256(file)}  {file.relative_to(folder).as_posix()}\n" for file in files]
    write_text(folder / SUMS, "".join(lines))


def _archive(path: Path) -> list[Row]:
    """The rows of an .argosmodel file, a ZIP archive of one folder."""
    try:
        with zipfile.ZipFile(path) as archive:
            root = zipfile.Path(archive, f"{min(archive.namelist(), default='').split('/')[0]}/")
            return [_compare(root), *_receipt(root)]
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        return [Row("files", f"no archive that can be read: {error}", True)]


def _files(path: Path) -> Iterator[Row]:
    """Whether the files are as they were written: by SHA256SUMS, and by the manifests of checkpoints."""
    run = RunFolder(path)
    if run.is_export or (path / SUMS).exists():
        yield _compare(path)
    else:
        yield from _run_files(run)


def _compare(root: Any) -> Row:
    """`root` is a path or a path in an archive."""
    sums = root / SUMS
    if not sums.exists():
        return Row("files", f"no {SUMS}: exported by an older version, or not by us", True)
    expected: dict[str, str] = {}
    for line in sums.read_text(encoding="utf-8", errors="replace").splitlines():
        sha, _, name = line.partition("  ")
        parts = PurePosixPath(name).parts
        if len(sha) != 64 or not parts or parts[0] == "/" or ".." in parts:
            return Row("files", f"{SUMS} is damaged: {line[:100]!r}", True)
        expected[name] = sha
    wrong = [f"{name} is missing" for name in expected if not (root / name).is_file()]
    wrong += [
        f"{name} is not what was written"
        for name, sha in expected.items()
        if (root / name).is_file() and _sha256(root / name) != sha
    ]
    evaluated = {name for name in _names(root) if name.startswith(f"{_EVALUATION}/")}
    added = _names(root) - expected.keys() - evaluated - {SUMS, SIGNATURE}
    wrong += [f"{name} was added" for name in sorted(added)]
    return Row("files", "; ".join(wrong) or f"all {len(expected)} as written ({SUMS})", bool(wrong))


def _names(root: Any) -> set[str]:
    """The files in a folder or in a folder of an archive. Links are not followed: they may be loops."""
    if isinstance(root, Path):
        paths = (Path(parent, name) for parent, *below in os.walk(root) for name in itertools.chain(*below))
        return {path.relative_to(root).as_posix() for path in paths if path.is_symlink() or path.is_file()}
    names = (name for name in root.root.namelist() if name.startswith(root.at) and not name.endswith("/"))
    return {name.removeprefix(root.at) for name in names}


def _sha256(file: Any) -> str:
    with file.open("rb") as stream:
        whole = hashlib.sha256()
        while block := stream.read(2**20):
            whole.update(block)
        return whole.hexdigest()


def _run_files(run: RunFolder) -> Iterator[Row]:
    from transformer_mt.checkpoint import CheckpointError, all_checkpoints, load

    run.config()
    try:
        weights = run.weights()
    except (WorkError, InputError) as error:
        yield Row("weights", str(error), True)
    else:
        odd = [name for name, weight in weights.items() if not bool(weight.isfinite().all())]
        found = f"{odd[0]} is not finite" if odd else f"{sum(w.numel() for w in weights.values()):,} numbers"
        yield Row("weights", found, bool(odd))
    for path in all_checkpoints(run.checkpoints):
        try:
            load(path)
        except CheckpointError as error:
            yield Row(path.name, str(error), True)
        else:
            yield Row(path.name, "as written (manifest.json)")
    export = RunFolder(run.export_folder)
    if export.is_export:
        yield _compare(export.path)._replace(check="own export")
        if run.own_export is None:
            yield Row("own export", "was made from other weights; translate ignores it")


def _receipt(root: Any) -> Iterator[Row]:
    """What the maker measured, as the folder (or the folder in an archive) tells it."""
    facts, weights = _facts(root / "metadata.json"), _facts(root / "export.json").get("weights")
    proof = facts.get("proof")
    if isinstance(proof, dict) and proof.keys() >= {"identical", "sentences", "quantization"}:
        lines = f"{proof['identical']} of {proof['sentences']} probe lines"
        yield Row("proof", f"{lines} as the run translates them ({proof['quantization']})")
    if made := facts.get("made_with"):
        yield Row("made with", f"{made}{f', from weights {weights}' if weights else ''}")
    for scores in facts.get("scores", []) if isinstance(facts.get("scores"), list) else []:
        if isinstance(scores, dict) and "bleu" in scores:
            yield Row("measured", f"BLEU {scores['bleu']} on {scores.get('corpus', 'a test set')}")
    if isinstance(root, Path) and (run := RunFolder(root)).is_finished:
        weights, trained = digest(run.weights_file), _facts(run.finished_file).get("weights")
        is_changed = trained is not None and trained != weights
        change = f"; the training wrote {trained}" if is_changed else ""
        yield Row("training", f"finished; weights {weights}{change}", is_changed)


def _facts(file: Any) -> dict[str, Any]:
    return facts_of(file) if file.exists() else {}


def signature_of(path: Path) -> Path:
    """The file of the signature: in a folder, next to a file."""
    return path / SIGNATURE if path.is_dir() else path.with_name(f"{path.name}.sig")


def _signature(path: Path, key: str | None, identity: str | None, issuer: str | None) -> Row:
    file = signature_of(path)
    if not file.exists():
        return Row("signature", f"no {file.name}", bool(key or identity))
    if not (key or identity):
        return Row("signature", f"{file.name} is not checked, as no signer was named")
    signing = _library()
    verifier = signing.verifying.Config().set_hashing_config(_hashing(signing, file))
    if key and not Path(key).is_file():
        raise InputError(missing(key))
    who = f"the key {key}" if key else f"{identity} ({issuer})"
    try:
        if key:
            verifier.use_elliptic_key_verifier(public_key=Path(key))
        else:
            verifier.use_sigstore_verifier(identity=identity, oidc_issuer=issuer)
        verifier.verify(path, file)
    except Exception as error:  # the libraries below raise their own kinds
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        if reason.startswith("Signature mismatch"):  # a list of hashes
            reason = "the files are not those that were signed"
        return Row("signature", f"not that of {who}: {reason}", True)
    return Row("signature", f"{who}, over all files")


def signer_of(key: str) -> Callable[[Path], None]:
    """A function that signs an export with this private key (elliptic curve, PEM). InputError if the key
    cannot be used.
    """
    signing = _library()
    try:
        signer = signing.signing.Config().use_elliptic_key_signer(private_key=Path(key))
    except (ValueError, TypeError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
        raise InputError(
            f"{key}: must be a private key of an elliptic curve in a PEM file, but: {reason}"
        ) from None

    def sign(path: Path) -> None:
        file = signature_of(path)
        signer.set_hashing_config(_hashing(signing, file)).sign(path, file)
        say(f"{file}: signed")

    return sign


def _hashing(signing: Any, file: Path) -> Any:
    return signing.hashing.Config().set_ignored_paths(paths=[file.name, _EVALUATION], ignore_git_paths=False)


def _library() -> Any:
    try:
        import model_signing
    except ImportError as error:
        raise InputError(f"signatures need {error.name}: pip install 'transformer-mt[sign]'") from None
    return model_signing
