"""What office documents must be, and what becomes of their formatting."""

import io
import re
import tracemalloc
import zipfile
from dataclasses import replace

import pytest

from tests.companions.documents.unit.office_files import random_file, word_run, zipped
from tests.companions.documents.unit.test_office_property import members, translated
from tests.helpers.upper_case import upper_case_translator
from transformer_mt.companions.documents.document_translation import translate_pieces
from transformer_mt.companions.documents.markup.marked_text import MarkedText
from transformer_mt.companions.documents.office.documents import OfficeDocument
from transformer_mt.companions.documents.office.ooxml import parse_ooxml
from transformer_mt.companions.documents.office.package import read_members
from transformer_mt.companions.documents.read import read_document
from transformer_mt.errors import InputError

BODY = '<w:document xmlns:w="W"><w:body>{}</w:body></w:document>'


def paragraph(*runs):
    """The paragraph of these runs, translated."""
    whole = BODY.format(f"<w:p>{''.join(runs)}</w:p>")
    pieces = parse_ooxml(whole, "f")
    out = "".join(
        part.written for part in translate_pieces(upper_case_translator(split_sentences=False), pieces)
    )
    return re.fullmatch(BODY.replace("{}", "<w:p>(.*)</w:p>"), out, re.DOTALL)[1]


def test_runs_of_one_formatting_are_one_text():
    """Word divides them where somebody typed, or where it looked at the spelling."""
    divided = word_run("Hel"), "<w:proofErr/>", word_run("lo wor"), word_run("ld", "<w:b/>"), word_run(".")
    assert paragraph(*divided) == "".join((
        word_run("HEL"), "<w:proofErr/>", word_run("LO WOR"), word_run("LD", "<w:b/>"), word_run("."),
    ))  # fmt: skip
    assert paragraph(word_run("one "), word_run("text")) == word_run("ONE ").replace("ONE ", "ONE TEXT")


@pytest.mark.parametrize("between", ["<w:br/>", "<w:cr/>"])
def test_a_line_break_keeps_words_apart(between):
    run = f"<w:r><w:t>one</w:t>{between}<w:t>two</w:t></w:r>"
    (text,) = (p for p in parse_ooxml(BODY.format(f"<w:p>{run}</w:p>"), "f") if isinstance(p, MarkedText))
    assert text.text == "one two"
    assert paragraph(run) == f"{word_run('ONE')}<w:r>{between}</w:r>{word_run('TWO')}"


@pytest.mark.parametrize("tab", ["<w:tab/>", "<w:ptab/>"])
@pytest.mark.parametrize("is_apart", [False, True])
def test_a_tab_parts_columns_and_the_number_of_a_page(tab, is_apart):
    """As in a table of contents, whose entry is a link, too."""
    gap = f"</w:t></w:r><w:r>{tab}</w:r><w:r><w:t>" if is_apart else f"</w:t>{tab}<w:t>"
    runs = f"<w:r><w:t>a dog{gap}a cat{gap}12</w:t></w:r>"
    for around in ("{}", '<w:hyperlink w:anchor="a">{}</w:hyperlink>'):
        body = BODY.format(f"<w:p><w:pPr><w:tabs>{tab}</w:tabs></w:pPr>{around.format(runs)}</w:p>")
        pieces = parse_ooxml(body, "f")
        assert [piece.text for piece in pieces if isinstance(piece, MarkedText)] == ["a dog", "a cat"]
        written = "".join(p.render() if isinstance(p, MarkedText) else p for p in pieces)
        apart = f"</w:t></w:r><w:r>{tab}</w:r><w:r><w:t>"
        assert written == (body if is_apart else body.replace(f"</w:t>{tab}<w:t>", apart))


@pytest.mark.parametrize(
    "element", ["<w:noBreakHyphen/>", "<w:noBreakHyphen />", "<w:noBreakHyphen></w:noBreakHyphen>"]
)
def test_a_hyphen_of_word_joins_its_words(element):
    hyphen = f"<w:r><w:t>the e</w:t>{element}<w:t>mail</w:t></w:r>"
    (text,) = (p for p in parse_ooxml(BODY.format(f"<w:p>{hyphen}</w:p>"), "f") if isinstance(p, MarkedText))
    assert text.text == "the e‑mail"
    assert paragraph(hyphen) == hyphen.replace("the e", "THE E").replace("mail", "MAIL")


