"""Telling random text, as keys and passwords are, from words, names and numbers."""

from __future__ import annotations

import re

_HEXADECIMAL = re.compile(r"(?<![0-9A-Za-z])[0-9a-fA-F-]{32,}(?![0-9A-Za-z])")
_RUN = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[A-Z]|\d+")
_SEGMENT = re.compile(r"[A-Za-z0-9]{20,}")
_LETTERS = re.compile(r"[a-z]+")

# The pairs that 97 of 100 pairs of letters are in words of programs: a letter, and who follows it.
# Of random letters 47 of 100 pairs are among them.
_FOLLOWERS = """
    abcdfgiklmnprstuvwxy baceilorsuy cacdehiklmorstuy dabdegilnorstuy eabcdefghiklmnopqrstuvwxy
    faefilorstuy gaeghilmnorsu haeiorstu iabcdefglmnoprstvxz jaeou kaeilos lacdeilopstuvy
    mabeilmopsu nabcdefgiklnopstuvy oabcdefgiklmnoprstuvwxy pacehiloprstuy qu racdefgiklmnoprstuvy
    sacdefhiklmnopstuwy tacdefhilmnoprstuwy uabcdefgilmnprst vaeio waehinors xceipt yeilmnpst zaei
"""
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_PAIRS = frozenset(
    (
        *(word[0] + letter for word in _FOLLOWERS.split() for letter in word[1:]),
        *(letter * 2 for letter in _ALPHABET),  # rows of one letter, and the alphabet
        *(_ALPHABET[i : i + 2] for i in range(25)),
    )
)


def looks_random(text: str) -> bool:
    """Whether 20 or more characters change as often as random ones do, or are no words.

    Words and numbers, in snake or camel case, run for four characters on average; base 64, 62 and
    36 for two, base 32 for three. Letters that follow each other in words are few of all pairs.
    Hexadecimal counts from 32 digits, a UUID too: it may be a key as well as a name.
    """
    if _HEXADECIMAL.fullmatch(text):
        digits = sum(c.isdigit() for c in text)
        return 0 < digits < len(text.replace("-", ""))
    if any(_no_words(found.group()) for found in _SEGMENT.finditer(text)):
        return True
    runs = _RUN.findall(text)
    length = sum(map(len, runs))
    numbers = sum(run.isdigit() for run in runs)
    if length < 18 or not numbers:
        return False
    if re.search(r"[/.]", text):  # a path has to be very random, in each of its parts
        return length < 2.2 * len(runs) and len({run.isupper() for run in runs}) == 2
    return length < (2.4 if re.search(r"[_-]", text) else 3.0) * len(runs) and numbers >= 2


def _no_words(segment: str) -> bool:
    """Whether letters follow each other as they do in no words; hexadecimal is not asked about."""
    pairs = common = 0
    for found in _LETTERS.finditer(segment.lower()):
        letters = found.group()
        pairs += len(letters) - 1
        common += sum(letters[i : i + 2] in _PAIRS for i in range(len(letters) - 1))
    if pairs < 10:
        return False
    return common < (0.8 if len(segment) >= 26 else 0.74) * pairs
