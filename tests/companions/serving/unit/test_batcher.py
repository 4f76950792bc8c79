"""Segments of many requests in one batch: the same translations, in a fair order, and nothing left behind."""

import asyncio
import os
import socket
import threading
import time
from functools import partial

import pytest

from tests.helpers.upper_case import UpperCaseEngine, capitals, upper_case_translator
from transformer_mt import Translator
from transformer_mt.companions.serving.batcher import Batcher, QueueFullError
from transformer_mt.companions.serving.http.limits import Limits
from transformer_mt.companions.serving.http.server import Service, serve
from transformer_mt.companions.serving.models import Offer
from transformer_mt.companions.serving.segment_queue import BATCH_SEGMENTS, EnginePool, GivenUpError
from transformer_mt.corpora import toy
from transformer_mt.errors import InputError, WorkError


class Recorder(UpperCaseEngine):
    """Writes capitals and notes its batches; it waits for `go` before each."""

    dtype, is_on_cpu = "float32", True

    def __init__(self, tokenizer):
        super().__init__(tokenizer)
        self.batches, self.go = [], threading.Event()

    def search(self, requests, settings, n_best):
        texts = [self.tokenizer.src.decode(request.src) for request in requests]
        self.batches.append(texts)
        assert self.go.wait(30)
        if "bad" in texts:
            raise RuntimeError("out of order")
        return super().search(requests, settings, n_best)


def texts(results):
    return [result.translation for result in results]


@pytest.fixture
def recorder():
    return Recorder(upper_case_translator().tokenizer)


def run(engine, body, translator=None, **options):
    async def main():
        batcher = Batcher(translator or upper_case_translator(), engine, **options)
        try:
            return await asyncio.wait_for(body(batcher), 60)
        finally:
            if isinstance(engine, Recorder):
                engine.go.set()
            await asyncio.to_thread(batcher.close)

    return asyncio.run(main())


async def until(condition):
    while not condition():
        await asyncio.sleep(0.002)


def waiting(batcher):
    return batcher._queue.waiting


def is_there(batcher, recorder, short):
    """Whether the short request waits, or is in work."""
    waits = any(not request.is_heavy for request in list(batcher._queue._waiting))
    return waits or any(short in batch for batch in recorder.batches)


async def all_wait(batcher, segments):
    await until(lambda: waiting(batcher) == segments)


