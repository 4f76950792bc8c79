"""Documents as strangers have them: directions, signatures, formulas that look into texts, and words that were
neither translated nor counted.
"""

# ruff: noqa: E501 - documents that a table holds
import io
import re
import zipfile

import pytest
from lxml import etree

from tests.companions.documents.unit.office_files import zipped
from tests.helpers.upper_case import upper_case_translator
from transformer_mt.companions.documents.document_translation import translate_pieces
from transformer_mt.companions.documents.office.package import class_of
from transformer_mt.companions.documents.read import read_document

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
S = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
OFFICE = "urn:oasis:names:tc:opendocument:xmlns"
ODF = " ".join(f'xmlns:{short}="{OFFICE}:{short}:1.0"' for short in ("text", "presentation", "form"))
HELLO = "<w:p><w:r><w:t>Hello</w:t></w:r></w:p>"


def word(body, **more):
    return zipped({"word/document.xml": f"<w:document {W}><w:body>{body}</w:body></w:document>", **more})


def sheet(texts, cells="", workbook="", after="", **more):
    return zipped({
        "xl/workbook.xml": f"<workbook {S}><sheets>{workbook}</sheets></workbook>",
        "xl/worksheets/sheet1.xml": f"<worksheet {S}><sheetViews><sheetView/></sheetViews><sheetData>{cells}"
        f"</sheetData>{after}</worksheet>",
        "xl/sharedStrings.xml": f"<sst {S}>{texts}</sst>", **more,
    })  # fmt: skip


def slides(body):
    names = 'xmlns:p="P" xmlns:a="A"'
    return zipped({"ppt/presentation.xml": "<p/>", "ppt/slides/slide1.xml": f"<p:sld {names}>{body}</p:sld>"})


def translated(raw, format, languages=("en", "he")):
    """The members of the translation, where each text is in capitals, and the document."""
    document = read_document(raw, format, languages, "f")
    parts = translate_pieces(upper_case_translator(), document.pieces)
    written = document.written("".join(part.written for part in parts))
    if document.office is None:
        return written.decode(), document
    archive = zipfile.ZipFile(io.BytesIO(written))
    return {name: archive.read(name).decode() for name in archive.namelist()}, document


@pytest.mark.parametrize(
    "raw, format, member, wanted",
    [
        (word(HELLO), "docx", "word/document.xml", r"<w:p><w:pPr><w:bidi/></w:pPr><w:r><w:rPr><w:rtl/></w:rPr>"),
        (word("<w:p><w:pPr><w:jc w:val='left'/></w:pPr><w:r><w:t>Hello</w:t></w:r></w:p>"), "docx",
         "word/document.xml", r"<w:pPr><w:bidi/><w:jc"),
        (word(f"<w:tbl><w:tblPr><w:tblStyle w:val='a'/><w:tblW w:w='1'/></w:tblPr>{HELLO}</w:tbl>"), "docx",
         "word/document.xml", r"<w:tblStyle w:val='a'/><w:bidiVisual/><w:tblW"),
        (word(HELLO + "<w:p w:x='1'/><w:sectPr><w:pgSz/><w:docGrid/></w:sectPr>"), "docx", "word/document.xml",
         r"<w:p w:x='1'/><w:sectPr><w:pgSz/><w:bidi/><w:docGrid/>"),
        (slides('<a:p><a:pPr algn="l"/><a:r><a:t>Hello</a:t></a:r></a:p>'), "pptx", "ppt/slides/slide1.xml",
         r'<a:pPr algn="r" rtl="1"/>'),
        (slides("<a:p><a:r><a:t>Hello</a:t></a:r></a:p>"), "pptx", "ppt/slides/slide1.xml", r'<a:pPr rtl="1"/>'),
        (sheet("<si><t>Hello</t></si>"), "xlsx", "xl/worksheets/sheet1.xml", r'<sheetView rightToLeft="1"/>'),
        (zipped({"content.xml": f"<a {ODF}><text:p>Hello</text:p></a>", "styles.xml":
                 '<a xmlns:style="S"><style:page-layout-properties style:writing-mode="lr-tb"/></a>'}), "odt",
         "styles.xml", r'<style:page-layout-properties style:writing-mode="rl-tb"'),
    ],
)  # fmt: skip
def test_a_translation_is_written_from_the_right_and_back(raw, format, member, wanted):
    members, _ = translated(raw, format)
    assert re.search(wanted.replace("(", r"\("), members[member]), members[member]
    etree.fromstring(members[member])
    back, _ = translated(zipped(members), format, ("he", "en"))
    assert not re.search(r'<w:bidi|<w:rtl|rtl="1"|rightToLeft|rl-tb', back[member]), back[member]
    same, _ = translated(raw, format, ("en", "de"))
    assert not re.search(r"bidi|rtl|rightToLeft|rl-tb", same[member])


def test_pages_get_the_direction_of_their_language():
    page = '<!doctype html><html lang="en" dir="ltr"><body><p>Hello there</p></body></html>'
    text, _ = translated(page.encode(), "html")
    assert '<html lang="en" dir="rtl">' in text
    assert '<html lang="en" dir="ltr">' in translated(text.encode(), "html", ("ar", "fr"))[0]