@pytest.mark.parametrize("inserted", [" ", ", ", "?"])
def test_marks_that_were_inserted_are_part_of_the_text(inserted):
    runs = f"{word_run('one')}<w:ins>{word_run(inserted)}</w:ins>{word_run('two')}"
    (text,) = (p for p in parse_ooxml(BODY.format(f"<w:p>{runs}</w:p>"), "f") if isinstance(p, MarkedText))
    assert text.text == f"one{inserted}two"


def test_a_box_to_check_is_no_text():
    box = f"<w:sdt><w:sdtPr><w14:checkbox/></w:sdtPr><w:sdtContent>{word_run('☐')}</w:sdtContent></w:sdt>"
    whole = BODY.format(f"<w:p>{box}{word_run(' I agree')}</w:p>")
    (text,) = (p for p in parse_ooxml(whole, "f") if isinstance(p, MarkedText))
    assert text.text == "I agree" and paragraph(box, word_run(" I agree")) == box + word_run(" I AGREE")


LINK, CITY = '<w:hyperlink r:id="1">', '<w:smartTag w:element="City">'


@pytest.mark.parametrize(
    "run",
    [
        f"{CITY}{CITY}{word_run('New York')}</w:smartTag>{word_run(', NY')}</w:smartTag>",
        f"{LINK}<w:ins>{word_run('one')}</w:ins>{word_run(' page')}</w:hyperlink>",
        f'<w:dir w:val="rtl">{word_run("one")}</w:dir>',
        f'<w:bdo w:val="rtl">{word_run("one")}</w:bdo>',
        f"<w:ins>{word_run('one')}<w:bookmarkStart/>{word_run(' mark')}</w:ins>",
        f"<w:moveTo>{word_run('moved here')}</w:moveTo>",
        f"<w:fldSimple w:instr='REF x'>{word_run('the chapter')}</w:fldSimple>",
        f"<w:sdt><w:sdtPr/><w:sdtContent>{word_run('a')}<w:tab/>{word_run('b')}</w:sdtContent></w:sdt>",
        f"<w:ins><w:r><w:pict><w:p>{word_run('in a box')}</w:p></w:pict></w:r></w:ins>",
    ],
)
def test_all_text_in_elements_around_runs_is_translated(run):
    def letters(markup):
        return "".join(re.findall(r"<w:t[^>]*>([^<]*)<", markup))

    for before in ([], [word_run("see ")]):
        written = paragraph(*before, run)
        assert letters(written) == letters("".join([*before, run])).upper()
        around = "<w:(?:smartTag|hyperlink|ins|sdt|moveTo|fldSimple)[ >]"
        assert len(re.findall(around, written)) == len(re.findall(around, run))


@pytest.mark.parametrize("depth", [60, 240])
def test_elements_within_one_another_are_read_in_time_or_refused(depth):
    """Each level has runs that are words apart, and none together; two readings a level would never end."""
    address = word_run("info@") + word_run("example.com")
    whole = word_run("1")
    for _ in range(depth):
        whole = f"{LINK}{address}</w:hyperlink><w:ins>{word_run('1')}<w:tab/>{whole}</w:ins>"
    if depth < 100:
        assert paragraph(whole) == whole
        return
    with pytest.raises(InputError, match="f: must have fewer nested elements with text"):
        parse_ooxml(BODY.format(f"<w:p>{whole}</w:p>"), "f")


def test_an_address_in_two_runs_stays():
    link = f"{LINK}{word_run('info@')}{word_run('example.com')}</w:hyperlink>"
    assert paragraph(link) == link


def test_the_names_of_a_tables_columns_stay_as_the_table_says():
    """Excel takes a workbook for damaged whose header has other words than the table."""
    strings = (
        "<x:sst><x:si><x:t>first &amp;\nlast name</x:t></x:si><x:si><x:t>some words</x:t></x:si></x:sst>"
    )
    table = (
        '<table><tableColumns><tableColumn id="1" name="first &amp;_x000a_last name"/></tableColumns></table>'
    )
    files = {"xl/workbook.xml": "<a/>", "xl/sharedStrings.xml": strings, "xl/tables/table1.xml": table}
    after = members(translated(zipped(files), "xlsx", upper_case_translator(split_sentences=False)))
    assert after["xl/sharedStrings.xml"] == strings.replace("some words", "SOME WORDS")


