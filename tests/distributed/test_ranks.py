"""Several processes train and translate as one does. They are real ones, started by torchrun, talking through
gloo."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import yaml
from safetensors.torch import load_file
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from tests.conftest import ROOT, TINY
from tests.helpers.command import Result, WarmProcess
from transformer_mt import ranks as ranks_module
from transformer_mt.checkpoint import load
from transformer_mt.corpora import toy
from transformer_mt.errors import InputError, WorkError
from transformer_mt.ranks import meet, run_ranks

# No dropout: each rank draws its own. A large epsilon: else Adam makes whole steps of gradients that are only
# rounding. GELU: a ReLU's input within rounding of zero has a whole gradient in one order of sums and none in
# another, and of some four million inputs in such a training one or none is so near to zero.
CHANGES = {
    "model": {**TINY["model"], "dropout": 0.0, "feed_forward": "gelu"},
    "train": {**TINY["train"], "eps": 1e-3},
}
# Relative: a sum of n float32 terms in another order differs by about sqrt(n) 2^-24 of its terms. Gradients
# sum over some 2,500 tokens whose terms cancel down to a tenth, and 24 updates follow one another:
# 50 * 10 * 24 * 2^-24 = 7e-4. Measured: 2e-6.
ROUNDING = 7e-4


TORCHRUN = ("-m", "torch.distributed.run", "--standalone")


def run(folder: Path, ranks: int, *words: str, before: tuple = (), stdin: bytes = b""):
    """The command line in `ranks` forked processes that meet as torchrun's do. Standard error is that of all
    of them.
    """
    alone = {"OMP_NUM_THREADS": "1"}
    if ranks == 1:
        return WarmProcess(words, folder, stdin, alone, before).wait()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    meet |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    processes = [
        WarmProcess(
            words, folder, stdin, {**alone, **meet, "RANK": str(rank), "LOCAL_RANK": str(rank)}, before
        )
        for rank in range(ranks)
    ]
    results = [process.wait(240) for process in processes]
    statuses, outs, errs = zip(*results)
    return Result(max(statuses, key=abs), "".join(outs), "".join(errs))


def torchrun(
    folder: Path, ranks: int, *words: str, program: tuple[str, ...] = ("-m", "transformer_mt"), **env: str
):
    """The same by torchrun itself."""
    launcher = [*TORCHRUN, f"--nproc-per-node={ranks}"] if ranks > 1 else []
    done = subprocess.run(
        [sys.executable, *launcher, *program, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **env},
        capture_output=True,
        text=True,
        timeout=240,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def train(folder: Path, ranks: int, out: str, *overrides: str, by=run, **options: str):
    (folder / "tiny.yaml").write_text(yaml.safe_dump({**TINY, **CHANGES}), encoding="utf-8")
    result = by(folder, ranks, "train", "tiny.yaml", "--out", out, *overrides, **options)
    assert result.status == 0, result.err
    return result.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def one(folder):
    """One process, with four batches an update."""
    train(folder, 1, "one", "train.accumulate=4")
    return folder / "one"


@pytest.fixture(scope="module")
def two(folder):
    """Two processes, with two batches each, as `make train GPUS=2` starts them."""
    train(folder, 1, "two", "train.accumulate=2", "--gpus", "2", by=torchrun)
    return folder / "two"


def measured(folder):
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [entry for entry in map(json.loads, lines) if entry["event"] == "valid"]


def assert_same_training(left: Path, right: Path):
    """Weights, moments, counters and losses. Sums in another order change single numbers of Adam's moments,
    and with them weights whose gradient is all rounding: whole tensors are compared, by their norm. The
    softmax does not see the bias of the keys, so its whole gradient is rounding: it must only stay small.
    """
    for name in ("step-00000018", "step-00000024"):
        a, b = load(left / "checkpoints" / name), load(right / "checkpoints" / name)
        for group in ("model", "optimizer"):
            assert a.tensors[group].keys() == b.tensors[group].keys()
            for key, tensor in a.tensors[group].items():
                other = b.tensors[group][key].double()
                if "key.bias" in key and tensor.ndim:
                    assert max(tensor.double().norm(), other.norm()) < 1e-5, (group, key)
                    continue
                distance = (tensor.double() - other).norm()
                assert distance <= ROUNDING * tensor.double().norm() + 1e-12, (group, key)
        assert a.state["batches"] == b.state["batches"]
        assert a.state["progress"]["tokens"] == b.state["progress"]["tokens"]
    for a, b in zip(measured(left), measured(right), strict=True):
        # Not their translations: one of two pieces that are nearly as likely would decide.
        assert a["step"] == b["step"] and len(a["samples"]) == len(b["samples"])
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)


def test_two_ranks_end_with_the_weights_of_one_process(one, two):
    assert_same_training(one, two)


def prepare_in_blocks_of(rows: int) -> None:
    """Each process says which blocks it encodes."""
    from transformer_mt.data.preparation import clean, encode_blocks

    def saying(self, number, run=encode_blocks.EncodeBlocks.run):
        sys.stderr.write(f"rank {os.environ['RANK']} encodes block {number}\n")
        sys.stderr.flush()
        run(self, number)

    clean.BLOCK, encode_blocks.EncodeBlocks.run = rows, saying


def test_the_first_rank_of_a_machine_prepares_with_all_its_cores(folder):
    words = ["data.max_length_ratio=3.9"]  # another key: it must not be in the cache
    words += ["train.max_updates=2", "train.validate_every=2", "train.average_checkpoints=1", "data.test=[]"]
    said = train(folder, 2, "encoded", *words, before=(prepare_in_blocks_of, 40))
    blocks = re.findall(r"rank (\d) encodes block (\d+)", said)
    assert {rank for rank, _ in blocks} == {"0"} and len(blocks) == len(set(blocks)) > 3
    assert (folder / "encoded/model.safetensors").exists()


@pytest.mark.long
def test_ranks_go_on_after_a_validation_longer_than_any_sentence_before(folder):
    """In which the table of sinusoids grew, on one rank."""
    (folder / "long.tsv").write_text("en\tde\n" + "dog " * 300 + "\tHund\na dog\tein Hund\n", "utf-8")
    words = ["data.valid={file: long.tsv}", "data.max_length=600", "train.batch_tokens=700"]
    train(folder, 2, "long", *words, "train.max_updates=13", "train.average_checkpoints=1")


def test_shared_out_weights_end_as_whole_ones_with_shares_of_different_sizes(folder):
    """Of an update of a fixed size a rank's share may take more passes than that of the other; also in
    micro-batches: both must make as many passes.
    """
    words = ["train.update_tokens=700", "train.batch_tokens=200"]
    train(folder, 1, "sized-alone", *words)
    train(folder, 2, "sized-shared", *words, "train.parallel=fsdp", "train.micro_batch_tokens=120")
    assert_same_training(folder / "sized-alone", folder / "sized-shared")


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_packed_and_compiled_layers_train_the_same_with_ranks(folder, parallel):
    """As several GPUs do by default."""
    packed = "train.packed=true"
    train(folder, 1, f"packed-{parallel}", packed, "train.accumulate=4")
    words = [packed, "train.accumulate=2", f"train.parallel={parallel}", "train.compile=true"]
    train(folder, 2, f"compiled-{parallel}", *words)
    assert_same_training(folder / f"packed-{parallel}", folder / f"compiled-{parallel}")


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_ranks_with_dropout_resume_bit_for_bit(folder, parallel):
    words = ["model.dropout=0.2", f"train.parallel={parallel}", "train.optimizer=muon"]
    words += ["train.average_checkpoints=1", "train.schedule=constant"]
    train(folder, 2, f"straight-{parallel}", *words)
    train(folder, 2, f"stopped-{parallel}", *words, "train.max_updates=12")
    # Which is nothing to the training
    train(folder, 2, f"stopped-{parallel}", *words, "train.validate_every=7")
    a, b = (
        load(folder / f"{name}-{parallel}" / "checkpoints" / "step-00000024")
        for name in ("straight", "stopped")
    )
    for group in ("model", "optimizer", "rng"):
        assert a.tensors[group].keys() == b.tensors[group].keys()
        assert all(torch.equal(tensor, b.tensors[group][key]) for key, tensor in a.tensors[group].items())


@pytest.mark.slow
@pytest.mark.parametrize("first, then", [("fsdp", None), (None, "fsdp"), ("ddp", "fsdp"), ("fsdp", "ddp")])
def test_a_checkpoint_holds_whole_tensors_however_they_were_shared_out(folder, one, first, then):
    """None: one process, with twice the batches."""
    name = f"{first}-then-{then}"
    for parallel, updates in ((first, 12), (then, 24)):
        words = ["train.accumulate=2", f"train.parallel={parallel}"] if parallel else ["train.accumulate=4"]
        ends = ["train.max_updates=12", "train.average_checkpoints=1"] if updates == 12 else []
        train(folder, 2 if parallel else 1, name, *words, *ends, "train.schedule=constant")
    if not (folder / "constant").exists():
        train(folder, 1, "constant", "train.accumulate=4", "train.schedule=constant")
    assert_same_training(folder / "constant", folder / name)


@pytest.mark.parametrize("parallel, ranks", [("fsdp", 2), pytest.param("fsdp", 3, marks=pytest.mark.slow)])
def test_muon_sees_whole_matrices_where_weights_are_shared_out(folder, parallel, ranks):
    """Half of a matrix's rows, made orthogonal, are not half of the orthogonal matrix."""
    words = ["train.optimizer=muon", "train.warmup=0", "train.max_updates=2", "train.average_checkpoints=1"]
    if not (folder / "muon").exists():
        train(folder, 1, "muon", *words, "train.accumulate=6")
    name = f"muon-{parallel}-{ranks}"
    train(folder, ranks, name, *words, f"train.accumulate={6 // ranks}", f"train.parallel={parallel}")
    whole, shared = (load(folder / run / "checkpoints" / "step-00000002").tensors for run in ("muon", name))
    # A step is 0.002 (root mean square): by halves it would be 0.004 off.
    for key, weight in whole["model"].items():
        torch.testing.assert_close(weight, shared["model"][key], atol=2e-3, rtol=0.0)


