"""The parts of an office document that a reader sees are translated, and the others are counted."""

import random
import re
import tracemalloc

import pytest

from tests.companions.documents.unit.office_files import zipped
from tests.helpers.upper_case import upper_case_translator
from transformer_mt.companions.documents.document_translation import translate_pieces
from transformer_mt.companions.documents.office.package import read_members
from transformer_mt.companions.documents.read import read_document
from transformer_mt.errors import InputError

OOXML = "http://schemas.openxmlformats.org"
WORD, SHEET = f"{OOXML}/wordprocessingml/2006/main", f"{OOXML}/spreadsheetml/2006/main"
CHART, DRAWING = f"{OOXML}/drawingml/2006/chart", f"{OOXML}/drawingml/2006/main"
TITLE = (
    f'<c:chart xmlns:c="{CHART}" xmlns:a="{DRAWING}">'
    "<c:title><a:p><a:r><a:t>a chart</a:t></a:r></a:p></c:title>"
    "<c:strCache><c:formatCode>General</c:formatCode><c:pt><c:v>a row</c:v></c:pt></c:strCache>"
    "<c:numCache><c:pt><c:v>3.5</c:v></c:pt></c:numCache></c:chart>"
)
DIAGRAM = f'<d:pt xmlns:d="D" xmlns:a="{DRAWING}"><a:p><a:r><a:t>a box</a:t></a:r></a:p></d:pt>'
BODY = "<w:p><w:r><w:t>a dog</w:t></w:r></w:p>"


def word(body=BODY):
    return {"word/document.xml": f'<w:document xmlns:w="{WORD}">{body}</w:document>'}


def workbook(*cells, sheet="", **members):
    strings = "".join(f"<si><t>{cell}</t></si>" for cell in cells)
    return {
        "xl/workbook.xml": f'<workbook xmlns="{SHEET}"/>',
        "xl/sharedStrings.xml": f'<sst xmlns="{SHEET}">{strings}</sst>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{SHEET}">{sheet}</worksheet>',
        **members,
    }


def translated(members, format):
    """(what became of each member, what stays)"""
    document = read_document(zipped(members), format, ("en", "de"), "x")
    parts = translate_pieces(upper_case_translator(), document.pieces)
    written = document.written("".join(part.written for part in parts))
    return {m.info.filename: m.content.decode() for m in read_members(written, "x")}, dict(document.stay)


@pytest.mark.parametrize("uri", [WORD, "http://purl.oclc.org/ooxml/wordprocessingml/main"])
@pytest.mark.parametrize("prefix", ["w", "ns0", ""])
def test_elements_are_known_by_their_namespace(uri, prefix):
    body = (
        '<w:p><w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>REF a</w:instrText></w:r></w:p>'
    )
    text = f'<w:document xmlns:w="{uri}">{BODY}{body}</w:document>'.replace(
        "xmlns:w", f"xmlns:{prefix}".rstrip(":")
    )
    text = re.sub(r"(</?)w:", rf"\1{prefix}:" if prefix else r"\1", text)
    members, _ = translated({"word/document.xml": text.replace(" w:fld", " fld")}, "docx")
    assert members["word/document.xml"] == text.replace(" w:fld", " fld").replace("a dog", "A DOG")


@pytest.mark.parametrize("format, members, part", [
    ("docx", word(), "word/charts/chart1.xml"),
    ("pptx", {"ppt/presentation.xml": "<p/>"}, "ppt/charts/chart7.xml"),
    ("xlsx", workbook(), "xl/charts/chart1.xml"),
])  # fmt: skip
def test_charts_and_diagrams_are_translated(format, members, part):
    diagram = part.replace("charts/chart", "diagrams/data")
    after, _ = translated({**members, part: TITLE, diagram: DIAGRAM}, format)
    assert after[part] == TITLE.replace("a chart", "A CHART").replace("a row", "A ROW")
    assert after[diagram] == DIAGRAM.replace("a box", "A BOX")


def test_texts_that_are_read_in_place_of_a_picture_are_translated():
    properties = '<wp:docPr xmlns:wp="W" id="1" name="Picture 1" descr="a &quot;cat&quot;"/>'
    picture = f"<w:r><w:drawing>{properties}</w:drawing></w:r>"
    members, _ = translated(word(f"<w:p><w:r><w:t>a dog</w:t></w:r>{picture}</w:p>"), "docx")
    assert 'name="Picture 1" descr="A &quot;CAT&quot;"' in members["word/document.xml"]
    odf = {"content.xml": '<o xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0">'
           "<svg:desc>a cat</svg:desc></o>"}  # fmt: skip
    assert "A CAT" in translated(odf, "odt")[0]["content.xml"]


