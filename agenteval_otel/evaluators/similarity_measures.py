"""The measures of `LexicalSimilarity` that need no rapidfuzz: sets of n-grams, and Jaro-Winkler.

Pure functions of two texts, symmetric, 0 to 1. All take time linear in the texts, but for a sort.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from typing import Any

__all__ = ["arrays", "jaro_winkler", "sorensen_dice", "utf16_units"]

_ASCII_BITS, _ANY_BITS, _WORD_BITS = 7, 21, 63
_PREFIX, _PREFIX_WEIGHT, _PREFIX_FROM = 4, 0.1, 0.7


def sorensen_dice(first: str, second: str, size: int) -> float:
    """2 x common / (distinct in the one + distinct in the other), on the sets of the texts' n-grams of that size.

    Of a text shorter than an n-gram the whole text is the only one. Two empty texts are alike: 1.0.
    """
    if not first or not second:
        return float(first == second)
    bits = _ASCII_BITS if first.isascii() and second.isascii() else _ANY_BITS
    if size > 1 and size * bits <= _WORD_BITS and min(len(first), len(second)) >= size:
        return _dice_of_numbers(first, second, size, bits)
    grams, others = _slices(first, size), _slices(second, size)
    return 2 * len(grams & others) / (len(grams) + len(others))


def _slices(text: str, size: int) -> set[str]:
    return set(text) if size == 1 else {text[at : at + size] for at in range(max(1, len(text) - size + 1))}


def _dice_of_numbers(first: str, second: str, size: int, bits: int) -> float:
    """The same with a whole number for each n-gram, worked out for all of them at once: a fifth of the time or less."""
    np = arrays()
    numbers = _numbers(first + second, size, bits)
    grams, others = numbers[: len(first) - size + 1], numbers[len(first) :]
    if size * bits <= 2 * _ASCII_BITS:
        seen = np.zeros((2, 1 << 2 * _ASCII_BITS), np.bool_)
        seen[0][grams] = seen[1][others] = True
        return 2 * int(np.count_nonzero(seen[0] & seen[1])) / int(np.count_nonzero(seen))
    both = np.sort(np.concatenate((_distinct(grams), _distinct(others))))
    return 2 * int(np.count_nonzero(both[1:] == both[:-1])) / len(both)


def _numbers(text: str, size: int, bits: int) -> Any:
    """The n-grams of a text in its order, each as its characters' numbers side by side, int64."""
    np = arrays()
    if bits == _ASCII_BITS:
        chars = np.frombuffer(text.encode("ascii"), np.uint8).astype(np.int64)
    else:
        chars = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.int64)
    count = len(text) - size + 1
    found = chars[:count]
    for skipped in range(1, size):
        found = found << bits | chars[skipped : skipped + count]
    return found


def _distinct(numbers: Any) -> Any:
    np = arrays()
    found = np.sort(numbers)
    return found[np.concatenate(([True], found[1:] != found[:-1]))]


@lru_cache(maxsize=1)
def arrays() -> Any:
    """The module `numpy`: a tenth of a second when nobody has loaded it."""
    import numpy

    return numpy


def jaro_winkler(first: str, second: str) -> float:
    """Jaro's similarity, with Winkler's bonus of 0.1 for each of up to four common leading characters.

    Jaro is (m/|a| + m/|b| + (m - t)/m) / 3, where m characters have an equal one at most max(|a|, |b|) // 2 - 1 places
    away in the other text, and t is half the number of those that stand in another order. The bonus, the share of what
    is missing to 1, is given above 0.7. (M. A. Jaro 1989, W. E. Winkler 1990; t is not rounded down, as some do.) A
    text without characters is like no other, but two of them are alike.
    """
    if first == second:
        return 1.0
    matched, other = _matched(first, second)
    if not matched:
        return 0.0
    found = len(matched)
    out_of_order = sum(map(str.__ne__, map(first.__getitem__, matched), map(second.__getitem__, sorted(other))))
    jaro = (found / len(first) + found / len(second) + (found - out_of_order / 2) / found) / 3
    if jaro <= _PREFIX_FROM:
        return jaro
    common = 0
    for one, same in zip(first[:_PREFIX], second[:_PREFIX], strict=False):
        if one != same:
            break
        common += 1
    return jaro + common * _PREFIX_WEIGHT * (1 - jaro)


def _matched(first: str, second: str) -> tuple[list[int], list[int]]:
    """Where the characters stand that are matched, each with the first one in reach that is left, in either text."""
    reach = max(len(first), len(second)) // 2 - 1
    left: dict[str, list[int]] = {}
    for at in range(len(second) - 1, -1, -1):
        left.setdefault(second[at], []).append(at)
    matched, other = [], []
    for at, char in enumerate(first):
        places = left.get(char)
        # What is out of reach on the left is so for all that follow.
        while places and places[-1] < at - reach:
            places.pop()
        if places and places[-1] <= at + reach:
            matched.append(at)
            other.append(places.pop())
    return matched, other


def utf16_units(first: str, second: str) -> tuple[str, str]:
    """The texts with each character beyond U+FFFF as two, the halves of its UTF-16 form."""
    if first.isascii() and second.isascii():
        return first, second
    return _units(first), _units(second)


def _units(text: str) -> str:
    encoded = text.encode("utf-16-le", "surrogatepass")
    if len(encoded) == 2 * len(text):
        return text
    return "".join(map(chr, array("H", encoded)))
