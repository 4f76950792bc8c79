"""Scripts for transformers' translation pipeline, as people have published them, run with another import."""

import pytest

from tests.helpers.public_models import write_marian, write_nllb
from transformer_mt import Translator, pipeline
from transformer_mt.errors import InputError

IMPORT = "from transformer_mt import pipeline\n"
OPUS, NLLB, M2M = "Helsinki-NLP/opus-mt-en-de", "facebook/nllb-200-distilled-600M", "facebook/m2m100_418M"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A folder with models under their names on the hub."""
    folder = tmp_path_factory.mktemp("hub")
    write_marian(folder / OPUS)
    write_nllb(folder / NLLB)
    write_nllb(folder / M2M, is_m2m=True)
    return folder


@pytest.fixture
def here(hub, monkeypatch, tmp_path):
    monkeypatch.chdir(hub)
    monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(hub / "cache"))


# Each script ends with what it shows; `is_texts` says that this is the usual list of one or several texts.
SCRIPTS = [
    f"""
import torch
device = 0 if torch.cuda.is_available() else -1
pipe = pipeline("translation", model="{OPUS}", device=device, batch_size=8)
sentences = ["The dog sleeps."] * 3
shown = [pipe(sentence)[0] for sentence in sentences]
""",
    f"""
import torch
pipe = pipeline("translation", model="{OPUS}", torch_dtype=torch.float32, device=torch.device("cpu"))
shown = pipe("A child laughs.", num_beams=4, early_stopping=True)
""",
    f"""
pipe = pipeline("translation", model="{OPUS}", max_length=20, truncation=True)
shown = pipe(["A child laughs.", ""])
""",
    f"""
def sentences():
    for number in range(5):
        yield f"The dog sees {{number}} cats."
pipe = pipeline("translation", model="{OPUS}")
shown = [out[0] for out in pipe(sentences(), batch_size=2)]
""",
    f"""
text = "The dog sleeps. The cat sings.\\nA child laughs."
pipe = pipeline("translation", model="{OPUS}", clean_up_tokenization_spaces=True)
shown = pipe(text)
assert shown[0]["translation_text"].count("\\n") == 1
""",
    f"""
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
model = AutoModelForSeq2SeqLM.from_pretrained("{OPUS}")
tokenizer = AutoTokenizer.from_pretrained("{OPUS}")
translator = pipeline("translation_en_to_de", model=model, tokenizer=tokenizer)
shown = translator("The dog sleeps.", max_new_tokens=30)
""",
    f"""
translator = pipeline("translation", model="{NLLB}", device_map="auto", max_length=60)
shown = translator("The dog sleeps.", src_lang="eng_Latn", tgt_lang="deu_Latn")
""",
    f"""
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("{NLLB}", src_lang="eng_Latn")
model = AutoModelForSeq2SeqLM.from_pretrained("{NLLB}")
translator = pipeline("translation", model=model, tokenizer=tokenizer, src_lang="eng_Latn",
                      tgt_lang="deu_Latn", max_length=40)
output = translator(["The dog sleeps.", "A child laughs."])
shown = output
""",
    f"""
translator = pipeline("translation_en_to_de", "{M2M}")
shown = translator(["The dog sleeps."], num_beams=2, length_penalty=0.8, no_repeat_ngram_size=3)
""",
    f"""
pipe = pipeline("translation", model="{OPUS}")
def translate(batch):
    return {{"de": [out["translation_text"] for out in pipe(batch["en"])]}}
from datasets import Dataset
rows = Dataset.from_dict({{"en": ["The dog sleeps.", "A child laughs."]}}).map(translate, batched=True)
shown = [{{"translation_text": text}} for text in rows["de"]]
""",
    f"""
pipe = pipeline("translation", model="{OPUS}")
shown = pipe("The dog sleeps.", do_sample=True, temperature=0.7, top_k=50, top_p=0.95)
""",
    f"""