def test_spaces_and_line_breaks_of_excel():
    """Excel drops the space at the edge of a text that does not say that it is preserved."""
    cell = '<sst><si><r><t>Click</t></r><r><rPr><b/></rPr><t xml:space="preserve"> OK</t></r></si></sst>'
    (text,) = (piece for piece in parse_ooxml(cell, "f") if isinstance(piece, MarkedText))
    click, ok = replace(text.marks[0], begin=0, end=2), "OK CLICK"
    assert replace(text, text=ok, marks=(click,)).render() == (
        '<r><rPr><b/></rPr><t xml:space="preserve">OK</t></r><r><t xml:space="preserve"> CLICK</t></r>'
    )
    cell = "<sst><si><t>one_x000D_\ntwo</t></si></sst>"
    pieces = parse_ooxml(cell, "f")
    assert [piece.text for piece in pieces if isinstance(piece, MarkedText)] == ["one two"]
    parts = translate_pieces(upper_case_translator(split_sentences=False), pieces)
    assert "".join(part.written for part in parts) == cell.replace("one", "ONE").replace("two", "TWO")


def test_a_page_of_a_book_is_xml_without_a_declaration():
    page = (
        '<!DOCTYPE html><html xmlns="http://www.w3.org/1999/xhtml"><head><title/><script src="a"/></head>'
        '<body><pre/><p>one <i>two <span id="p"/>three</i></p><p>four</p></body></html>'
    )
    book = zipped({"META-INF/container.xml": "<c/>", "a.xhtml": page})
    document = OfficeDocument.read(book, "epub", "en", "f")
    texts = [piece for piece in document.pieces() if isinstance(piece, MarkedText)]
    assert [text.text for text in texts] == ["one two three", "four"]
    # XML does not know &nbsp;.
    assert replace(texts[1], text="quatre\xa0!").render() == "quatre\xa0!"


def test_attributes_of_a_book_are_left_where_that_is_asked_for():
    page = '<html><body><p>one</p><img alt="two"/></body></html>'
    book = zipped({"META-INF/container.xml": "<c/>", "a.xhtml": page})
    for attributes, expected in ((True, ["one", "two"]), (False, ["one"])):
        document = read_document(book, "epub", ("en", "de"), "f", attributes)
        assert [text.text for text in document.texts] == expected


def test_comments_of_powerpoint_are_translated():
    raw = zipped({
        "ppt/presentation.xml": "<p/>",
        "ppt/comments/modernComment_100_0.xml": "<c><a:p><a:r><a:t>one</a:t></a:r></a:p></c>",
    })  # fmt: skip
    out = members(translated(raw, "pptx", upper_case_translator(split_sentences=False)))
    assert "<a:t>ONE</a:t>" in str(out["ppt/comments/modernComment_100_0.xml"])


def test_texts_of_boxes_in_pictures_are_translated():
    box = f"<w:r><w:pict><w:txbxContent><w:p>{word_run('in a box')}</w:p></w:txbxContent></w:pict></w:r>"
    boxed = box.replace("in a box", "IN A BOX")
    assert paragraph(box) == boxed
    assert paragraph(word_run("a "), box, word_run("b")) == word_run("A ") + boxed + word_run("B")


def test_results_of_fields_are_text_and_codes_stay():
    mark, code = (
        '<w:r><w:fldChar w:fldCharType="{}"/></w:r>',
        "<w:r><w:instrText>HYPERLINK x</w:instrText></w:r>",
    )
    field = mark.format("begin") + code + mark.format("separate") + "{}" + mark.format("end")
    written = paragraph(word_run("see "), field.format(word_run("this page")), word_run(" now"))
    assert written == word_run("SEE ") + field.format(word_run("THIS PAGE")) + word_run(" NOW")
    begun = mark.format("begin") + code + mark.format("separate") + word_run("a line")
    assert paragraph(begun) == mark.format("begin") + code + mark.format("separate") + word_run("A LINE")


def broken(compress=zipfile.ZIP_DEFLATED, **changes):
    raw, _ = random_file("docx", 3)
    return zipped({**members(raw), **changes}, compress)


