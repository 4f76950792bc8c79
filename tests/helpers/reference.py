"""The generated page of keys, read as tables."""

import re


def reference_rows(page):
    """(key, values, default, meaning, the sentence of its section) of each row of a page's tables."""
    sentence = ""
    page = page.partition("## Reading the tables")[2].partition("## Corpora")[0]
    for line in page.split("\n"):
        if line.startswith("| `"):
            key, values, default, meaning = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
            yield key.split("`")[1], re.findall("`([^`]+)`", values), default.strip("`"), meaning, sentence
        elif line.startswith("## "):
            sentence = ""
        elif line[:1].isalpha():
            sentence += line
