"""Random documents of office programs: whole files, small but complete."""

import random
import zipfile
from io import BytesIO

_WORDS = ("a", "dog", "runs", "über", "the", "cat,", "(see", "there)", "x.", "what?", "half-way", "Ok")
_OTHERS = ("42", "3.5 kg", "{name}", "&amp;", "&lt;", "https://x.example/a?b=c", "🌷", "…", "&#8211;")
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_TYPES = "application/vnd.openxmlformats-officedocument"
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def phrase(draw):
    found = [draw.choice(_OTHERS if draw.random() < 0.15 else _WORDS) for _ in range(draw.randint(1, 6))]
    return " ".join(found)


def zipped(members, compress=zipfile.ZIP_DEFLATED):
    written = BytesIO()
    with zipfile.ZipFile(written, "w", compress) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return written.getvalue()


def word_run(text, formatting=""):
    space = ' xml:space="preserve"' if text != text.strip() else ""
    properties = f"<w:rPr>{formatting}</w:rPr>" if formatting else ""
    return f"<w:r>{properties}<w:t{space}>{text}</w:t></w:r>"


_FORMATS = ("", "<w:b/>", "<w:i/>", '<w:color w:val="FF0000"/>')
_OBJECTS = (
    "<w:r><w:br/></w:r>", "<w:r><w:tab/></w:r>",
    '<w:bookmarkStart w:id="1" w:name="B"/><w:bookmarkEnd w:id="1"/>',
    '<w:r><w:footnoteReference w:id="2"/></w:r>',
    '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>PAGE</w:instrText></w:r>'
    '<w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>12</w:t></w:r>'
    '<w:r><w:fldChar w:fldCharType="end"/></w:r>',
)  # fmt: skip


def word_paragraph(draw):
    """Runs of which no two of one formatting follow one another."""
    parts, last = [], None
    for _ in range(draw.randint(0, 5)):
        kind = draw.random()
        if kind < 0.7:
            last = draw.choice([one for one in _FORMATS if one != last])
            parts.append(word_run(draw.choice(("{}", "{} ", " {}")).format(phrase(draw)), last))
        elif kind < 0.85:
            parts.append(draw.choice(_OBJECTS))
            last = None
        else:
            link = f'<w:hyperlink w:anchor="B">{word_run(phrase(draw), "<w:u/>")}</w:hyperlink>'
            parts.append(link)
            last = None
    style = draw.choice(("", '<w:pPr><w:jc w:val="center"/></w:pPr>'))
    return f"<w:p>{style}{''.join(parts)}</w:p>"


def word_body(draw):
    parts = [word_paragraph(draw) for _ in range(draw.randint(1, 4))]
    if draw.random() < 0.3:
        cells = "".join(f"<w:tc>{word_paragraph(draw)}</w:tc>" for _ in range(2))
        parts.append(f"<w:tbl><w:tr>{cells}</w:tr></w:tbl><w:p/>")
    return "".join(parts)


def docx(draw):
    """(file, its members with text)"""
    head = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n<w:{}'
    head += f' xmlns:w="{_WORD}" xmlns:r="{_OFFICE}">'
    texts = {
        "word/document.xml": head.format("document") + f"<w:body>{word_body(draw)}<w:sectPr>"
        '<w:headerReference w:type="default" r:id="rId1"/></w:sectPr></w:body></w:document>',
        "word/header1.xml": head.format("hdr") + word_paragraph(draw) + "</w:hdr>",
        "word/footnotes.xml": head.format("footnotes")
        + f'<w:footnote w:id="2">{word_paragraph(draw)}</w:footnote></w:footnotes>',
    }
    main = f"{_TYPES}.wordprocessingml"
    others = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/word/document.xml" ContentType="{main}.document.main+xml"/>'
        f'<Override PartName="/word/header1.xml" ContentType="{main}.header+xml"/>'
        f'<Override PartName="/word/footnotes.xml" ContentType="{main}.footnotes+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="rId1" '
        f'Type="{_OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>',
        "word/_rels/document.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
        f'<Relationship Id="rId1" Type="{_OFFICE}/header" Target="header1.xml"/>'
        f'<Relationship Id="rId2" Type="{_OFFICE}/footnotes" Target="footnotes.xml"/></Relationships>',
    }  # fmt: skip
    return zipped(others | texts), texts