def test_comments_and_headers_of_a_workbook_are_translated():
    comment = (
        f'<comments xmlns="{SHEET}"><authors><author>me</author></authors><text><r><t>a note</t></r></text>'
    )
    thread = "<ThreadedComments><threadedComment><text>a reply</text></threadedComment></ThreadedComments>"
    texts = '&amp;L&amp;"Arial,Bold"a dog&amp;Cpage &amp;P of &amp;N&amp;R&amp;D'
    header = f"<headerFooter><oddHeader>{texts}</oddHeader></headerFooter>"
    parts = {
        "xl/comments/comment1.xml": f"{comment}</comments>",
        "xl/threadedComments/threadedComment1.xml": thread,
    }
    members, _ = translated(workbook("a cell", sheet=header, **parts), "xlsx")
    assert members["xl/comments/comment1.xml"] == f"{comment}</comments>".replace("a note", "A NOTE")
    assert members["xl/threadedComments/threadedComment1.xml"] == thread.replace("a reply", "A REPLY")
    expected = header.replace("a dog", "A DOG").replace("page ", "PAGE ").replace(" of ", " OF ")
    assert expected in members["xl/worksheets/sheet1.xml"]


@pytest.mark.parametrize("names", [
    '<c><f>COUNTIF(B2:B4,"man")</f></c>',
    "<c><f>IF(A1=&quot;Man&quot;,1,0)</f></c>",
    '<dataValidation><formula1>"man,woman"</formula1></dataValidation>',
    '<autoFilter><filters><filter val="man"/></filters></autoFilter>',
    '<conditionalFormatting><cfRule><formula>A1="man"</formula></cfRule></conditionalFormatting>',
])  # fmt: skip
def test_a_cell_whose_text_is_named_elsewhere_stays_and_is_counted(names):
    members, stay = translated(workbook("man", "a dog", sheet=names), "xlsx")
    assert (
        "<t>man</t>" in members["xl/sharedStrings.xml"] and "<t>A DOG</t>" in members["xl/sharedStrings.xml"]
    )
    assert stay["cells whose text a formula, a list, a filter or a table names"] == 1


def test_a_value_of_a_pivot_table_stays():
    pivot = {"xl/pivotCache/pivotCacheDefinition1.xml": f'<p xmlns="{SHEET}"><s v="man"/><s v="woman"/></p>'}
    members, _ = translated(workbook("man", "a dog", **pivot), "xlsx")
    assert (
        "<t>man</t>" in members["xl/sharedStrings.xml"] and "<t>A DOG</t>" in members["xl/sharedStrings.xml"]
    )


def test_what_stays_is_counted():
    formula = '<w:p><m:oMath xmlns:m="M"><m:r><m:t>sin x</m:t></m:r></m:oMath></w:p>'
    _, stay = translated({**word(BODY + formula * 2), "word/embeddings/a.xlsx": "x"}, "docx")
    assert stay == {"formulas": 2, "embedded files": 1}
    assert read_document(zipped(word("<w:p/>")), "docx", ("en", "de"), "x").remarks == [
        "there is no text to translate"
    ]


def test_the_picture_of_an_embedded_object_with_texts_is_counted():
    """It shows the old texts until the object is opened."""
    text = 'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
    members = {
        "content.xml": f"<o {text}><text:p>a dog</text:p></o>",
        "Object 1/content.xml": f"<o {text}><text:p>a cat</text:p></o>",
        "Object 2/content.xml": f"<o {text}><text:p>12</text:p></o>",
        "ObjectReplacements/Object 1": "picture",
        "ObjectReplacements/Object 2": "picture",
    }
    after, stay = translated(members, "odt")
    assert "A CAT" in after["Object 1/content.xml"] and stay == {"pictures of embedded objects": 1}


def test_the_table_of_contents_and_the_title_of_a_book_are_translated():
    members = {
        "META-INF/container.xml": "<container/>",
        "toc.ncx": '<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/">'
        "<docTitle><text>a book</text></docTitle></ncx>",
        "c.opf": '<p xmlns:d="http://purl.org/dc/elements/1.1/">'
        "<d:title>a book</d:title><d:creator>me</d:creator></p>",
    }
    after, _ = translated(members, "epub")
    assert "<text>A BOOK</text>" in after["toc.ncx"]
    assert "<d:title>A BOOK</d:title><d:creator>me</d:creator>" in after["c.opf"]


def test_a_namespace_ends_with_the_element_that_declares_it():
    inner = (
        f'<svg xmlns="http://www.w3.org/2000/svg"><p/></svg><p><r><t>a dog</t></r></p><x xmlns="{SHEET}"/>'
    )
    text = f'<document xmlns="{WORD}">{inner}<p><r><t>a cat</t></r></p></document>'
    members, _ = translated({"word/document.xml": text}, "docx")
    assert members["word/document.xml"] == text.replace("a dog", "A DOG").replace("a cat", "A CAT")