DOCX = random_file("docx", 3)[0]
ENTITY = '<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]><w:document xmlns:w="W">&x;</w:document>'
DAMAGED = {
    "cut short": (DOCX[:300], "must be a whole zip file, as such documents are"),
    "old or protected": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "without a password"),
    "another kind": (random_file("xlsx", 1)[0], "must be a .docx document with word/document"),
    "macros": (broken(**{"word/vbaProject.bin": "x"}), "must not have macros, but has word/vbaProject.bin"),
    "entities": (broken(**{"word/document.xml": ENTITY}), "must not define XML entities, but does"),
    "broken XML": (broken(**{"word/document.xml": "<w:document>"}), "document.xml:1: is not well-formed"),
    "too much text": (
        broken(**{"word/header1.xml": " " * 50_000_001}, compress=zipfile.ZIP_STORED),
        "f: must have at most 50,000,000 bytes of XML, but has 50,00",
    ),
    "too much in all": (
        broken(**{f"word/header{n}.xml": " " * 9_000_000 for n in range(6)}, compress=zipfile.ZIP_STORED),
        "f: must have at most 50,000,000 bytes of XML, but has 54,00",
    ),
    "too deep": (
        broken(**{"word/header1.xml": "<w:p>" * 300 + "</w:p>" * 300}),
        "header1.xml: elements must be at most 256 deep, but are deeper",
    ),
    "a bomb": (broken(**{"word/media/a.bin": "0" * 50_000_000}), "must unpack to less, but word"),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGED)
def test_what_is_no_document_is_refused_in_one_line(what):
    raw, message = DAMAGED[what]
    with pytest.raises(InputError, match=re.escape(message)) as error:
        OfficeDocument.read(raw, "docx", "en", "f").pieces()
    assert "\n" not in str(error.value)


def test_a_password_is_refused(tmp_path):
    raw = bytearray(DOCX)
    for at in (m.start() for m in re.finditer(rb"PK\x03\x04|PK\x01\x02", DOCX)):
        raw[at + (6 if raw[at + 2] == 3 else 8)] |= 1  # what a member that is encrypted says
    with pytest.raises(InputError, match="must not be protected by a password, but is"):
        OfficeDocument.read(bytes(raw), "docx", "en", "f")


def test_members_keep_their_order_dates_and_compression():
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for number, (name, content) in enumerate(members(random_file("epub", 2)[0]).items()):
            info = zipfile.ZipInfo(name, (2001, 2, 3, 4, 5 + number, 6))
            info.compress_type = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)[number % 2]
            archive.writestr(info, content)
    after = translated(raw.getvalue(), "epub", upper_case_translator(split_sentences=False))
    infos = [zipfile.ZipFile(io.BytesIO(file)).infolist() for file in (raw.getvalue(), after)]
    facts = [[(i.filename, i.date_time, i.compress_type) for i in of_file] for of_file in infos]
    assert facts[0] == facts[1]


# The parts of an office document that a reader sees are translated, and the others are counted.


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
PART_BODY = "<w:p><w:r><w:t>a dog</w:t></w:r></w:p>"


def word(body=PART_BODY):
    return {"word/document.xml": f'<w:document xmlns:w="{WORD}">{body}</w:document>'}


def workbook(*cells, sheet="", **members):
    strings = "".join(f"<si><t>{cell}</t></si>" for cell in cells)
    return {
        "xl/workbook.xml": f'<workbook xmlns="{SHEET}"/>',
        "xl/sharedStrings.xml": f'<sst xmlns="{SHEET}">{strings}</sst>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{SHEET}">{sheet}</worksheet>',
        **members,
    }


def translated_part(members, format):
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
    text = f'<w:document xmlns:w="{uri}">{PART_BODY}{body}</w:document>'.replace(
        "xmlns:w", f"xmlns:{prefix}".rstrip(":")
    )
    text = re.sub(r"(</?)w:", rf"\1{prefix}:" if prefix else r"\1", text)
    members, _ = translated_part({"word/document.xml": text.replace(" w:fld", " fld")}, "docx")
    assert members["word/document.xml"] == text.replace(" w:fld", " fld").replace("a dog", "A DOG")


@pytest.mark.parametrize("format, members, part", [
    ("docx", word(), "word/charts/chart1.xml"),
    ("pptx", {"ppt/presentation.xml": "<p/>"}, "ppt/charts/chart7.xml"),
    ("xlsx", workbook(), "xl/charts/chart1.xml"),
])  # fmt: skip
def test_charts_and_diagrams_are_translated(format, members, part):
    diagram = part.replace("charts/chart", "diagrams/data")
    after, _ = translated_part({**members, part: TITLE, diagram: DIAGRAM}, format)
    assert after[part] == TITLE.replace("a chart", "A CHART").replace("a row", "A ROW")
    assert after[diagram] == DIAGRAM.replace("a box", "A BOX")