def test_translations_are_those_of_the_translator(tiny_run):
    translator = Translator.load(tiny_run, device="cpu")
    sentences = [src for src, _ in toy.generate("test", 30)] + ["", "  "]

    async def body(batcher):
        requests = [batcher.translate(sentences[i : i + 3], n_best=1 + i % 2) for i in range(0, 32, 3)]
        return [each for found in await asyncio.gather(*requests) for each in found]

    expected = translator.translate(sentences)
    found = run(translator.engine, body, translator)
    assert [(r.source, r.translation) for r in found] == [(r.source, r.translation) for r in expected]
    assert [len(r.n_best) for r in found[:30]] == [1 + i // 3 % 2 for i in range(30)]
    assert [r.score for r in found] == pytest.approx([r.score for r in expected], abs=1e-5)


def test_a_long_line_with_its_alignment_is_that_of_the_translator(tiny_run):
    translator = Translator.load(tiny_run, device="cpu")
    line = "The dog sleeps. A cat sings {name}. " * 30

    async def body(batcher):
        return await batcher.translate([line], 2, align=True)

    (found,), (expected,) = (
        run(translator.engine, body, translator),
        translator.translate([line], 2, align=True),
    )
    assert found.translation == expected.translation and found.alignment == expected.alignment
    spans = [[(s.source, s.target) for s in each.n_best[0].aligned] for each in (found, expected)]
    assert spans[0] == spans[1]


def test_what_comes_together_is_translated_together(recorder):
    async def body(batcher):
        recorder.go.set()
        return map(texts, await asyncio.gather(*(batcher.translate([f"line {'x' * i}"]) for i in range(10))))

    assert list(run(recorder, body, wait=5.0 / 10)) == [[f"LINE {'X' * i}"] for i in range(10)]
    assert len(recorder.batches) == 1


def test_a_long_text_does_not_hold_up_a_short_one(recorder):
    async def body(batcher):
        first = await first_of(batcher, recorder)
        long = asyncio.ensure_future(batcher.translate([f"long {'x' * (i % 7)}" for i in range(300)]))
        await all_wait(batcher, 300)
        short = asyncio.ensure_future(batcher.translate(["short"]))
        await all_wait(batcher, 301)
        recorder.go.set()
        await asyncio.gather(first, short, long)

    run(recorder, body)
    assert any("short" in batch for batch in recorder.batches[1:3])
    assert max(map(len, recorder.batches)) <= BATCH_SEGMENTS
    assert sum(len(batch) for batch in recorder.batches) == 302


@pytest.mark.parametrize("long", ["a sentence of some words. " * 300, "x" * 8000])
def test_a_long_line_is_searched_by_segments(recorder, long):
    """One line, or one word: what comes later waits for one batch of it at most."""
    translator = upper_case_translator()
    config = translator.configs[0]
    config = config.model_copy(update={"data": config.data.model_copy(update={"max_length": 100})})
    small = translator._with(config=config)

    async def body(batcher):
        first = await first_of(batcher, recorder)
        many = asyncio.ensure_future(batcher.translate([long]))
        await until(lambda: waiting(batcher) > 50)
        for number in range(1, 11):
            recorder.go.clear()  # a batch is in work from here on
            short = f"short {'y' * number}"
            answer = asyncio.ensure_future(batcher.translate([short]))
            await until(partial(is_there, batcher, recorder, short))
            begun = len(recorder.batches)
            recorder.go.set()
            await answer
            answered = next(i for i, batch in enumerate(recorder.batches) if short in batch)
            assert answered <= begun + 1
        await first
        return texts(await many)

    (translated,) = run(recorder, body, small)
    assert translated.replace(" ", "") == capitals(long).replace(" ", "")


def test_much_longer_lines_come_after_the_short_ones_of_a_batch(recorder):
    async def body(batcher):
        recorder.go.set()
        await asyncio.gather(batcher.translate(["x " * 200]), batcher.translate(["short"]))

    run(recorder, body, wait=0.5)
    assert recorder.batches == [["short"], [("x " * 200).strip()]]


def test_light_requests_go_before_heavy_ones_which_get_a_share(recorder):
    async def body(batcher):
        recorder.go.set()
        heavy = asyncio.ensure_future(batcher.translate([f"heavy {'x' * 80}"] * 200))
        await until(lambda: len(recorder.batches) > 1)
        before = len(recorder.batches)
        for number in range(20):
            await batcher.translate([f"light {'y' * number}"])
        lines = [line for batch in recorder.batches[before:] for line in batch]
        assert sum("light" in line for line in lines) == 20
        await heavy
        return lines

    lines = run(recorder, body)
    assert sum("heavy" in line for line in lines) < 190  # not all of them before the light ones


def test_a_cancelled_request_leaves_the_queue(recorder):
    async def body(batcher):
        first = await first_of(batcher, recorder)
        others = [asyncio.ensure_future(batcher.translate([name] * 5)) for name in ("gone", "stays")]
        await all_wait(batcher, 10)
        assert batcher.lines == 11
        others[0].cancel()
        await all_wait(batcher, 5)
        assert batcher.lines == 6
        recorder.go.set()
        assert texts(await others[1]) == ["STAYS"] * 5
        await first

    run(recorder, body)
    assert recorder.batches == [["first"], ["stays"] * 5]


def test_work_that_nobody_waits_for_ends_with_its_batch(recorder):
    """Also where a line has been divided and its first segments are in work."""

    async def body(batcher):
        long = asyncio.ensure_future(batcher.translate(["a sentence. " * 400]))
        await until(lambda: recorder.batches)
        long.cancel()
        await asyncio.sleep(0.01)
        recorder.go.set()
        return texts(await batcher.translate(["short"]))

    assert run(recorder, body) == ["SHORT"]
    assert sum(map(len, recorder.batches)) <= BATCH_SEGMENTS + 1


def test_a_request_that_is_given_up_between_two_groups_of_its_batch_leaves_no_thread(recorder):
    """Its task was taken from the queue, and is never searched: its thread must end all the same."""

    async def body(batcher):
        short = asyncio.ensure_future(batcher.translate(["short"]))
        long = asyncio.ensure_future(batcher.translate(["x " * 150]))
        await until(lambda: recorder.batches and not waiting(batcher))
        long.cancel()  # its group comes after that of the short one
        await asyncio.sleep(0.01)
        recorder.go.set()
        assert texts(await short) == ["SHORT"]

    run(recorder, body, wait=0.5)  # closing waits for all threads
    assert recorder.batches == [["short"]]


def test_a_request_that_was_given_up_asks_for_nothing_more(recorder):
    from transformer_mt.companions.serving.segment_queue import QueuedEngine, SegmentQueue

    segments = SegmentQueue(recorder)
    engine = QueuedEngine(segments)
    engine.give_up()
    with pytest.raises(GivenUpError):
        engine.token_log_probs([([5], [6])])
    recorder.go.set()
    segments.close()


def test_no_more_lines_wait_than_may(recorder):
    async def body(batcher):
        first = await first_of(batcher, recorder)
        second = asyncio.ensure_future(batcher.translate(["a"] * 8))
        await all_wait(batcher, 8)
        with pytest.raises(QueueFullError):
            await batcher.translate(["b"] * 3)
        recorder.go.set()
        await asyncio.gather(first, second)
        # alone, a text of any length is translated
        return await batcher.translate(["c"] * 30)

    assert texts(run(recorder, body, queue_lines=10)) == ["C"] * 30


def test_an_error_is_that_of_its_own_line_alone(recorder):
    async def body(batcher):
        recorder.go.set()
        requests = [batcher.translate([text]) for text in ("good", "bad", "fine")]
        return await asyncio.gather(*requests, return_exceptions=True)

    good, bad, fine = run(recorder, body, wait=0.5)
    assert (texts(good), texts(fine)) == (["GOOD"], ["FINE"]) and isinstance(bad, RuntimeError)


def test_what_waits_is_finished_when_it_closes(recorder):
    async def body(batcher):
        requests = [asyncio.ensure_future(batcher.translate(["x" * i])) for i in range(1, 100)]
        await until(lambda: recorder.batches)
        recorder.go.set()
        await asyncio.to_thread(batcher.close)
        return await asyncio.gather(*requests)

    assert list(map(texts, run(recorder, body))) == [["X" * i] for i in range(1, 100)]


async def first_of(batcher, recorder):
    """A request whose batch is in work: what comes next waits."""
    first = asyncio.ensure_future(batcher.translate(["first"]))
    await until(lambda: recorder.batches)
    return first


# The processes of a server and its address, before it answers.


def killed_first(folder):
    """The first process that comes here dies, the others load a model."""
    try:
        (folder / "first").touch(exist_ok=False)
    except FileExistsError:
        return upper_case_translator()
    time.sleep(1.0)  # the others wait for it by now
    os._exit(9)


def test_a_process_that_ends_while_it_loads_is_a_clear_message(tmp_path):
    with pytest.raises(WorkError, match="ended while loading the model; is there memory for 2 of them"):
        EnginePool(partial(killed_first, tmp_path), UpperCaseEngine(None), 2)


class Noting:
    """Loads a translator, and notes how many have done so when a call is answered."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self):
        time.sleep(0.5 * len(list(self.folder.iterdir())))
        (self.folder / str(os.getpid())).touch()
        return upper_case_translator()


def test_every_process_has_loaded_the_model_before_the_first_call(tmp_path):
    """One that loads later would load what the files are then."""
    pool = EnginePool(Noting(tmp_path), UpperCaseEngine(None), 2)
    assert len(list(tmp_path.iterdir())) == 2 and pool.memory() > 0
    pool.close()


def test_a_port_that_is_taken_is_reported_before_a_model_is_loaded():
    loaded = []
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(InputError, match=str(port)):
            serve(Service([Offer("a", ("en", "de"), lambda: loaded.append(1))], Limits()), "127.0.0.1", port)
    assert loaded == []
