"""Office documents through the command line."""

import re
import shutil
import subprocess

import pytest

from tests.companions.documents.unit.office_files import random_file, word_run, zipped
from tests.companions.documents.unit.test_office_property import members, translated
from tests.helpers.faults import killed_at_the_end
from tests.helpers.upper_case import upper_case_translator
from transformer_mt.translator import Translator


@pytest.fixture
def document(tmp_path):
    """A document of three paragraphs."""
    texts = ("The old teacher sees a bird.", "A dog sleeps.", "The king dances.")
    body = "".join(f"<w:p>{word_run(text)}</w:p>" for text in texts)
    whole = f'<w:document xmlns:w="W"><w:body>{body}</w:body></w:document>'
    (tmp_path / "in.docx").write_bytes(zipped({"word/document.xml": whole}))
    return tmp_path / "in.docx"


def texts_of(path):
    return re.findall(r"<w:t[^>]*>([^<]*)</w:t>", members(path.read_bytes())["word/document.xml"])


def test_a_document_is_translated_and_resumed(cli, tiny_run, document):
    out = document.with_name("out.docx")
    result = cli("translate", tiny_run, "-i", document, "-o", out)
    assert result.status == 0, result.err
    expected = [r.translation for r in Translator.load(tiny_run, device="cpu").translate(texts_of(document))]
    assert texts_of(out) == expected
    assert sorted(path.name for path in document.parent.iterdir()) == ["in.docx", "out.docx"]

    whole = out.read_bytes()
    out.unlink()
    # What a killed process leaves: the record, the texts so far, and how long they were after each part.
    with pytest.MonkeyPatch.context() as patch:
        killed_at_the_end(patch)
        cli("translate", tiny_run, "-i", document, "-o", out)
    waiting, sizes = (
        document.with_name(".out.docx.resume.text"),
        document.with_name("..out.docx.resume.text.resume.sizes"),
    )
    first = int(sizes.read_text().split()[0])
    waiting.write_bytes(waiting.read_bytes()[: first + 5])
    result = cli("translate", tiny_run, "-i", document, "-o", out, "--resume")
    assert "resuming after 1 of 3 texts" in result.err
    assert members(out.read_bytes()) == members(whole)
    assert sorted(path.name for path in document.parent.iterdir()) == ["in.docx", "out.docx"]


def test_a_document_needs_an_output_and_a_damaged_one_leaves_it_alone(cli, tiny_run, document):
    assert "must be written to a file; give --output FILE" in cli("translate", tiny_run, "-i", document).err
    out = document.with_name("out.docx")
    out.write_bytes(b"old")
    random = document.with_name("random.docx")
    random.write_bytes(document.read_bytes())
    document.write_bytes(document.read_bytes()[:100])
    result = cli("translate", tiny_run, "-i", document, "-o", out)
    assert result.status == 2 and "in.docx: must be a whole zip file" in result.err
    assert out.read_bytes() == b"old"
    nowhere = cli("translate", tiny_run, "-i", random, "-o", document.with_name("no") / "x.docx")
    assert "no/x.docx: cannot be written: No such file or directory" in nowhere.err
    old = document.with_name("a.doc")
    old.write_bytes(b"x")
    assert "save it as .docx, without macros" in cli("translate", tiny_run, "-i", old).err


def test_terms_hold_in_a_document(cli, tiny_run, document):
    terms = document.with_name("terms.tsv")
    terms.write_text("king\tHerrscher\n", encoding="utf-8")
    out = document.with_name("out.docx")
    result = cli("translate", tiny_run, "-i", document, "-o", out, "--glossary", terms)
    assert result.status == 0, result.err
    assert "Herrscher" in texts_of(out)[2]
    page = document.with_name("page.html")
    page.write_text("<p>The <b>king</b> dances.</p>", encoding="utf-8")
    assert "Herrscher" in cli("translate", tiny_run, "-i", page, "--glossary", terms).out


SLIDES = """<?xml version="1.0" encoding="UTF-8"?>
<office:document xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0"
 xmlns:presentation="urn:oasis:names:tc:opendocument:xmlns:presentation:1.0"
 xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0"
 xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"
 xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" office:version="1.2"
 office:mimetype="application/vnd.oasis.opendocument.presentation">
<office:body><office:presentation><draw:page draw:name="one">
<draw:frame svg:width="20cm" svg:height="5cm" svg:x="1cm" svg:y="1cm"><draw:text-box>
<text:p>A big <text:span>dog</text:span> &amp; a cat</text:p><text:p>A second line</text:p>
</draw:text-box></draw:frame>
<presentation:notes><draw:frame presentation:class="notes" svg:width="10cm" svg:height="5cm" svg:x="1cm"
 svg:y="9cm"><draw:text-box><text:p>Notes of it</text:p></draw:text-box></draw:frame></presentation:notes>
</draw:page></office:presentation></office:body></office:document>
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("soffice") is None, reason="needs LibreOffice: apt install libreoffice")
def test_libreoffice_opens_what_is_written(tmp_path):
    def converted(path, to):
        command = ["soffice", "--headless", f"-env:UserInstallation=file://{tmp_path}/profile"]
        command += ["--convert-to", to, "--outdir", str(tmp_path / "made"), str(path)]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        return tmp_path / "made" / f"{path.stem}.{to.partition(':')[0]}"

    (tmp_path / "a.html").write_text(
        "<h1>A title</h1><p>Hello <b>big</b> world, see <a href='http://x.example/'>the link</a>.</p>"
        "<table><tr><td>One cell</td><td>another &amp; more</td></tr></table><p>A line<br>and more.</p>",
        encoding="utf-8",
    )
    (tmp_path / "b.csv").write_text('Name,Note\nHello world,"Some ""text"", here"\n42,3\n', encoding="utf-8")
    page, table = tmp_path / "a.html", tmp_path / "b.csv"
    made = [
        converted(page, "docx:MS Word 2007 XML"),
        converted(page, "odt:writer8"),
        converted(table, "xlsx"),
    ]
    translator = upper_case_translator(split_sentences=False)
    for path, plain in zip(made, ("txt:Text", "txt:Text", "csv")):
        before = converted(path, plain).read_text(encoding="utf-8-sig")
        format = path.suffix[1:]
        out = tmp_path / f"out-{path.name}"
        out.write_bytes(translated(path.read_bytes(), format, translator))
        assert converted(out, plain).read_text(encoding="utf-8-sig") == before.upper()
        assert converted(out, "pdf").stat().st_size > 1000
    (tmp_path / "c.fodp").write_text(SLIDES, encoding="utf-8")
    slides = converted(tmp_path / "c.fodp", "pptx")

    out = tmp_path / "out-c.pptx"
    out.write_bytes(translated(slides.read_bytes(), "pptx", translator))
    after = re.sub(r"<[^>]*>", "", converted(out, "fodp").read_text(encoding="utf-8"))
    assert "A BIG DOG &amp; A CAT" in after and "A SECOND LINE" in after and "NOTES OF IT" in after
    assert converted(out, "pdf").stat().st_size > 1000
    for seed in range(3):
        out = tmp_path / f"random{seed}.docx"
        out.write_bytes(translated(random_file("docx", seed)[0], "docx", translator))
        assert converted(out, "pdf").stat().st_size > 1000
