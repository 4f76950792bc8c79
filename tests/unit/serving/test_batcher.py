"""Lines of many requests in one batch: the same translations, in a fair order, and nothing left behind."""

import asyncio
import threading

import pytest

from transformer_mt import Translator
from transformer_mt.data.corpora import toy
from transformer_mt.serving.batcher import BATCH_LINES, Batcher, QueueFullError
from transformer_mt.translation.result import Translation


class Recorder:
    """A translator that notes its batches; it waits for `go` before each."""

    def __init__(self):
        self.batches, self.go = [], threading.Event()

    def translate(self, lines, n_best=1, *, align=False, protect=None):
        self.batches.append(list(lines))
        assert self.go.wait(30)
        if "bad" in lines:
            raise RuntimeError("out of order")
        return [Translation(line, f"<{line}>", 0.0, 0.0, []) for line in lines]


def texts(results):
    return [result.translation for result in results]


@pytest.fixture
def recorder():
    return Recorder()


def run(translator, body, **options):
    async def main():
        batcher = Batcher(translator, **options)
        try:
            return await asyncio.wait_for(body(batcher), 60)
        finally:
            if isinstance(translator, Recorder):
                translator.go.set()
            await asyncio.to_thread(batcher.close)

    return asyncio.run(main())


async def until(condition):
    while not condition():
        await asyncio.sleep(0.002)


def test_translations_are_those_of_the_translator(tiny_run):
    translator = Translator.load(tiny_run, device="cpu")
    sentences = [src for src, _ in toy.generate("test", 30)] + ["", "  "]

    async def body(batcher):
        requests = [batcher.translate(sentences[i : i + 3], n_best=1 + i % 2) for i in range(0, 32, 3)]
        return [each for found in await asyncio.gather(*requests) for each in found]

    expected = translator.translate(sentences)
    found = run(translator, body)
    assert [(r.source, r.translation) for r in found] == [(r.source, r.translation) for r in expected]
    assert [r.score for r in found] == pytest.approx([r.score for r in expected], abs=1e-5)


def test_a_request_gets_as_many_candidates_as_it_asked_for(tiny_run):
    """Although the other one, in the same batch, asks for more."""
    translator = Translator.load(tiny_run, device="cpu", decode={"beam": 3})

    async def body(batcher):
        return await asyncio.gather(
            batcher.translate(["the dog sleeps"], 1), batcher.translate(["the cat sings"], 3)
        )

    (one,), (three,) = run(translator, body, wait=0.5)
    assert (len(one.n_best), len(three.n_best)) == (1, 3)


def test_what_comes_together_is_translated_together(recorder):
    async def body(batcher):
        recorder.go.set()
        return map(texts, await asyncio.gather(*(batcher.translate([f"line {i}"]) for i in range(10))))

    assert list(run(recorder, body, wait=5.0 / 10)) == [[f"<line {i}>"] for i in range(10)]
    assert len(recorder.batches) == 1


def test_a_long_text_does_not_hold_up_a_short_one(recorder):
    async def body(batcher):
        first = asyncio.ensure_future(batcher.translate(["first"]))
        await until(lambda: recorder.batches)
        long = asyncio.ensure_future(batcher.translate([f"long {i:03d}" for i in range(300)]))
        await asyncio.sleep(0)
        short = asyncio.ensure_future(batcher.translate(["short"]))
        await asyncio.sleep(0)
        recorder.go.set()
        await asyncio.gather(first, short, long)

    run(recorder, body)
    assert "short" in recorder.batches[1] and max(map(len, recorder.batches)) <= BATCH_LINES
    assert [line for batch in recorder.batches for line in sorted(batch) if "long" in line] == [
        f"long {i:03d}" for i in range(300)
    ]


def test_much_longer_lines_come_after_the_short_ones_of_a_batch(recorder):
    async def body(batcher):
        recorder.go.set()
        await asyncio.gather(batcher.translate(["x " * 2000]), batcher.translate(["short"]))

    run(recorder, body, wait=0.5)
    assert recorder.batches == [["short"], ["x " * 2000]]


def test_a_cancelled_request_leaves_the_queue(recorder):
    async def body(batcher):
        first = asyncio.ensure_future(batcher.translate(["first"]))
        await until(lambda: recorder.batches)
        others = [asyncio.ensure_future(batcher.translate([name] * 5)) for name in ("gone", "stays")]
        await asyncio.sleep(0)
        assert batcher.lines_waiting == 10
        others[0].cancel()
        await asyncio.sleep(0)
        assert batcher.lines_waiting == 5
        recorder.go.set()
        assert texts(await others[1]) == ["<stays>"] * 5
        await first

    run(recorder, body)
    assert recorder.batches == [["first"], ["stays"] * 5]


def test_no_more_lines_wait_than_may(recorder):
    async def body(batcher):
        first = asyncio.ensure_future(batcher.translate(["first"]))
        await until(lambda: recorder.batches)
        second = asyncio.ensure_future(batcher.translate(["a"] * 8))
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError):
            await batcher.translate(["b"] * 3)
        recorder.go.set()
        await asyncio.gather(first, second)
        # alone, a text of any length is translated
        return await batcher.translate(["c"] * 30)

    assert texts(run(recorder, body, queue_lines=10)) == ["<c>"] * 30


def test_an_error_is_that_of_its_own_line_alone(recorder):
    async def body(batcher):
        recorder.go.set()
        requests = [batcher.translate([text]) for text in ("good", "bad", "fine")]
        return await asyncio.gather(*requests, return_exceptions=True)

    good, bad, fine = run(recorder, body, wait=0.5)
    assert (texts(good), texts(fine)) == (["<good>"], ["<fine>"]) and isinstance(bad, RuntimeError)


def test_what_waits_is_finished_when_it_closes(recorder):
    async def body(batcher):
        requests = [asyncio.ensure_future(batcher.translate([str(i)])) for i in range(100)]
        await until(lambda: recorder.batches)
        recorder.go.set()
        await asyncio.to_thread(batcher.close)
        return await asyncio.gather(*requests)

    assert list(map(texts, run(recorder, body))) == [[f"<{i}>"] for i in range(100)]
