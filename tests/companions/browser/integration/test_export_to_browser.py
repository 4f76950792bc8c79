"""`transformer-mt export --to browser`: the page translates in Node and in Chromium, without a network."""

import json
import re
import shutil
import subprocess

import pytest

from tests.conftest import ROOT
from tests.helpers.browser import Static, browser, needs_chromium, watched_page
from tests.helpers.command import run_command
from tests.helpers.faults import no_node
from tests.helpers.node import NODE, node_modules
from transformer_mt.companions.browser.to_browser import ToBrowser, translate_in_node
from transformer_mt.corpora import toy

__all__ = ["browser", "node_modules"]
SOURCES = [source for source, _ in toy.generate("valid", 40)]


@pytest.fixture(scope="module")
def exported(tiny_run, node_modules, tmp_path_factory):
    out = tmp_path_factory.mktemp("browser") / "page"
    words = ("--to", "browser", "--quantization", "float32", "--runtime", node_modules)
    done = run_command("export", tiny_run, out, *words)
    assert done.status == 0, done.err
    return out, done


def in_javascript(out, code):
    """Run a program that can use the export's `translator`; return the JSON that it prints."""
    node_mjs = "transformer_mt/companions/browser/web/node.mjs"
    setup = (ROOT / node_mjs).read_text(encoding="utf-8").partition("const lines =")[0]
    setup = setup.replace("process.argv[2]", json.dumps(str(out)))
    program = f"{setup}\nconst translator = await Translator.load(ort, loadTokenizer, read);\n{code}"
    done = subprocess.run([NODE, "--input-type=module"], input=program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_javascript_translates_as_the_run_does(exported):
    out, done = exported
    identical, all_lines = map(int, re.search(r"float32: (\d+) of (\d+) probe", done.out).groups())
    assert identical == all_lines > 10
    assert f"the page's JavaScript and onnxruntime in Python translate {identical} of {identical}" in done.err
    assert not (out / "seen.safetensors").exists()


SETTINGS = [{"beam": 1}, {"beam": 3, "length_penalty": 0.0}, {"max_length": 4}]


def test_other_settings_of_the_search_are_followed_too(exported, tiny_run, cli):
    out, _ = exported
    results = in_javascript(
        out,
        f"""const ids = {json.dumps(SOURCES)}.map((text) => translator.encode(text)), all = [];
        for (const search of {json.dumps(SETTINGS)}) {{
          const results = await translator.searched(ids, {{search}});
          all.push(results.map(({{text}}) => text));
        }}
        console.log(JSON.stringify(all));""",
    )
    for settings, texts in zip(SETTINGS, results, strict=True):
        options = [word for key, value in settings.items() for word in (f"--{key.replace('_', '-')}", value)]
        options += ["--engine", "torch", "--set", "decode.stop_early=true"]
        assert texts == cli("translate", tiny_run, *SOURCES, *options).out.splitlines()


def test_white_space_and_lines_stay_and_long_texts_are_divided(exported):
    out, _ = exported
    text = "  The dog sleeps. A cat sings.\n\n\tThe dog sleeps.\n" + "the old dog and " * 60
    result, parts, told = in_javascript(
        out,
        f"""const told = [], progress = (done, all) => told.push([done, all]);
        const result = await translator.translate({json.dumps(text)}, {{progress}});
        const lines = translator.lines({json.dumps(text)}, translator.facts.directions[0]);
        const parts = lines.flatMap((line) => line.parts);
        console.log(JSON.stringify([result, parts.map(({{ids}}) => ids?.length ?? 0), told]));""",
    )
    lines = result.split("\n")
    assert len(lines) == 4 and lines[0].startswith("  ") and lines[1] == "" and lines[2].startswith("\t")
    facts = json.loads((out / "model.json").read_text(encoding="utf-8"))
    assert 0 < max(parts) < facts["max_source"] and len(parts) > 5
    assert told[-1] == [sum(map(bool, parts))] * 2 and len(told) > 1


def test_a_running_translation_can_be_cancelled(exported):
    """Each step of the search ends as a microtask: without pauses no message would be seen before the end."""
    out, _ = exported
    name, done = in_javascript(
        out,
        """const abort = new AbortController(), text = "The dog sleeps. ".repeat(3000);
        let done = 0;
        setTimeout(() => abort.abort(new DOMException("another text", "AbortError")), 5);
        const progress = (count) => (done = count), signal = abort.signal;
        const name = await translator.translate(text, {signal, progress}).catch((error) => error.name);
        console.log(JSON.stringify([name, done]));""",
    )
    assert name == "AbortError" and done < 3000


TEXTS = {
    "Dr. Smith met Mr. Jones. He left.": ["Dr. Smith met Mr. Jones. ", "He left."],
    "1. Introduction": ["1. Introduction"],
    "It was 5 p.m. on Jan. 3. He left.": ["It was 5 p.m. on Jan. 3. ", "He left."],
    "A cat sings! ...": ["A cat sings! ..."],
    "": [],
}


def test_texts_are_divided_into_sentences_in_languages_that_browsers_do_not_know_too(exported):
    codes = ["zh_yue", "zh_min_nan", "roa_rup", "pseudo_a", "text", "en_GB"]
    printed, counts = in_javascript(
        exported[0],
        f"""const lines = (text, from) => translator.lines(text, {{from, before: []}});
        const parts = (text, from) => lines(text, from).flatMap((line) => line.parts);
        const texts = {json.dumps(list(TEXTS))}.map((text) => parts(text, "en").map((p) => p.text + p.gap));
        const counts = {json.dumps(codes)}.map((code) => parts("The dog sleeps. A cat sings.", code).length);
        console.log(JSON.stringify([texts, counts]));""",
    )
    assert printed == list(TEXTS.values()) and counts == [2] * len(codes)


def test_sentences_are_separated_as_the_target_language_does(exported):
    """Chinese has no space between sentences; English needs one."""
    cases = []
    for source, target in ((True, True), (False, True), (True, False), (False, False)):
        facts = {"from": "en" if source else "zh", "to": "x", "before": [], "prompt": []}
        facts |= {"source_has_spaces": source, "target_has_spaces": target}
        parts = [{"gap": " " * source, "ids": [5]}, {"gap": "", "ids": [5]}]
        line = {"before": "", "words": "", "after": "", "parts": parts}
        cases.append(["A. B." if source else "狗睡觉。猫唱歌。", facts, [line]])
    printed = in_javascript(
        exported[0],
        f"""const all = [];
        translator.searched = async () => ["A.", "B."].map((text) => ({{text}}));
        for (const [text, direction, lines] of {json.dumps(cases)}) {{
          translator.lines = () => lines;
          all.push(await translator.translate(text, {{direction}}));
        }}
        console.log(JSON.stringify(all));""",
    )
    assert printed == ["A. B.", "A. B.", "A.B.", "A.B."]


def test_another_version_of_any_file_is_another_version_of_the_page(exported, tmp_path):
    """Else browsers would go on with the files that they have kept."""
    versions = set()
    for change in (None, "page.js", "model.json"):
        folder = tmp_path / str(change)
        shutil.copytree(exported[0], folder)
        web = ROOT / "transformer_mt/companions/browser/web"
        shutil.copyfile(web / "offline.js", folder / "offline.js")
        if change == "page.js":
            (folder / change).write_text((folder / change).read_text() + " \n")
        if change == "model.json":
            facts = json.loads((folder / change).read_text())
            (folder / change).write_text(json.dumps(facts | {"title": "Another"}))
            (folder / change).write_text(json.dumps(facts | {"title": "Another"}))
        page = ToBrowser.__new__(ToBrowser)
        page.quantization = "float32"
        page.pack(folder, tmp_path / f"out {change}", None)
        text = (tmp_path / f"out {change}" / "offline.js").read_text()
        versions.add(re.search(r'VERSION = "(\w+)"', text)[1])
        kept = [name for name, _ in json.loads(json.loads(re.search(r"JSON.parse\((.*)\);", text)[1]))]
        assert {"README.md", "metadata.json"}.isdisjoint(kept) and {"./", "LICENSES.txt"} <= set(kept)
        assert all((tmp_path / f"out {change}" / name).exists() for name in kept)
    assert len(versions) == 3


@needs_chromium
def test_a_model_that_cannot_be_loaded_is_named(exported, browser, tmp_path):
    folder = tmp_path / "broken"
    shutil.copytree(exported[0], folder)
    (folder / "step.onnx").unlink()
    server = Static(folder)
    page = watched_page(browser)
    page.goto(server.url)
    page.locator("#status", has_text="The model cannot be loaded: step.onnx: 404").wait_for()
    shutil.copyfile(exported[0] / "step.onnx", folder / "step.onnx")
    page.fill("#source", "The dog sleeps.")
    page.wait_for_function("document.getElementById('target').value")
    server.stop()


@needs_chromium
def test_the_page_translates_without_a_network(exported, browser, tiny_run, cli):
    out, _ = exported
    expected = cli("translate", tiny_run, "The dog sleeps. A cat sings.")[1].rstrip("\n")
    server = Static(out)
    page = watched_page(browser)
    page.goto(server.url)
    page.fill("#source", "The dog sleeps. A cat sings.")
    page.wait_for_function("document.getElementById('target').value")
    assert page.input_value("#target") == expected
    assert page.locator("#target").get_attribute("lang") == "de" and "tiny" in page.title()
    page.wait_for_function("caches.keys().then((names) => names.length > 0)")
    page.wait_for_function(
        "navigator.serviceWorker.ready.then((ready) => ready.active?.state === 'activated')"
    )
    server.stop()
    page.reload()
    page.fill("#source", "A cat sings.\nThe dog sleeps. A cat sings.")
    page.wait_for_function("document.getElementById('target').value.includes('\\n')")
    assert page.input_value("#target").endswith(f"\n{expected}")
    page.fill("#source", "")
    page.wait_for_function("!document.getElementById('target').value")
    assert page.problems == [] and all(url.startswith((server.url, "data:", "blob:")) for url in page.asked)


@needs_chromium
def test_two_exports_are_never_mixed(exported, browser, tmp_path):
    """A visit in the middle of an upload, and one by way of a host that still has old copies."""
    onnx = pytest.importorskip("onnx")
    site, new = tmp_path / "site", tmp_path / "new"
    shutil.copytree(exported[0], site)
    shutil.copytree(exported[0], tmp_path / "whole")
    for name in ("index.html", "offline.js"):
        web = ROOT / "transformer_mt/companions/browser/web"
        shutil.copyfile(web / name, tmp_path / "whole" / name)
    step = onnx.load(tmp_path / "whole/step.onnx")
    step.doc_string = "another model"
    onnx.save(step, tmp_path / "whole/step.onnx")
    page = ToBrowser.__new__(ToBrowser)
    page.quantization = "float32"
    page.pack(tmp_path / "whole", new, None)
    names = sorted(path.name for path in new.iterdir() if path.is_file())
    server = Static(site)
    for missing in ("step.onnx", "offline.js"):  # not yet uploaded, or an old copy
        shutil.rmtree(site)
        shutil.copytree(exported[0], site)
        for name in names:
            if name != missing:
                shutil.copyfile(new / name, site / name)
        visitor = watched_page(browser)
        visitor.goto(server.url)
        visitor.fill("#source", "The dog sleeps.")
        if missing == "offline.js":  # the page itself is whole, and nothing is kept with another one's list
            visitor.wait_for_function("document.getElementById('target').value")
        else:
            visitor.locator("#status", has_text="replaced by a new one").wait_for()
            assert visitor.input_value("#target") == ""
        visitor.wait_for_timeout(500)
        assert visitor.evaluate("caches.keys()") == []
        visitor.context.close()
    shutil.copyfile(new / "offline.js", site / "offline.js")
    visitor = watched_page(browser)
    visitor.goto(server.url)
    visitor.wait_for_function("caches.keys().then((names) => names.length > 0)")
    server.stop()


@needs_chromium
def test_back_restores_the_translation_and_hebrew_reads_from_the_right(exported, browser, tmp_path):
    server = Static(exported[0])
    page = watched_page(browser)
    page.goto(server.url)
    page.fill("#source", "The dog sleeps.")
    page.wait_for_function("document.getElementById('target').value")
    translation = page.input_value("#target")
    page.goto("about:blank")
    page.go_back()
    page.wait_for_function("document.getElementById('target').value")
    assert (page.input_value("#source"), page.input_value("#target")) == ("The dog sleeps.", translation)
    page.evaluate("document.getElementById('target').value = 'שלום'")
    assert page.evaluate("getComputedStyle(document.getElementById('target')).direction") == "rtl"
    server.stop()


def test_missing_or_other_libraries_are_named(tiny_run, node_modules, tmp_path, cli):
    status, _, err = cli("export", tiny_run, tmp_path / "x", "--to", "browser", "--runtime", tmp_path)
    assert status == 2 and not (tmp_path / "x").exists()
    assert (
        f"{tmp_path}: must hold onnxruntime-web 1.22.0, but it is missing; run `npm install "
        "onnxruntime-web@1.22.0 sentencepiece-js@1.1.0` and give its node_modules with --runtime" in err
    )
    for name in ("onnxruntime-web", "sentencepiece-js"):
        (tmp_path / name).mkdir()
        shutil.copyfile(node_modules / name / "package.json", tmp_path / name / "package.json")
    other = tmp_path / "sentencepiece-js/package.json"
    other.write_text(other.read_text().replace('"1.1.0"', '"1.0.0"'))
    err = cli("export", tiny_run, tmp_path / "x", "--to", "browser", "--runtime", tmp_path).err
    assert "must hold sentencepiece-js 1.1.0, but it is 1.0.0" in err


def test_without_node_onnxruntime_alone_is_compared(tmp_path, monkeypatch, said):
    no_node(monkeypatch, ["by Python"])
    assert ToBrowser.translate(ToBrowser.__new__(ToBrowser), tmp_path, ["x"]) == ["by Python"]
    assert said == ["note: Node is not installed, so the page's JavaScript itself was not compared"]


def test_a_fault_of_the_javascript_is_named(exported, tmp_path):
    from transformer_mt.errors import WorkError

    folder = tmp_path / "broken"
    shutil.copytree(exported[0], folder)
    (folder / "step.onnx").write_bytes(b"no graph")
    with pytest.raises(WorkError, match="the export's JavaScript failed in Node: Error: "):
        translate_in_node(NODE, folder, ["x"])
