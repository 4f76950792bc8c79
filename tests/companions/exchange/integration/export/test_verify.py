"""transformer-mt verify: what is as it was written, and who signed it."""

import json
import shutil
import subprocess

import pytest

pytest.importorskip("ctranslate2")


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """A folder with two pairs of keys."""
    pytest.importorskip("model_signing")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    folder = tmp_path_factory.mktemp("keys")
    for name in ("ours", "other"):
        key = ec.generate_private_key(ec.SECP256R1())
        pem, text = serialization.Encoding.PEM, serialization.NoEncryption()
        private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, text)
        public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
        (folder / f"{name}.pem").write_bytes(private)
        (folder / f"{name}.pub").write_bytes(public)
    return folder


@pytest.fixture
def signed(untrained_run, keys, tmp_path, cli):
    run = untrained_run()
    assert cli("export", run, tmp_path / "out", "--sign", keys / "ours.pem").status == 0
    return tmp_path / "out"


def found(result):
    return {row["check"]: (row["found"], row["is_wrong"]) for row in json.loads(result.out)}


def test_an_export_is_what_its_signer_wrote(signed, keys, cli):
    table = cli("verify", signed, "--key", keys / "ours.pub")
    assert table.status == 0 and "WRONG" not in table.out
    rows = found(cli("verify", signed, "--key", keys / "ours.pub", "--json"))
    assert rows["files"][0].endswith("as written (SHA256SUMS)")
    assert "probe lines as the run translates them (float32)" in rows["proof"][0]
    assert rows["signature"] == (f"the key {keys / 'ours.pub'}, over all files", False)
    unasked = found(cli("verify", signed, "--json"))
    assert unasked["signature"] == ("model.sig is not checked, as no signer was named", False)
    checked = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=signed, capture_output=True)
    assert checked.returncode == 0


def test_what_was_changed_is_named(signed, keys, cli):
    (signed / "config.yaml").open("a").write("# mine\n")
    (signed / "tokenizer.model").unlink()
    (signed / "new.py").touch()
    result = cli("verify", signed, "--key", keys / "ours.pub", "--json")
    assert result.status == 1
    rows = found(result)
    assert rows["files"] == (
        "tokenizer.model is missing; config.yaml is not what was written; new.py was added",
        True,
    )
    mismatch = "the files are not those that were signed"
    assert rows["signature"] == (f"not that of the key {keys / 'ours.pub'}: {mismatch}", True)


@pytest.mark.parametrize("line", ["nonsense", f"{'0' * 64}  ../../etc/passwd", f"{'0' * 64}  /etc/passwd"])
def test_a_list_of_hashes_that_leads_elsewhere_is_not_followed(signed, cli, line):
    (signed / "SHA256SUMS").write_text(f"{line}\n")
    assert found(cli("verify", signed, "--json"))["files"] == (f"SHA256SUMS is damaged: {line!r}", True)


def test_another_signer_and_no_signature_are_wrong(signed, keys, cli):
    rows = found(cli("verify", signed, "--key", keys / "other.pub", "--json"))
    assert rows["signature"][0].startswith(f"not that of the key {keys / 'other.pub'}: Key mismatch")
    (signed / "model.sig").write_text("{")
    assert found(cli("verify", signed, "--key", keys / "ours.pub", "--json"))["signature"][1]
    (signed / "model.sig").unlink()
    assert found(cli("verify", signed, "--key", keys / "ours.pub", "--json"))["signature"] == (
        "no model.sig",
        True,
    )
    assert found(cli("verify", signed, "--json"))["signature"] == ("no model.sig", False)


def test_a_run_is_verified_by_its_checkpoints(tiny_run, tmp_path, cli):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    rows = found(cli("verify", run, "--json"))
    assert rows["step-00000024"] == ("as written (manifest.json)", False)
    assert rows["weights"][0].endswith(" numbers")
    file = run / "checkpoints/step-00000024/model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    result = cli("verify", run, "--json")
    assert result.status == 1 and found(result)["step-00000024"][1]
    assert "its content is not what was written" in found(result)["step-00000024"][0]


def test_an_archive_of_argos_is_verified(tiny_run, keys, tmp_path, cli):
    pytest.importorskip("argostranslate")
    package = tmp_path / "out.argosmodel"
    exported = cli("export", tiny_run, package, "--to", "argos", "--sign", keys / "ours.pem")
    assert exported.status == 0, exported.err
    rows = found(cli("verify", package, "--key", keys / "ours.pub", "--json"))
    assert rows["files"][0].endswith("as written (SHA256SUMS)") and not rows["signature"][1]
    assert rows["proof"][0].endswith("(int8)")
    package.write_bytes(package.read_bytes()[:3000])
    assert found(cli("verify", package, "--json"))["files"] == (
        "no archive that can be read: File is not a zip file",
        True,
    )


@pytest.mark.parametrize(
    "words, message",
    [
        (["nothing"], "nothing: no such file"),
        ([".", "--identity", "a@example.org"], "--identity and --issuer must be given together"),
    ],
)
def test_mistakes_are_told(cli, words, message):
    result = cli("verify", *words)
    assert result.status == 2 and message in result.err


def test_a_key_that_cannot_sign_is_told_before_the_export(untrained_run, keys, tmp_path, cli):
    run = untrained_run()
    for name, reason in (("ours.pub", "Valid PEM"), ("none.pem", "No such file")):
        result = cli("export", run, tmp_path / "out", "--sign", keys / name)
        assert result.status == 2 and "must be a private key of an elliptic curve" in result.err
        assert reason in result.err and not (tmp_path / "out").exists()


def test_scores_of_an_export_are_no_part_of_it(signed, keys, cli):
    """`evaluate` and `compare` write them into its folder."""
    (signed / "evaluation").mkdir()
    (signed / "evaluation/test-0.jsonl").write_text("{}\n", encoding="utf-8")
    result = cli("verify", signed, "--key", keys / "ours.pub", "--json")
    assert result.status == 0 and not any(is_wrong for _, is_wrong in found(result).values())


def test_links_are_not_followed(signed, cli):
    for name in ("a", "b"):
        (signed / name).symlink_to(signed, target_is_directory=True)  # two loops: 2^40 paths
    assert found(cli("verify", signed, "--json"))["files"] == ("a was added; b was added", True)


def test_weights_that_are_not_those_of_the_training_are_found(tiny_run, tmp_path, cli):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    assert cli("verify", run).status == 0
    content = bytearray((run / "model.safetensors").read_bytes())
    content[-1] ^= 1  # still a number
    (run / "model.safetensors").write_bytes(content)
    result = cli("verify", run)
    assert result.status == 1 and "; the training wrote " in result.out