pipe = pipeline("translation", model="{OPUS}")
several = pipe("The dog sleeps.", num_beams=4, num_return_sequences=3)
assert len(several) == 3
of_each = pipe(["The dog sleeps.", "A child laughs."], num_return_sequences=2)
assert [len(results) for results in of_each] == [2, 2]
shown = several
""",
]


@pytest.mark.parametrize("script", SCRIPTS, ids=range(1, len(SCRIPTS) + 1))
def test_a_published_script_runs(here, script):
    names = {}
    exec(IMPORT + script, names)
    shown = names["shown"]
    assert shown and all(list(row) == ["translation_text"] for row in shown)
    assert all(isinstance(row["translation_text"], str) for row in shown)


def test_the_translations_are_those_of_the_translator(here):
    texts = ["The dog sleeps.", "A cat sees 3 birds."]
    from transformer_mt.run_folder import open_model

    translator = Translator.load(open_model(OPUS).path).with_settings(beam=3)
    expected = [{"translation_text": result.translation} for result in translator.translate(texts)]
    assert pipeline("translation", model=OPUS)(texts, num_beams=3) == expected
    # what sampling alone needs is ignored without it, as generate does
    assert pipeline("translation", model=OPUS, temperature=0.1)(texts, num_beams=3, top_k=5) == expected


def test_a_run_and_its_export_translate_as_well(tiny_run, tmp_path, cli):
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    texts = ["The dog sleeps.", "A cat sees 3 birds."]
    expected = [{"translation_text": str(each)} for each in Translator.load(tiny_run).translate(texts)]
    assert pipeline("translation_en_to_de", model=tiny_run)(texts) == expected
    assert cli("export", tiny_run, tmp_path / "out")[0] == 0
    assert len(pipeline("translation", model=str(tmp_path / "out"))(texts)) == 2


@pytest.mark.parametrize(
    "arguments, call, message",
    [
        ({"task": "summarization"}, {}, "task must be translation, or such as translation_en_to_de, but"),
        ({"task": "translation_en_to_de"}, {}, "model must be the name of a public model, a run's"),
        ({"model": OPUS, "tokenizer": "t5-small"}, {}, f"tokenizer must be that of the model ({OPUS}), but"),
        ({"model": OPUS}, {"penalty": 3}, "penalty must be one of num_beams, max_length"),
        ({"model": OPUS, "num_beam": 3}, None, "num_beam must be one of num_beams, max_length"),
        ({"model": OPUS, "num_return_sequences": "x"}, None, "num_return_sequences must be a whole"),
        ({"model": OPUS}, {"num_beams": 0}, "`beam` must be greater than 0, but is 0"),
        ({"model": OPUS}, {"return_tensors": True}, "return_tensors must be left out: a tra"),
        ({"model": OPUS}, {"repetition_penalty": 1.2}, "repetition_penalty must be left out; no_rep"),
        ({"model": NLLB}, {}, "tgt_lang must be one of "),
        ({"model": NLLB}, {"tgt_lang": "xxx_Latn"}, "must be a language the model writes"),
        ({"task": "translation_en_to_fr", "model": "RUN"}, None, "the model writes (de), but is fr"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_one_line(here, tiny_run, arguments, call, message):
    model = {"model": str(tiny_run)} if arguments.get("model") == "RUN" else {}
    with pytest.raises(InputError) as error:
        pipe = pipeline(**{"task": "translation", **arguments, **model})
        assert call is not None, "told before the first text"
        pipe("The dog sleeps.", **call)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_arguments_mean_what_they_mean_to_generate(here):
    pipe = pipeline("translation", model=OPUS, num_return_sequences=2, num_beams=2)
    assert len(pipe("The dog sleeps.")) == 2
    assert len(pipe("The dog sleeps.", num_return_sequences=1)) == 1
    sampled = pipe("The dog sleeps.", do_sample=True, num_beams=1, num_return_sequences=3)
    assert 1 <= len(sampled) <= 3  # equal samples are one
    settings = pipe.prepared(max_length=2, max_new_tokens=9, early_stopping="never")[0].decode
    assert (settings.max_length, settings.stop_early) == (9, False)
    kwargs = {"use_cache": True, "num_beams": 3, "num_return_sequences": 3}
    assert len(pipe("The dog sleeps.", generate_kwargs=kwargs)) == 3
    for device_map in ({"": "cpu"}, "balanced"):
        assert pipeline("translation", model=OPUS, device_map=device_map)("A child laughs.")
    assert pipeline("translation", model=OPUS, tokenizer=f"{OPUS}/")("A child laughs.")


def test_a_run_is_sampled_although_it_has_an_export(tiny_run):
    assert pipeline("translation", model=tiny_run, do_sample=True)("The dog sleeps.")


@pytest.mark.parametrize("inputs", [None, {"text": "The dog"}, b"The dog", ["The dog sleeps.", 3]])
def test_what_is_no_text_is_refused(here, inputs):
    with pytest.raises(InputError, match="a text must be a string, but is "):
        pipeline("translation", model=OPUS)(inputs)
