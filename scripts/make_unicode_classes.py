#!/usr/bin/env python3
"""Derives what BERT's text cleaning does to every Unicode character, by asking Hugging Face `tokenizers`.

usage: make_unicode_classes.py [--write]     --write replaces data/unicode_classes.h

No published table gives these answers: the Rust crates behind `tokenizers` mix categories of an old Unicode version
with decompositions and lower-case letters of a newer one. So BertNormalizer (clean_text, handle_chinese_chars, both
cases) and BertPreTokenizer are asked about each code point between two letters, and, as canonical ordering is the
only effect of one character on another, about each between two marks that change places. At the end the tables alone,
read by a model of data/bert_normalizer.cpp, have to give the library's answer for every code point in all these places.

Needs tokenizers, which the environment of scripts/bootstrap.sh has. Takes about half a minute.
"""
import pathlib
import sys

import tokenizers
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

HEADER = pathlib.Path(__file__).resolve().parent.parent / "data/unicode_classes.h"
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
LETTER, SPACE, PUNCTUATION, IDEOGRAPH, DROPPED, MARK, BREAKING_MARK, NON_STARTER = range(8)
NAMES = ["kLetter", "kSpace", "kPunctuation", "kIdeograph", "kDropped", "kMark", "kBreakingMark", "kNonStarter"]
# Three marks that old tables do not know as such, so that they survive, with combining classes 226, 216 and 7.
HIGH, LOW, LOWEST = "\U0001D16D", "\U0001D165", "\U00011446"

cased = BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=False).normalize_str
uncased = BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True).normalize_str
words = BertPreTokenizer().pre_tokenize_str


def base_class(c):
    """The class of a code point where nothing is lower-cased, decomposed or stripped."""
    character = chr(c)
    answer = cased("a" + character + "b")
    if answer == "ab":
        return DROPPED
    if answer == "a b":
        return SPACE
    if answer == f"a {character} b":
        return IDEOGRAPH
    assert answer == f"a{character}b", hex(c)
    return {1: LETTER, 3: PUNCTUATION}[len(words(answer))]