def say_how_many_matrices(say_when: int) -> None:
    """Each rank says how many matrices it has made orthogonal after this many updates."""
    from transformer_mt.update import optimizer
    from transformer_mt.update.step import Updater

    orthogonal, update, counts = optimizer.orthogonal, Updater.update, {"matrices": 0, "updates": 0}

    def counting(matrices):
        counts["matrices"] += len(matrices)
        return orthogonal(matrices)

    def saying(*args, **kwargs):
        result = update(*args, **kwargs)
        counts["updates"] += 1
        if counts["updates"] == say_when:
            sys.stderr.write(f"made {counts['matrices']} matrices\n")
        return result

    optimizer.orthogonal = counting
    Updater.update = saying


@pytest.mark.long
def test_ranks_that_share_muons_work_make_the_same_steps(folder):
    """Bit for bit: the same matrices, each made by one rank instead of by both."""
    words = ["train.optimizer=muon", "train.warmup=0", "train.max_updates=4", "train.average_checkpoints=1"]
    work, tensors = {}, {}
    for shared in ("false", "true"):
        name = f"share-{shared}"
        said = train(folder, 2, name, *words, f"train.share_muon={shared}", before=(say_how_many_matrices, 4))
        work[shared] = [int(line.split()[1]) for line in said.splitlines() if line.startswith("made")]
        tensors[shared] = load(folder / name / "checkpoints" / "step-00000004").tensors
    assert len(work["true"]) == 2 and max(work["true"]) == max(work["false"]) / 2
    for group in ("model", "optimizer"):
        for key, tensor in tensors["false"][group].items():
            assert torch.equal(tensor, tensors["true"][group][key]), key


