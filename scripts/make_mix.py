"""Writes text as BERT's scripts read it: a sentence a line, a blank line between documents; make_mix.sh says what for.

usage: make_mix.py files|sections FOLDER EVERY FILE

Reads the files of FOLDER (plain or .gz) in the order of their names, every EVERYth one, and writes FILE. A document is
a file, or a section of reStructuredText with its heading.
"""

import gzip
import re
import sys
from pathlib import Path

ADORNMENT = re.compile(r"([=\-~^\"'`*+#:.<>_])\1{2,}\s*")  # the row of one character under (and over) a heading
LETTER = re.compile(r"[^\W\d_]")
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')]*\s+(?=[\"'(]*[A-Z])")


def split_sections(text: str) -> list[str]:
    """Cuts before each heading: a line with a row under it that is no shorter. What precedes the first is a section."""
    lines = text.splitlines()
    starts = [0]
    for row in range(1, len(lines)):
        title = lines[row - 1].rstrip()
        if not ADORNMENT.fullmatch(lines[row]) or not title or ADORNMENT.fullmatch(title):
            continue
        if len(lines[row].rstrip()) < len(title):
            continue
        start = row - 1
        if start > 0 and ADORNMENT.fullmatch(lines[start - 1]):
            start -= 1
        if start > starts[-1]:
            starts.append(start)
    return ["\n".join(lines[begin:end]) for begin, end in zip(starts, starts[1:] + [len(lines)])]


def split_sentences(document: str) -> list[str]:
    """A sentence ends after . ! or ? before a capital, and with its paragraph. Lines without a letter (rows under
    headings, borders of tables) are left out."""
    sentences = []
    for paragraph in re.split(r"\n\s*\n", document):
        text = " ".join(line.strip() for line in paragraph.splitlines() if LETTER.search(line))
        sentences += [" ".join(sentence.split()) for sentence in SENTENCE_END.split(text) if LETTER.search(sentence)]
    return sentences


def read(path: Path) -> str:
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8", errors="replace")


def documents_of(folder: Path, cut: str, every: int) -> list[list[str]]:
    paths = sorted(path for path in folder.iterdir() if path.is_file())[::every]
    texts = [text for path in paths for text in (split_sections(read(path)) if cut == "sections" else [read(path)])]
    return [sentences for sentences in map(split_sentences, texts) if sentences]


def main(arguments: list[str]) -> int:
    if len(arguments) != 4 or arguments[0] not in ("files", "sections") or not arguments[2].isdecimal():
        print(__doc__, file=sys.stderr)
        return 2
    cut, folder, every, target = arguments[0], Path(arguments[1]), int(arguments[2]), Path(arguments[3])
    documents = documents_of(folder, cut, every)
    target.write_text("\n\n".join("\n".join(sentences) for sentences in documents) + "\n", encoding="utf-8")
    print(f"make_mix: {target.name}: {len(documents)} documents, {target.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