def test_a_signature_is_left_out_and_said():
    types = '<Types><Override PartName="/_xmlsignatures/sig1.xml" ContentType="s"/><Default Extension="xml"/></Types>'
    rels = '<Relationships><Relationship Type="x/digital-signature/origin" Target="_xmlsignatures/origin.sigs"/></Relationships>'
    raw = word(HELLO, **{
        "[Content_Types].xml": types, "_rels/.rels": rels, "_xmlsignatures/origin.sigs": "",
        "_xmlsignatures/sig1.xml": "<Signature/>",
    })  # fmt: skip
    members, document = translated(raw, "docx")
    assert not [name for name in members if "signature" in name]
    assert "signature" not in members["[Content_Types].xml"] + members["_rels/.rels"]
    assert document.remarks == ["the digital signature is left out: it holds for the original alone"]


@pytest.mark.parametrize(
    "formula",
    ['COUNTIF(A:A,"*dog*")', 'ISNUMBER(SEARCH("dog",A1))', 'LEFT(A1,7)="The dog"'],
)  # fmt: skip
def test_cells_that_a_formula_looks_into_stay_and_are_counted(formula):
    cells = f'<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1"><f>{formula}</f><v>1</v></c></row>'
    raw = sheet("<si><t>The dog sleeps</t></si><si><t>A bird</t></si>", cells)
    document = read_document(raw, "xlsx", ("en", "de"), "f")
    assert [text.text for text in document.texts] == ["A bird"]
    assert document.stay["cells whose text a formula, a list, a filter or a table names"] == 1
    other = read_document(
        sheet("<si><t>The dog sleeps</t></si>", cells.replace("dog", "cow")), "xlsx", ("en", "de"), "f"
    )
    assert [text.text for text in other.texts] == ["The dog sleeps"]


# Words that a person sees: what has them, and the words.
COUNTED = {
    "list item with a value": ("docx", word(f'<w:sdt><w:sdtPr><w:dropDownList><w:listItem w:value="Small apple"/>'
                                            f"</w:dropDownList></w:sdtPr><w:sdtContent>{HELLO}</w:sdtContent></w:sdt>")),
    "list of an old form": ("docx", word(HELLO + '<w:ffData><w:ddList><w:listEntry w:val="Small apple"/></w:ddList></w:ffData>')),
    "list of a validation": ("xlsx", sheet("", after="<dataValidations><dataValidation><formula1>\"Small,Big\"</formula1>"
                                           "</dataValidation></dataValidations>")),
    "name of a sheet": ("xlsx", sheet("", workbook='<sheet name="Small apples" sheetId="1"/>')),
    "text by a formula": ("xlsx", sheet("", '<c r="A1" t="str"><f>A2&amp;" apples"</f><v>Small apples</v></c>')),
    "slicer": ("xlsx", sheet("", **{"xl/slicers/slicer1.xml": f'<slicers {S}><slicer caption="Small apples"/></slicers>'})),
    "numbering": ("docx", word(HELLO, **{"word/numbering.xml": f'<w:numbering {W}><w:lvlText w:val="Chapter %1"/></w:numbering>'})),
    "title": ("docx", word(HELLO, **{"docProps/core.xml": '<c xmlns:dc="D"><dc:title>Small apples</dc:title></c>'})),
    "help of a field": ("docx", word(HELLO + '<w:ffData><w:helpText w:val="Small apples"/></w:ffData>')),
    "noscript": ("html", b"<p>Hello</p><noscript>Small apples</noscript>"),
    "paragraph in noscript": ("html", b"<p>Hello</p><noscript><div><p>Small apples</p></div></noscript>"),
    "textarea": ("html", b"<p>Hello</p><textarea>Small apples</textarea>"),
    "video": ("html", b"<p>Hello</p><video src=a>Small apples</video>"),
    "canvas": ("html", b"<p>Hello</p><canvas>Small apples</canvas>"),
}  # fmt: skip
TRANSLATED = {
    "caption of a table": ("docx", word(f'<w:tbl><w:tblPr><w:tblCaption w:val="Small apples"/></w:tblPr>{HELLO}</w:tbl>')),
    "description": ("docx", word(f'<w:tbl><w:tblPr><w:tblDescription w:val="Small apples"/></w:tblPr>{HELLO}</w:tbl>')),
    "footer of slides": ("odp", zipped({"content.xml": f'<a {ODF}><presentation:footer-decl presentation:name="f">'
                                        "Small apples</presentation:footer-decl></a>"})),
    "header of a chart sheet": ("xlsx", sheet("", **{"xl/chartsheets/sheet1.xml":
                                f"<chartsheet {S}><headerFooter><oddHeader>&amp;CSmall apples</oddHeader></headerFooter></chartsheet>"})),
    "frame": ("html", b'<p>Hello</p><iframe title="Small apples" src="a"></iframe>'),
}  # fmt: skip