@pytest.mark.slow
def test_ranks_that_share_muons_work_find_their_budgets_alone(folder):
    """Each tries its own sizes: a rank that waited for another's step would wait for ever."""
    words = ["train.optimizer=muon", "train.share_muon=true", "train.batch_tokens=auto"]
    said = train(folder, 2, "budget", *words, "train.max_updates=2", "train.average_checkpoints=1")
    assert "train.batch_tokens: auto is" in said


def say_the_precision_of_weights() -> None:
    from transformer_mt.model import transformer

    forward = transformer.FeedForward.forward

    def saying(self, *args):
        sys.stderr.write(f"computes with {self.inner.weight.dtype}\n")
        return forward(self, *args)

    transformer.FeedForward.forward = saying


@pytest.mark.long
def test_layers_sent_in_bfloat16_train_as_those_sent_in_float32(folder):
    """Bit for bit where products are bfloat16 anyway; the weights that are kept are float32."""
    words = ["train.accumulate=2", "train.parallel=fsdp", "train.precision=bf16", "train.max_updates=6"]
    words += ["train.average_checkpoints=1", "model.dropout=0.1"]
    tensors = {}
    for sent, more in (("fp32", []), ("bf16", ["train.activation_checkpointing=true"])):
        before = (say_the_precision_of_weights,)
        said = train(folder, 2, f"sent-{sent}", *words, f"train.fsdp_weights={sent}", *more, before=before)
        assert f"computes with torch.{'bfloat16' if sent == 'bf16' else 'float32'}" in said
        tensors[sent] = load(folder / f"sent-{sent}" / "checkpoints" / "step-00000006").tensors
    for group in ("model", "optimizer"):
        for key, tensor in tensors["fp32"][group].items():
            assert torch.equal(tensor, tensors["bf16"][group][key]), key


