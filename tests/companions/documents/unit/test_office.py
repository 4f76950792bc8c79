"""What office documents must be, and what becomes of their formatting."""

import random
import re
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


def test_a_line_break_keeps_words_apart():
    text = "<w:r><w:t>one</w:t><w:br/><w:t>two</w:t></w:r>"
    assert paragraph(text) == f"{word_run('ONE')}<w:r><w:br/></w:r>{word_run('TWO')}"


@pytest.mark.parametrize("between", ["<w:br/>", "<w:cr/>"])
def test_words_around_a_line_break_are_translated_as_two(between):
    run = f"<w:p><w:r><w:t>Line one</w:t>{between}<w:t>line two</w:t></w:r></w:p>"
    pieces = parse_ooxml(BODY.format(run), "f")
    (part,) = (piece for piece in pieces if isinstance(piece, MarkedText))
    assert part.text == "Line one line two"


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
        assert len(re.findall("<w:(?:smartTag|hyperlink|ins|sdt|moveTo|fldSimple)[ >]", written)) == len(
            re.findall("<w:(?:smartTag|hyperlink|ins|sdt|moveTo|fldSimple)[ >]", run)
        )


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


def test_deleted_text_stays():
    deleted = "<w:del><w:r><w:delText>old</w:delText></w:r></w:del>"
    assert paragraph(word_run("new "), deleted) == word_run("NEW ") + deleted


def broken(compress=zipfile.ZIP_DEFLATED, **changes):
    raw, _ = random_file("docx", 3)
    return zipped({**members(raw), **changes}, compress)


DOCX = random_file("docx", 3)[0]
ENTITY = '<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]><w:document xmlns:w="W">&x;</w:document>'
DAMAGED = {
    "cut short": (DOCX[:300], "must be a whole zip file, as such documents are"),
    "not a zip file": (b"Hello", "must be a whole zip file, as such documents are"),
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


def test_members_keep_their_order_dates_and_compression(tmp_path):
    raw = zipped({"mimetype": "application/epub+zip"}, zipfile.ZIP_STORED)
    book = members(random_file("epub", 2)[0])
    (tmp_path / "a.epub").write_bytes(raw)
    with zipfile.ZipFile(tmp_path / "a.epub", "a") as archive:
        for name, content in list(book.items())[1:]:
            info = zipfile.ZipInfo(name, (2001, 2, 3, 4, 5, 6))
            info.compress_type = random.Random(name).choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED))
            archive.writestr(info, content)
    (tmp_path / "b.epub").write_bytes(
        translated((tmp_path / "a.epub").read_bytes(), "epub", upper_case_translator(split_sentences=False))
    )
    facts = []
    for name in ("a.epub", "b.epub"):
        with zipfile.ZipFile(tmp_path / name) as archive:
            facts.append([(i.filename, i.date_time, i.compress_type) for i in archive.infolist()])
    assert facts[0] == facts[1]