def pptx(draw):
    def paragraph():
        formats = draw.sample(("", ' b="1"', ' i="1"'), draw.randint(1, 3))
        runs = "".join(
            f'<a:r><a:rPr lang="EN"{f}/><a:t>{phrase(draw)}{draw.choice(("", " "))}</a:t></a:r>'
            for f in formats
        )
        return f"<a:p>{runs}{draw.choice(('', '<a:endParaRPr/>'))}</a:p>"

    texts = {
        f"ppt/slides/slide{n}.xml": '<p:sld xmlns:p="P" xmlns:a="A"><p:txBody>'
        + "".join(paragraph() for _ in range(draw.randint(1, 3)))
        + "</p:txBody></p:sld>"
        for n in (1, 2)
    }
    return zipped({"ppt/presentation.xml": "<p/>", **texts}), texts


def xlsx(draw):
    items = [
        draw.choice((
            f"<si><t>{phrase(draw)}</t></si>",
            f'<si><t xml:space="preserve"> {phrase(draw)}</t></si>',
            f'<si><r><t xml:space="preserve">{phrase(draw)} </t></r>'
            f"<r><rPr><b/></rPr><t>{phrase(draw)}</t></r></si>",
            "<si><t>42</t></si>", "<si/>",
        ))
        for _ in range(draw.randint(1, 5))
    ]  # fmt: skip
    cells = f'<c t="INLINESTR"><is><t>{phrase(draw)}</t></is></c><c><f>SUM(A1)</f><v>3</v></c>'
    sheet = f"<worksheet>{cells}</worksheet>"
    texts = {"xl/sharedStrings.xml": f"<sst>{''.join(items)}</sst>", "xl/worksheets/sheet1.xml": sheet}
    return zipped({"xl/workbook.xml": "<workbook/>", **texts}), texts


def odt(draw):
    def paragraph(depth=0):
        parts = []
        for _ in range(draw.randint(1, 4)):
            kind = draw.random()
            if kind < 0.5:
                parts.append(phrase(draw) + " ")
            elif kind < 0.7:
                parts.append(f'<text:span text:style-name="T1">{phrase(draw)}</text:span> ')
            elif kind < 0.8:
                parts.append(draw.choice(("<text:s/>", "<text:tab/>", "<text:line-break/>", "<!-- C -->")))
            elif kind < 0.9:
                parts.append(f'<text:a xlink:href="X">{phrase(draw)}</text:a>')
            elif depth == 0:
                body = f"<text:note-body>{paragraph(1)}</text:note-body>"
                parts.append(f"<text:note><text:note-citation>1</text:note-citation>{body}</text:note>")
        return f'<text:p text:style-name="S">{"".join(parts)}</text:p>'

    body = "".join(paragraph() for _ in range(draw.randint(1, 4)))
    content = f'<office:d xmlns:office="O" xmlns:text="T" xmlns:xlink="L">{body}</office:d>'
    texts = {"content.xml": content}
    members = {
        "mimetype": "application/vnd.oasis.opendocument.text",
        **texts,
        "META-INF/manifest.xml": "<m/>",
    }
    return zipped(members), texts


def epub(draw):
    def page():
        parts = [f"<p>{phrase(draw)} <b>{phrase(draw)}</b></p>" for _ in range(draw.randint(1, 3))]
        return (
            '<?xml version="1.0" encoding="utf-8"?>\n<html xmlns="X"><head><title>'
            f"{phrase(draw)}</title></head><body>{''.join(parts)}<br/></body></html>"
        )

    texts = {f"OEBPS/{n}.xhtml": page() for n in (1, 2)}
    members = {"mimetype": "application/epub+zip", "META-INF/container.xml": "<c/>", **texts}
    return zipped(members), texts


FILES = {"docx": docx, "pptx": pptx, "xlsx": xlsx, "odt": odt, "epub": epub}


def random_file(format, seed):
    return FILES[format](random.Random(seed))