def test_texts_that_are_read_in_place_of_a_picture_are_translated():
    properties = '<wp:docPr xmlns:wp="W" id="1" name="Picture 1" descr="a &quot;cat&quot;"/>'
    picture = f"<w:r><w:drawing>{properties}</w:drawing></w:r>"
    members, _ = translated_part(word(f"<w:p><w:r><w:t>a dog</w:t></w:r>{picture}</w:p>"), "docx")
    assert 'name="Picture 1" descr="A &quot;CAT&quot;"' in members["word/document.xml"]
    odf = {"content.xml": '<o xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0">'
           "<svg:desc>a cat</svg:desc></o>"}  # fmt: skip
    assert "A CAT" in translated_part(odf, "odt")[0]["content.xml"]


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
    members, _ = translated_part(workbook("a cell", sheet=header, **parts), "xlsx")
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
    members, stay = translated_part(workbook("man", "a dog", sheet=names), "xlsx")
    assert re.findall("<t>(.*?)</t>", members["xl/sharedStrings.xml"]) == ["man", "A DOG"]
    assert stay["cells whose text a formula, a list, a filter or a table names"] == 1


def test_a_value_of_a_pivot_table_stays():
    pivot = {"xl/pivotCache/pivotCacheDefinition1.xml": f'<p xmlns="{SHEET}"><s v="man"/><s v="woman"/></p>'}
    members, _ = translated_part(workbook("man", "a dog", **pivot), "xlsx")
    assert re.findall("<t>(.*?)</t>", members["xl/sharedStrings.xml"]) == ["man", "A DOG"]


def test_what_stays_is_counted():
    formula = '<w:p><m:oMath xmlns:m="M"><m:r><m:t>sin x</m:t></m:r></m:oMath></w:p>'
    members = {**word(f"{PART_BODY}{formula * 2}<w:altChunk/>"), "word/embeddings/a.xlsx": "x"}
    _, stay = translated_part(members, "docx")
    assert stay == {"formulas": 2, "embedded files": 1, "documents within the document (altChunk)": 1}
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
    after, stay = translated_part(members, "odt")
    assert "A CAT" in after["Object 1/content.xml"] and stay == {"pictures of embedded objects": 1}


def test_the_table_of_contents_and_the_title_of_a_book_are_translated():
    members = {
        "META-INF/container.xml": "<container/>",
        "toc.ncx": '<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/">'
        "<docTitle><text>a book</text></docTitle></ncx>",
        "c.opf": '<p xmlns:d="http://purl.org/dc/elements/1.1/">'
        "<d:title>a book</d:title><d:creator>me</d:creator></p>",
    }
    after, _ = translated_part(members, "epub")
    assert "<text>A BOOK</text>" in after["toc.ncx"]
    assert "<d:title>A BOOK</d:title><d:creator>me</d:creator>" in after["c.opf"]


def test_a_namespace_ends_with_the_element_that_declares_it():
    inner = (
        f'<svg xmlns="http://www.w3.org/2000/svg"><p/></svg><p><r><t>a dog</t></r></p><x xmlns="{SHEET}"/>'
    )
    text = f'<document xmlns="{WORD}">{inner}<p><r><t>a cat</t></r></p></document>'
    members, _ = translated_part({"word/document.xml": text}, "docx")
    assert members["word/document.xml"] == text.replace("a dog", "A DOG").replace("a cat", "A CAT")


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
    after, _ = translated_part(members, "epub")
    assert "<p>A DOG</p>" in after[f"book/{page}"] and "<p>a cat</p>" in after["book/text/data.xml"]


def test_a_tab_of_open_document_parts_texts():
    text = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
    body = "<text:p><text:a>a dog<text:tab/>12</text:a></text:p><text:p>a cat<text:tab/>a bird</text:p>"
    members = {"content.xml": f'<o xmlns:text="{text}">{body}</o>'}
    document = read_document(zipped(members), "odt", ("en", "de"), "x")
    assert [piece.text for piece in document.texts] == ["a dog", "a cat", "a bird"]
    after, _ = translated_part(members, "odt")
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
    _, stay = translated_part({"xl/workbook.xml": "<workbook/>", "xl/styles.xml": style}, "xlsx")
    assert stay == ({"texts of number formats": 1} if num_texts else {})


def test_what_is_too_large_is_refused_before_it_is_in_memory():
    raw, _ = DAMAGED["too much text"]
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
    assert "<p>A DOG</p>" in translated_part(fonts, "epub")[0]["a.xhtml"]
    pages = {**members, "META-INF/encryption.xml": encryption.format("a.xhtml")}
    with pytest.raises(InputError, match="x: must not be protected, but a.xhtml is encrypted"):
        translated_part(pages, "epub")
