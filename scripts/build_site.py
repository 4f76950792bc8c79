"""Build the documentation as a site in build/site: `make docs`.

Notebooks become pages with their outputs, formulas become MathML, which browsers show without a library, and
zensical does the rest; it fails at a link to nothing. All happens in a copy of docs/.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

from transformer_mt.config import Config
from transformer_mt.config.error_sentences import keys

ROOT = Path(__file__).parent.parent
_FORMULA = re.compile(r"\$\$.+?\$\$|(?<![\w$])\$[^$\n]+\$(?![\w$])", re.DOTALL)
_CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build/site")
    out = parser.parse_args().out.resolve()
    work = out.with_name(f"{out.name}.pages")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(ROOT / "docs", work / "docs")
    shutil.copy(ROOT / "zensical.toml", work)
    formulas: list[str] = []
    for notebook in work.glob("docs/notebooks/*.ipynb"):
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        notebook.with_suffix(".md").write_text("\n".join(map(as_page, cells)), encoding="utf-8")
        notebook.unlink()
    for page in work.glob("docs/**/*.md"):
        text = re.sub(r"(\]\([^)\s]*notebooks/\w+)\.ipynb", r"\1.md", page.read_text(encoding="utf-8"))
        page.write_text(without_formulas(text, formulas), encoding="utf-8")
    command = [str(Path(sys.executable).parent / "zensical"), "build", "--strict"]
    if status := subprocess.run(command, cwd=work).returncode:
        return status
    for path in (work / "build/site").rglob("*"):
        if path.suffix in (".html", ".json", ".css", ".js"):
            path.write_text(finished(path.read_text(encoding="utf-8"), path, formulas), encoding="utf-8")
    add_keys(work / "build/site/search.json")
    shutil.rmtree(out, ignore_errors=True)
    shutil.move(work / "build/site", out)
    shutil.rmtree(work)
    return 0


def add_keys(index: Path) -> None:
    """Give each key of the YAML an entry of its own in the index of the search: people look for keys."""
    content = json.loads(index.read_text(encoding="utf-8"))
    for key, meaning, _ in keys(Config):
        section, dot, name = key.rpartition(".")
        place = f"reference/config/#{section.replace('.', '') if dot else 'top-level'}"
        entry = {"location": place, "level": 2, "title": key, "text": f"{name} {meaning}"}
        content["items"].append(entry | {"path": ["Reference", "Keys of the YAML"], "tags": []})
    index.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def as_page(cell: dict[str, Any]) -> str:
    """The Markdown of a notebook's cell with its outputs."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return f"{source}\n"
    parts = [f"```python\n{source}\n```\n"]
    for output in cell["outputs"]:
        data = output.get("data", {})
        if picture := data.get("image/png"):
            parts.append(f"![](data:image/png;base64,{''.join(picture).strip()})\n")
        elif text := "".join(output.get("text") or data.get("text/plain") or ""):
            parts.append(f"```text\n{text.rstrip()}\n```\n")
    return "\n".join(parts)


def without_formulas(text: str, formulas: list[str]) -> str:
    """The page with a mark for each formula, whose LaTeX is added to `formulas`. Only pages with a formula on
    its own, `$$...$$`, have any: elsewhere a dollar is a shell's.
    """

    def mark(match: re.Match[str]) -> str:
        formulas.append(match[0])
        return f"FORMULA{len(formulas) - 1}END"

    if not re.search(r"^\$\$", text, re.MULTILINE):
        return text
    parts = _CODE.split(text)
    return "".join(part if part.startswith("```") else _FORMULA.sub(mark, part) for part in parts)


def finished(text: str, path: Path, formulas: list[str]) -> str:
    """A file of the site with its formulas, and with a navigation that laptops show, too: the theme hides it
    below 1,220 pixels, which many windows have less of.
    """

    def formula(match: re.Match[str]) -> str:
        written = formulas[int(match[1])]
        if path.suffix != ".html":  # the index of the search
            return json.dumps(written.strip("$"))[1:-1]
        if not written.startswith("$$"):
            return convert(written.strip("$"))
        return f'<span class="formula">{convert(written.strip("$"), display="block")}</span>'

    if path.suffix == ".html":  # zensical moves the addresses of images, but not those of objects
        text = re.sub(r'(<object[^>]* data=")(\.\./)', r"\1../\2", text)
    text = re.sub(r"FORMULA(\d+)END", formula, text)
    return text.replace("76.25em", "70em").replace("76.234375em", "69.984375em")


if __name__ == "__main__":
    raise SystemExit(main())