def hangul(c):
    """The jamo of a syllable (The Unicode Standard, 3.12); data/bert_normalizer.cpp computes them too."""
    index = c - 0xAC00
    tail = [0x11A7 + index % 28] if index % 28 else []
    return "".join(map(chr, [0x1100 + index // 588, 0x1161 + index % 588 // 28] + tail))


def probe():
    """Classes of all code points, what replaces those that change when uncased, ranks of those that move."""
    classes = {c: base_class(c) for c in CODE_POINTS}
    replacements = {}
    for c in CODE_POINTS:
        if classes[c] in (SPACE, DROPPED):
            assert uncased(f"a{chr(c)}b") == cased(f"a{chr(c)}b"), hex(c)
            continue
        answer = uncased(f"a{chr(c)}b")[1:-1]
        if classes[c] == IDEOGRAPH:
            assert answer[0] == answer[-1] == " ", hex(c)
            answer = answer[1:-1]
        if answer == "":
            assert classes[c] == LETTER, hex(c)
            classes[c] = MARK if uncased(f"a{HIGH}{chr(c)}{LOW}b") == f"a{LOW}{HIGH}b" else BREAKING_MARK
        elif 0xAC00 <= c < 0xD7A4:
            assert answer == hangul(c), hex(c)
        elif answer != chr(c):
            replacements[c] = answer
    themselves = [c for c in CODE_POINTS if classes[c] == LETTER and c not in replacements and not 0xAC00 <= c < 0xD7A4]
    pairs = {c: (f"a{HIGH}{chr(c)}b", f"a{chr(c)}{LOW}b") for c in themselves}
    moving = [c for c in themselves if any(uncased(pair) != pair for pair in pairs[c])]
    # A mark's rank is how many others stand before it; equal combining classes give equal ranks.
    before = {c: sum(uncased(f"a{chr(c)}{chr(d)}b") != f"a{chr(c)}{chr(d)}b" for d in moving) for c in moving}
    order = sorted(set(before.values()))
    for c in moving:
        classes[c] = NON_STARTER
    return classes, replacements, {c: 1 + order.index(before[c]) for c in moving}


def uncased_class(c, classes, replacements):
    """The class where text is lower-cased and stripped: that of what replaces the character."""
    if c not in replacements or classes[c] == IDEOGRAPH:
        return classes[c]
    kinds = {classes[ord(o)] for o in replacements[c]}
    assert kinds == {PUNCTUATION} or kinds <= {LETTER, NON_STARTER} and classes[c] != PUNCTUATION, hex(c)
    return PUNCTUATION if kinds == {PUNCTUATION} else LETTER


def model(text, classes, replacements, ranks):
    """What uncased(text) has to be according to the tables."""
    out, run = [], 0  # run: the first character of the marks that may still be passed
    for character in text:
        c = ord(character)
        kind = uncased_class(c, classes, replacements)
        if kind in (DROPPED, MARK):
            continue
        if kind == BREAKING_MARK:
            run = len(out)
            continue
        answer = {SPACE: " ", IDEOGRAPH: f" {replacements.get(c, character)} "}.get(kind)
        if answer is None:
            answer = hangul(c) if 0xAC00 <= c < 0xD7A4 else replacements.get(c, character)
        for o in answer:
            rank, place = ranks.get(ord(o), 0), len(out)
            while rank and place > run and ranks[ord(out[place - 1])] > rank:
                place -= 1
            out.insert(place, o)
            if not rank:
                run = len(out)
    return "".join(out)


def check(classes, replacements, ranks):
    tables = classes, replacements, ranks
    for c in CODE_POINTS:
        for text in (f"a{chr(c)}b", f"a{HIGH}{chr(c)}{LOWEST}b", f"a{chr(c)}{LOW}\u0301b", f"{chr(c)}{chr(c)}"):
            assert uncased(text) == model(text, *tables), ascii(text)
        normal = uncased(chr(c))
        if normal not in ("", " "):
            kind = uncased_class(c, classes, replacements)
            pieces = [word for word, _ in words(f"a{normal}b")]
            expected = ["a", normal.strip(), "b"] if kind in (PUNCTUATION, IDEOGRAPH) else [f"a{normal}b"]
            assert pieces == expected, hex(c)


def class_ranges(classes):
    previous = None
    for c in range(0x110000):
        kind = classes.get(c, DROPPED)  # surrogates cannot come out of valid UTF-8
        if kind != previous:
            yield f"{{{c:#x}, {NAMES[kind]}}}"
            previous = kind


def single_runs(replacements):
    """[first, last, step, replacement of the first]: neighbours one or two apart that move by the same distance."""
    pairs = [(c, ord(to)) for c, to in sorted(replacements.items()) if len(to) == 1]
    runs = []
    for c, to in pairs:
        run = runs[-1] if runs else None
        step = c - run[1] if run else 0
        if run and step in (1, 2) and run[2] in (0, step) and to - c == run[3] - run[0]:
            run[1], run[2] = c, step
        else:
            runs.append([c, c, 0, to])
    return [f"{{{first:#x}, {last:#x}, {max(step, 1)}, {to:#x}}}" for first, last, step, to in runs]


def array(declaration, reason, items):
    lines, line = [f"// {reason}", f"inline constexpr {declaration}[] = {{"], "   "
    for item in items:
        if len(line) + len(item) + 2 > 120:
            lines.append(line)
            line = "   "
        line += f" {item},"
    return lines + [line + "};", ""]


def header(classes, replacements, ranks):
    several = [(c, to) for c, to in sorted(replacements.items()) if len(to) > 1]
    assert max(len(to) for _, to in several) <= 3
    lines = f"""// What BERT's text cleaning does to each Unicode character.
//
// Generated by scripts/make_unicode_classes.py --write; do not edit. Made from the answers of Hugging Face tokenizers
// {tokenizers.__version__} about all code points. Where text is lower-cased a character is first replaced, then has the
// class of its replacement (an ideograph stays one). Hangul syllables are replaced by their jamo, which are computed and not listed.
//
// Not for: applying the tables (bert_normalizer.h).
#pragma once

#include <cstdint>

namespace tempo::data::unicode {{

enum CharacterClass : std::uint8_t {{
  kLetter,        ///< part of a word
  kSpace,         ///< between words
  kPunctuation,   ///< a word of its own
  kIdeograph,     ///< a word of its own
  kDropped,       ///< vanishes; the parts join
  kMark,          ///< vanishes where text is lower-cased, else a letter
  kBreakingMark,  ///< likewise; marks do not change places across it
  kNonStarter,    ///< a letter; where text is lower-cased marks next to each other are sorted by rank
}};

// clang-format off

struct ClassRange {{ char32_t first; CharacterClass kind; }};
struct ReplacementRun {{ char32_t first, last, step, to; }};
struct Replacement {{ char32_t from; char32_t to[3]; }};
struct MarkRank {{ char32_t mark; std::uint8_t rank; }};
""".splitlines() + [""]
    lines += array("ClassRange kClassRanges", "Each class holds up to the next entry.", class_ranges(classes))
    lines += array("ReplacementRun kReplacementRuns", "first, first + step ... last become to, to + step ...",
                   single_runs(replacements))
    lines += array("Replacement kReplacements", "Replaced by two or three characters.",
                   [f"{{{c:#x}, {{{', '.join(f'{ord(o):#x}' for o in to)}}}}}" for c, to in several])
    lines += array("MarkRank kMarkRanks", "The characters of class kNonStarter; equal ranks keep their order.",
                   [f"{{{c:#x}, {rank}}}" for c, rank in sorted(ranks.items())])
    return "\n".join(lines + ["// clang-format on", "", "}  // namespace tempo::data::unicode"]) + "\n"


def main():
    tables = probe()
    check(*tables)
    text = header(*tables)
    print(f"{len(tables[1])} replacements, {len(tables[2])} marks with a rank, {len(text)} bytes")
    if "--write" in sys.argv[1:]:
        HEADER.write_text(text)
        print(f"wrote {HEADER}")


if __name__ == "__main__":
    main()