@pytest.mark.parametrize(
    "words, message",
    [
        ("", "without train.parallel: fsdp"),
        ("train.parallel=fsdp train.precision=fp32", "where matrix products are float32 (train.precision)"),
        (
            "train.parallel=fsdp model.kind=recurrent model.attention.score=general",
            "with model.kind: recurrent, but is bf16",
        ),
    ],
)
def test_layers_sent_in_bfloat16_are_refused_where_they_cannot_be(folder, one, words, message):
    words = ["train.fsdp_weights=bf16", *words.split()]
    result = run(folder, 2, "train", "tiny.yaml", "--out", "refused", *words)
    assert result.status == 2 and f"train.fsdp_weights must be fp32 {message}" in result.err


@pytest.mark.long
@pytest.mark.parametrize("kind, objective", [("encoder", "masked_lm"), ("transformer", "denoise")])
def test_two_ranks_train_on_plain_text_as_one_does(folder, kind, objective):
    """The number of predicted pieces differs between batches; the loss is divided by that of all ranks."""
    text = f"language: en, objective: {objective}"
    words = [
        f"data.train={{toy: train, size: 1500, {text}}}",
        f"data.valid={{toy: valid, size: 40, {text}}}",
        "data.test=[]",
        f"model.kind={kind}",
        "model.feed_forward=gelu",  # a ReLU at its kink makes one of two what rounding makes of it
    ]
    train(folder, 1, f"{kind}-1", *words, "train.accumulate=4")
    train(folder, 2, f"{kind}-2", *words, "train.accumulate=2")
    assert_same_training(folder / f"{kind}-1", folder / f"{kind}-2")


@pytest.mark.long
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_ranks_learn_alignments_as_one_process_does(folder, parallel):
    """With micro-batches in addition, of which one may have no links."""
    words = ["train.guided_alignment={weight: 1.0}", "model.feed_forward=gelu"]
    if not (folder / "guided").exists():
        train(folder, 1, "guided", *words, "train.accumulate=4")
    more = [f"train.parallel={parallel}", "train.accumulate=2", "train.micro_batch_tokens=200"]
    train(folder, 2, f"guided-{parallel}", *words, *more)
    assert_same_training(folder / "guided", folder / f"guided-{parallel}")


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_ranks_train_a_recurrent_network_as_one_does(folder, parallel):
    words = ["model.kind=recurrent", "model.attention.score=general", "train.accumulate=2"]
    if not (folder / "recurrent").exists():
        train(folder, 1, "recurrent", *words[:2], "train.accumulate=4")
    train(folder, 2, f"recurrent-{parallel}", *words, f"train.parallel={parallel}")
    assert_same_training(folder / "recurrent", folder / f"recurrent-{parallel}")


@pytest.mark.parametrize(
    "first, then",
    [(2, 1), pytest.param(1, 2, marks=pytest.mark.slow), pytest.param(2, 3, marks=pytest.mark.slow)],
)
def test_a_checkpoint_is_read_by_any_number_of_ranks(folder, one, first, then):
    """Stopped at update 12 and resumed with another number of ranks; six batches an update divide by all of
    them.
    """
    straight = folder / "straight"
    if not straight.exists():
        train(folder, 1, "straight", "train.accumulate=6", "train.schedule=constant")
    name = f"from-{first}-to-{then}"
    share, ends = f"train.accumulate={6 // first}", ["train.max_updates=12", "train.average_checkpoints=1"]
    train(folder, first, name, share, "train.schedule=constant", *ends)
    said = train(folder, then, name, f"train.accumulate={6 // then}", "train.schedule=constant")
    assert "resuming from" in said and "update 12 of 24" in said
    assert_same_training(straight, folder / name)