def test_texts_of_attributes_and_of_other_files_are_counted():
    choices = '<w:sdt><w:sdtPr><w:dropDownList><w:listItem w:displayText="a dog" w:value="1"/>'
    choices += "</w:dropDownList></w:sdtPr></w:sdt>"
    link = '<w:p><w:hyperlink w:tooltip="a cat"><w:r><w:t>here</w:t></w:r></w:hyperlink></w:p>'
    numbering = (
        '<w:numbering xmlns:w="W"><w:lvlText w:val="Chapter %1"/><w:lvlText w:val="%1."/></w:numbering>'
    )
    members = {**word(f"{BODY}{choices}{link}<w:altChunk/>"), "word/numbering.xml": numbering}
    _, stay = translated(members, "docx")
    assert stay == {
        "documents within the document (altChunk)": 1, "choices of drop-down lists": 1, "tooltips": 1,
        "labels of numbered lists": 1,
    }  # fmt: skip


@pytest.mark.parametrize("page", ["text/one.xml", "text/one two.php"])
def test_the_pages_of_a_book_are_those_that_its_package_names(page):
    href = page.replace(" ", "%20")
    members = {
        "META-INF/container.xml": "<container/>",
        "book/c.opf": '<package xmlns="http://www.idpf.org/2007/opf"><manifest>'
        f'<item href="{href}" media-type="application/xhtml+xml"/>'
        '<item href="text/data.xml" media-type="application/xml"/></manifest></package>',
        f"book/{page}": "<html><body><p>a dog</p></body></html>",
        "book/text/data.xml": "<html><body><p>a cat</p></body></html>",
    }
    after, _ = translated(members, "epub")
    assert "<p>A DOG</p>" in after[f"book/{page}"] and "<p>a cat</p>" in after["book/text/data.xml"]


def test_a_tab_of_open_document_parts_texts():
    text = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
    body = "<text:p><text:a>a dog<text:tab/>12</text:a></text:p><text:p>a cat<text:tab/>a bird</text:p>"
    members = {"content.xml": f'<o xmlns:text="{text}">{body}</o>'}
    document = read_document(zipped(members), "odt", ("en", "de"), "x")
    assert [piece.text for piece in document.texts] == ["a dog", "a cat", "a bird"]
    after, _ = translated(members, "odt")
    assert "A DOG<text:tab/>12<" in after["content.xml"]


@pytest.mark.parametrize(
    ("code", "num_texts"),
    [
        ("0 &quot;dogs&quot;", 1),
        ("&quot;$&quot;#,##0 General &quot;a &amp; dog&quot;", 1),
        ("_-* #,##0 &quot;€&quot;_-", 0),
        ("[$-F800]dddd, mmmm dd", 0),
        ("&quot;£&quot; General &quot;x&quot;", 0),
    ],
)
def test_words_in_formats_of_numbers_are_counted(code, num_texts):
    style = f'<styleSheet><numFmts><numFmt numFmtId="164" formatCode="{code}"/></numFmts></styleSheet>'
    _, stay = translated({"xl/workbook.xml": "<workbook/>", "xl/styles.xml": style}, "xlsx")
    assert stay == ({"texts of number formats": 1} if num_texts else {})


def test_what_is_too_large_is_refused_before_it_is_in_memory():
    raw = zipped(word(BODY + random.Random(1).randbytes(30_000_000).hex()))
    tracemalloc.start()
    with pytest.raises(InputError, match="must have at most 50,000,000 bytes of XML"):
        read_document(raw, "docx", ("en", "de"), "x")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000


def test_a_protected_book_is_called_so_but_not_one_with_protected_fonts():
    package = (
        '<package><manifest><item href="a.xhtml" media-type="application/xhtml+xml"/></manifest></package>'
    )
    encryption = '<encryption><CipherReference URI="{}"/></encryption>'
    members = {"META-INF/container.xml": "<c/>", "c.opf": package, "a.xhtml": "<p>a dog</p>", "f.otf": "x"}
    fonts = {**members, "META-INF/encryption.xml": encryption.format("f.otf")}
    assert "<p>A DOG</p>" in translated(fonts, "epub")[0]["a.xhtml"]
    pages = {**members, "META-INF/encryption.xml": encryption.format("a.xhtml")}
    with pytest.raises(InputError, match="x: must not be protected, but a.xhtml is encrypted"):
        translated(pages, "epub")


def test_slides_of_open_document_are_read_as_its_texts():
    namespaces = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{uri}:1.0"'
        for name, uri in (("text", "text"), ("draw", "drawing"))
    )
    frame = "<draw:frame><draw:text-box><text:p>a dog</text:p></draw:text-box></draw:frame>"
    members = {"content.xml": f"<o {namespaces}><draw:page>{frame}</draw:page></o>"}
    assert "<text:p>A DOG</text:p>" in translated(members, "odp")[0]["content.xml"]