@pytest.mark.parametrize("case", COUNTED)
def test_words_that_are_shown_are_counted(case):
    format, raw = COUNTED[case]
    document = read_document(raw, format, ("en", "de"), "f")
    assert sum(document.stay.values()) == 1 and not any("apple" in text.text for text in document.texts)


@pytest.mark.parametrize("case", TRANSLATED)
def test_words_that_are_read_in_the_place_of_others_are_translated(case):
    format, raw = TRANSLATED[case]
    document = read_document(raw, format, ("en", "de"), "f")
    assert [text.text for text in document.texts if "apple" in text.text] == ["Small apples"]


def test_names_of_programs_are_not_counted():
    for element, attribute in (("rPr", "cap"), ("style", "styleId"), ("font", "name")):
        assert class_of(element, attribute) is None


# Extensions of Markdown: (source, words in the texts, markers that stay as they are, kinds that are counted).
MARKDOWN = {
    "Python-Markdown: attributes": ("A dog sleeps.\n{: .lead }\n", ["A dog sleeps."], ["{: .lead }"], 0),
    "Python-Markdown: old attributes": ("A dog {@id=top} sleeps.\n", ["A dog sleeps."], ["{@id=top}"], 0),
    "Python-Markdown: metadata": ("Title: My page\nAuthor: me too\n\nA dog.\n", ["A dog."], ["Title: My page"], 1),
    "PyMdown: caret": ("This is ^^inserted text^^.\n", ["This is inserted text."], ["^^"], 0),
    "PyMdown: mark": ("This is ==very good==.\n", ["This is very good."], ["=="], 0),
    "PyMdown: critic": ("Add {++new words++} here.\n", ["Add new words here."], ["{++", "++}"], 0),
    "PyMdown: keys": ("Press ++ctrl+alt++ now.\n", None, ["++ctrl+alt++"], 0),
    "PyMdown: bar": ('[=65% "65% is done"]\n', [], ['[=65% "65% is done"]'], 1),
    "PyMdown: sub": ("Drink H~2~O now.\n", None, ["H~2~O"], 0),
    "PyMdown: block": ("/// note | A title\nA dog.\n///\n", ["A title", "A dog."], ["/// note | ", "\n///"], 0),
    "PyMdown: HTML block": ("/// html | div.grid\nA dog.\n///\n", ["A dog."], ["/// html | div.grid"], 0),
    "PyMdown: math": ("The value \\(a_1+b\\) is.\n", None, ["\\(a_1+b\\)"], 0),
    "MyST: figure": ("```{figure} a.png\n:alt: A dog\n\nIt sleeps.\n```\n", ["It sleeps."], ["```{figure} a.png"], 1),
    "MyST: options": (":::{note} A title\n:class: dropdown\nA dog.\n:::\n", ["A title", "A dog."], [":class: dropdown"], 0),
    "MyST: role": ("See {ref}`the text <a>`.\n", None, ["{ref}`the text <a>`"], 1),
    "MyST: target": ("(my-target)=\n# A dog\n", ["A dog"], ["(my-target)="], 0),
    "MyST: break": ('+++ {"meta": "data"}\n\nA dog.\n', ["A dog."], ['+++ {"meta": "data"}'], 0),
    "MyST: span": ("A [nice dog]{.red} sleeps.\n", ["A nice dog sleeps."], ["[", "]{.red}"], 0),
    "Docusaurus: code": ('```js title="My file"\nlet a;\n```\n', [], ['title="My file"'], 1),
    "Docusaurus: comment": ("{/* a comment */}\n\nA dog.\n", ["A dog."], ["{/* a comment */}"], 0),
    "Hugo: metadata": ('+++\ntitle = "My page"\n+++\n\nA dog.\n', ["A dog."], ['title = "My page"'], 1),
    "markdown-it: ins": ("This is ++added text++.\n", ["This is added text."], ["++"], 0),
    "markdown-it: spoiler": ("This is >!a secret!<.\n", ["This is a secret."], [">!", "!<"], 0),
    "markdown-it: embed": ("@[youtube](abc)\n\nA dog.\n", ["A dog."], ["@[youtube](abc)"], 0),
    "markdown-it: include": ("!!!include(a.md)!!!\n\nA dog.\n", ["A dog."], ["!!!include(a.md)!!!"], 0),
    "markdown-it: note": ("A dog^[It sleeps.] barks.\n", None, ["^[It sleeps.]"], 1),
    "CommonMark: title of a link": ('[A dog](a.md "It sleeps")\n', ["A dog"], ['"It sleeps"'], 1),
    "Material: button": ("[A dog](a.md){ .md-button }\n", ["A dog"], ["{ .md-button }"], 0),
}  # fmt: skip


@pytest.mark.parametrize("case", MARKDOWN)
def test_the_text_of_each_extension_is_translated_or_counted_and_its_markers_stay(case):
    pytest.importorskip("markdown_it")
    source, texts, markers, counted = MARKDOWN[case]
    written, document = translated(source.encode(), "markdown", ("en", "de"))
    if texts is not None:
        assert [text.text for text in document.texts] == texts
    assert all(marker in written for marker in markers), written
    assert sum(document.stay.values()) == counted, document.stay