def test_a_typo_is_told_once_before_any_process_starts(folder, one):
    result = run(folder, 1, "train", "tiny.yaml", "--gpus", "2", "train.max_update=3")
    assert result.status == 2
    (line,) = result.err.strip().split("\n")
    assert "max_updates" in line


def test_a_mistake_of_all_processes_ends_with_their_line_and_status(folder, one):
    """torchrun would add its own traceback, and end with status 1."""
    words = ["train", "tiny.yaml", "--gpus", "2", "data.max_length=3", "--out", "short"]
    result = torchrun(folder, 1, *words)
    assert result.status == 2 and "Traceback" not in result.err
    assert (
        "rank 0: toy train: no training pair is left after cleaning; raise data.max_length (3):" in result.err
    )


@pytest.mark.parametrize("code, status, said", [(2, 2, ""), (-9, 137, "rank 1 was ended by signal 9")])
def test_a_process_that_says_nothing_is_named(monkeypatch, capfd, code, status, said):
    failure = ProcessFailure(local_rank=1, pid=1, exitcode=code, error_file="none")

    def fail(arguments):
        raise ChildFailedError("transformer_mt", {1: failure})

    monkeypatch.setattr("torch.distributed.run.run", fail)
    monkeypatch.setattr("logging.disable", lambda: None)
    for name in ("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    assert run_ranks(2, ["train", "tiny.yaml"]) == status
    assert said in capfd.readouterr().err


def test_fsdp_alone_is_refused_in_one_line(folder, one):
    for words in (["--out", "alone"], ["--out", str(one), "--fresh"]):
        result = run(folder, 1, "train", "tiny.yaml", *words, "train.parallel=fsdp")
        assert result.status == 2
        assert "train.parallel: fsdp must have several processes, but there is one" in result.err
    assert (one / "model.safetensors").exists()
    assert not list(folder.glob("one.old-*")) and not (folder / "alone").exists()


def fail_and_wait_in_the_clean_up(message: str) -> None:
    """On rank 1 an update fails, and leaving the group of processes waits for ever: as NCCL's does, while the
    peers wait in a collective.
    """
    from transformer_mt.update.step import Updater

    update, calls = Updater.update, []

    def failing(*args, **kwargs):
        calls.append(None)
        if len(calls) == 5 and os.environ["RANK"] == "1":
            raise RuntimeError(message) if "a bug" in message else WorkError(message)
        return update(*args, **kwargs)

    destroy = torch.distributed.destroy_process_group
    Updater.update = failing
    torch.distributed.destroy_process_group = lambda *group: destroy(*group) if group else time.sleep(600)


@pytest.mark.parametrize("message", ["this machine has no more paper", "this is a bug"])
def test_a_rank_that_fails_says_why_and_ends_without_waiting_for_its_peers(folder, one, message):
    start = time.monotonic()
    before = (fail_and_wait_in_the_clean_up, message)
    result = run(folder, 2, "train", "tiny.yaml", "--out", f"waits-{len(message)}", before=before)
    assert time.monotonic() - start < 60
    said = result.err
    assert result.status == 1 and message in said
    assert "a bug" in message or f"rank 1: {message}" in said
    assert "rank 0: stopped because another rank is gone" in said


def on_two_machines(folder: Path, out: str, *overrides_of_each: list[str]):
    """A torchrun for each of them, as in `docs/how_to/several_gpus.md`; here both are this machine, with a
    cache each.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meet = ["--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *meet, "--local-addr=127.0.0.1"]
            + ["-m", "transformer_mt", "train", "tiny.yaml", "--out", out, *overrides],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "OMP_NUM_THREADS": "1",
                "TRANSFORMER_MT_CACHE": str(folder / f"cache-{i}"),
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        for i, overrides in enumerate(overrides_of_each)
    ]
    try:
        return [(process.communicate(timeout=240)[1], process.returncode) for process in processes]
    finally:
        for process in processes:
            process.kill()


@pytest.mark.slow
def test_two_machines_train_as_one_does(folder, one):
    ends = on_two_machines(folder, "machines", ["train.accumulate=2"], ["train.accumulate=2"])
    assert [code for _, code in ends] == [0, 0], ends
    assert_same_training(one, folder / "machines")


@pytest.mark.slow
def test_machines_with_different_configs_do_not_begin(folder, one):
    ends = on_two_machines(folder, "different", [], ["train.learning_rate=0.3"])
    assert all(code for _, code in ends)
    assert any("`train.learning_rate` is 0.01 on rank 0 and 0.3 on rank 1" in said for said, _ in ends)
    assert not (folder / "different").exists()


@pytest.mark.slow
def test_a_signal_stops_all_ranks_at_the_same_saved_update(folder, one):
    command = [sys.executable, *TORCHRUN, "--nproc-per-node=2", "-m", "transformer_mt"]
    process = subprocess.Popen(
        [*command, "train", "tiny.yaml", "--out", "signal", "train.max_updates=100000", "train.patience=0"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
    )
    checkpoints = folder / "signal" / "checkpoints"
    while not list(checkpoints.glob("step-*")):
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[1].decode()
    assert said.count("and saved; run the same command to resume") == 1
    stopped = int(said.split("stopped at update ")[1].split()[0].replace(",", ""))
    assert load(checkpoints / f"step-{stopped:08d}").state["progress"]["step"] == stopped


def test_a_rank_that_does_not_come_is_named(monkeypatch):
    """It failed before all had met: its config was not there, perhaps, or its GPU."""
    agent = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    torchruns = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    facts = {"WORLD_SIZE": "3", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    for name, value in {**facts, **torchruns, "MASTER_PORT": str(agent.port)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ranks_module, "MEETING_TIMEOUT", timedelta(seconds=1))
    with pytest.raises(
        WorkError, match="^stopped because rank 1 did not join within 1 seconds; see its own error message$"
    ):
        ranks_module.Ranks.join(torch.device("cpu"))


def test_ranks_translate_into_one_ordered_output(folder, one):
    lines = [
        "The old teacher sees a bird.",
        "",
        *(f"The dog sees {word}." for word in ("him", "her", "us", "a cat")),
    ]
    expected = run(folder, 1, "translate", "one", stdin="\n".join(lines).encode())
    result = run(folder, 2, "translate", "one", stdin="\n".join(lines).encode())
    assert result.status == 0
    assert result.out == expected.out
    assert len(result.out.splitlines()) == len(lines)
    assert "line 2: there is nothing to translate" in result.err


def test_ranks_leave_an_old_output_alone_when_the_input_is_no_text(folder, one):
    (folder / "binary").write_bytes("Hund".encode("utf-16"))
    (folder / "old.txt").write_text("old\n")
    result = run(folder, 2, "translate", "one", "-i", "binary", "-o", "old.txt")
    assert result.status != 0 and "must be text in UTF-8" in result.err
    assert (folder / "old.txt").read_text() == "old\n"


def test_a_rank_that_cannot_translate_ends_all_without_a_traceback_of_ours(folder, one):
    (folder / "prefixes.txt").write_text("Der\n", encoding="utf-8")
    lines = b"A dog sleeps.\nA cat sleeps.\n"
    result = run(folder, 2, "translate", "one", "--prefixes", "prefixes.txt", stdin=lines)
    said = result.err
    assert result.status != 0
    assert "prefixes.txt: must have one prefix per input line, but ends at line 1" in said
    assert "RuntimeError" not in said and "DistBackendError" not in said


def test_ranks_write_one_corpus_of_synthetic_sources(folder, one):
    (folder / "mono.en").write_text("\n".join(english for english, _ in toy.generate("test", 30)) + "\n")
    words = ["backtranslate", "one", "mono.en", "--filter", "", "--no-repeat-ngram", "2", "-o"]
    assert run(folder, 1, *words, "alone.jsonl").status == 0
    result = run(folder, 2, *words, "together.jsonl")
    assert result.status == 0, result.err
    assert (folder / "together.jsonl").read_bytes() == (folder / "alone.jsonl").read_bytes() != b""


def test_ranks_score_a_test_set_together(folder, one):
    """With the translations and the scores of one process."""
    expected = run(folder, 1, "evaluate", "one", "--json", "--robust")
    kept = translations(folder / "one")
    result = run(folder, 3, "evaluate", "one", "--json", "--robust", before=(searches_are_said,))
    assert result.status == 0, result.err
    assert result.out == expected.out != ""
    assert translations(folder / "one") == kept
    found = [re.findall(rf"rank {rank} searches (\d+)", result.err) for rank in range(3)]
    shares = [sum(map(int, numbers)) for numbers in found]
    assert 0 < max(shares) < 1.5 * min(shares)  # each searches its share


def translations(run):
    lines = (run / "evaluation" / "test-0.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["translation"] for line in lines]


def searches_are_said() -> None:
    from transformer_mt.translation.engines.torch_engine import TorchEngine

    search = TorchEngine.search

    def saying(self, requests, settings, n_best):
        sys.stderr.write(f"rank {os.environ['RANK']} searches {len(requests)}\n")
        return search(self, requests, settings, n_best)

    TorchEngine.search = saying


@pytest.mark.slow
def test_ranks_distil_a_student_together(folder, one):
    """Its corpus is the teacher's translations as one process writes them; the table is rank 0's."""
    student = {**TINY, **CHANGES, "name": "student"}
    (folder / "student.yaml").write_text(yaml.safe_dump(student), encoding="utf-8")
    words = ["distill", "one", "student.yaml"]
    alone, together = (run(folder, n, *words, "--out", f"student-{n}", "train.max_updates=6") for n in (1, 2))
    # So short a training may end in a model that int8 changes too much.
    assert together.status == alone.status, together.err
    lines = [(folder / f"student-{n}" / "distilled.jsonl").read_text("utf-8").splitlines() for n in (1, 2)]
    texts = [[(row["en"], row["de"]) for row in map(json.loads, of_one)] for of_one in lines]
    assert texts[0] == texts[1] != []
    assert f"{together.out}{together.err}".count("| student ") == 1
    left, right = (load_file(folder / f"student-{n}" / "model.safetensors") for n in (1, 2))
    assert left.keys() == right.keys()


def test_several_processes_without_torchruns_variables_are_refused(monkeypatch):
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(
        InputError, match="^RANK and MASTER_ADDR and MASTER_PORT must be set where WORLD_SIZE is 2; start"
    ):
        ranks_module.Ranks.join(torch.device("cpu"))


def test_a_rank_zero_that_does_not_answer_is_named_by_its_address(monkeypatch):
    def refuse(*args, **keys):
        raise torch.distributed.DistNetworkError("timed out")

    monkeypatch.setattr(ranks_module.dist, "rendezvous", refuse)
    for name, value in {"WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(
        WorkError, match="rank 0 does not answer at MASTER_ADDR and MASTER_PORT, 10.0.0.1:29500$"
    ):
        ranks_module.Ranks.join(torch.device("cpu"))


@pytest.mark.long
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
@pytest.mark.parametrize("part", ["lora: {rank: 4}", "freeze: [embeddings, encoder]"])
def test_ranks_train_a_part_of_a_model_as_one_process_does(one, folder, parallel, part):
    changes = {**yaml.safe_load(part), "optimizer": "adamw"}
    keys = ["name=child", f"init_from={one}", "tokenizer={}", "model={dropout: 0.0, feed_forward: gelu}"]
    keys += [f"train.{key}={json.dumps(value)}" for key, value in changes.items()]
    name = f"{parallel}-{next(iter(changes))}"
    train(folder, 1, f"{name}-1", *keys, "train.accumulate=4")
    train(folder, 2, f"{name}-2", *keys, "train.accumulate=2", f"train.parallel={parallel}")
    assert_same_training(folder / f"{name}-1", folder / f"{name}-2")
    first, second = (load_file(folder / f"{name}-{ranks}" / "model.safetensors") for ranks in (1, 2))
    assert first.keys() == second.keys() == load_file(one / "model.safetensors").keys()


# The processes of a training find each other.


def test_a_second_attempt_knows_of_the_first(monkeypatch):
    """Torchrun keeps its store when a machine comes or goes, but counts no restart: --fresh would begin
    again.
    """
    kept = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    variables = {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "localhost", "MASTER_PORT": kept.port}
    for name, value in {**variables, "TORCHELASTIC_USE_AGENT_STORE": True}.items():
        monkeypatch.setitem(os.environ, name, str(value))
    assert [meet(1)[1:] for _ in range(2)] == [(0, False)] * 2  # a script may train twice
    monkeypatch.setattr(ranks_module, "_met", [])  # a process that torchrun has started again
    assert [meet(1)[1:] for _ in range(2)] == [(0, True)] * 2
