"""The languages that file names, columns and documents name.

    language_of("Italian")  language_of("it_IT")  language_of("inglese")     # it, it-IT, en
    in_file_name("news.en-it")                                               # ("en", "it")

Names and codes are those of Unicode's CLDR. A name is known in the languages of NAMED_IN.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

from dragoman.corpora.formats.units import languages_of
from dragoman.errors import DataError, OtherLanguagesError
from dragoman.settings import DataConfig

NAMED_IN = (
    "en", "de", "fr", "es", "it", "pt", "nl", "pl", "ru", "tr", "zh", "ja",
    "cs", "sv", "uk", "el", "hu", "ro", "fi", "da", "ar", "hi", "ko",
)  # fmt: skip
# Words beside the language in the names of columns, as in "English sentence" or "text_en".
BESIDE = frozenset(
    [
        "text", "texts", "sentence", "sentences", "word", "words", "phrase", "phrases", "source", "src", "target",
        "tgt", "trg", "ref", "reference", "translation", "lang", "language", "original", "testo", "frase",
        "texto", "satz",
    ]
)  # fmt: skip
ROLES = (("source", "src"), ("target", "tgt", "trg", "ref", "reference"))  # what sides are called without a language
REGIONAL = frozenset(["pt-br", "zh-tw", "fr-ca"])  # one language, though its region is also the code of a language
_CODE = re.compile(r"([a-z]{2,3}|[A-Z]{2,3})((?:[-_][A-Za-z]{4})?(?:[-_](?:[A-Za-z]{2}|[0-9]{3}))?)(?:\.utf-?8)?")


_NUMBERED = re.compile(r"(.+?)[-_. (]*(?:ref(?:erence)?)?[-_. ]*[0-9]{1,2}\)?", re.IGNORECASE)


@cache
def _codes() -> dict[str, str]:
    """Two letters of a language, from two or three: {"it": "it", "ita": "it", "ger": "de"}."""
    from babel import Locale
    from babel.core import get_global

    codes = {str(code): str(code) for code in Locale.parse("en").languages if len(str(code)) == 2}
    aliases = get_global("language_aliases").items()
    return codes | {str(code): str(new) for code, new in aliases if new in codes and len(str(code)) < 4}


@cache
def _names() -> dict[str, str]:
    """Codes of languages by their names in lower case."""
    from babel import Locale

    codes: dict[str, str] = {}
    for locale in NAMED_IN:
        for code, name in Locale.parse(locale).languages.items():
            codes.setdefault(str(name).casefold(), str(code).replace("_", "-"))
    return codes


@cache
def language_of(text: str) -> str | None:
    """Return the language that a short text names, as a code such as it or pt-BR; None if it names none.

    A code is written in one case, so that "No" or "He" is a word.
    """
    text = text.strip()
    if not 2 <= len(text) <= 40:
        return None
    matched = _CODE.fullmatch(text)
    if matched and (code := _codes().get(matched[1].lower())):
        return code + matched[2].replace("_", "-")
    if code := _names().get(text.casefold()):
        return code
    words = re.findall(r"[^\W_]+", text)
    left = [word for word in words if word.casefold() not in BESIDE]
    return language_of(left[0]) if len(left) == 1 < len(words) else None


def language_name(language: str) -> str:
    """Return the English name of a language: Italian for it; the code itself if it has none."""
    from babel import Locale

    names = Locale.parse("en").languages
    whole = language.replace("-", "_")
    return str(names.get(whole, names.get(whole.partition("_")[0].casefold(), language)))


def is_same(language: str, other: str) -> bool:
    """Whether two codes name one language: it and it-IT do, pt-BR and pt-PT do not."""
    one, two = (each.replace("_", "-").casefold().split("-") for each in (language, other))
    shorter = min(len(one), len(two))
    return one[:shorter] == two[:shorter]


def within_one(data: DataConfig) -> bool:
    """Whether source and target are one language, as for corrections, simplification and dialects: copies are fine."""
    one, other = ((each or "").replace("_", "-").partition("-")[0] for each in (data.source_lang, data.target_lang))
    return one.casefold() == other.casefold()


def is_named(text: str, wanted: str) -> bool:
    """Whether a part of a file name names the language that is wanted: en, eng, en_US and English all name en."""
    code = language_of(text)
    return text == wanted or (code is not None and is_same(code, language_of(wanted) or wanted))


def without_number(name: str) -> str:
    """Return the name of a side without the number of a reference: it for it2, it.ref1 and it (2); ref for ref0."""
    matched = _NUMBERED.fullmatch(name)
    return matched[1] if matched and not language_of(name) else name


def find(languages: Sequence[str | None], wanted: str) -> int | None:
    """Return the index of the language that is wanted: the same code if there is one. Raises DataError if several fit.

    None among the languages stands for one that is not known.
    """
    if wanted in languages:
        return languages.index(wanted)
    code = language_of(wanted) or wanted
    fitting = [i for i, language in enumerate(languages) if language and is_same(language, code)]
    if len({languages[i] for i in fitting}) > 1:
        several = " and ".join(str(languages[i]) for i in fitting)
        raise DataError(
            f"{several} are both {wanted}: name one of them as the language, or, in a table, set data.columns."
        )
    return fitting[0] if fitting else None


def find_all(languages: Sequence[str | None], data: DataConfig) -> list[int] | None:
    """Return the indices of the languages of a pair, or of the one of plain text; None unless all are there."""
    indices = [find(languages, wanted) for wanted in languages_of(data)]
    # From a language into itself:
    if len(indices) == 2 and indices[0] == indices[1] and (first := indices[0]) is not None:
        indices[1] = next((i for i, each in enumerate(languages) if i > first and each == languages[first]), None)
    return [each for each in indices if each is not None] if None not in indices else None


def in_file_name(stem: str) -> tuple[str, str] | None:
    """Return the two languages that a file name ends in or holds, as in news.en-it, eng_ita or english-italian."""
    for part in re.split(r"[._\s]", stem):
        if part.casefold() not in REGIONAL and (pair := _both(*part.split("-"))):
            return pair
    tokens = re.split(r"[-._\s]+", stem)
    for one, other in pairwise(tokens):
        if min(len(one), len(other)) > 2 and (pair := _both(one, other)):
            return pair
    return None


def _both(*texts: str) -> tuple[str, str] | None:
    if len(texts) != 2:
        return None
    one, other = map(language_of, texts)
    return (one, other) if one and other and not is_same(one, other) else None


def serves_others(languages: Sequence[str | None], data: DataConfig) -> bool:
    """Whether text in these languages serves another of data.directions."""
    return any(None not in (find(languages, one), find(languages, two)) for one, two in data.several)


def other_languages(what: str, languages: Sequence[str], data: DataConfig, ordered: bool = True) -> OtherLanguagesError:
    """Return the error for data in other languages, with the settings that would use them.

    Args:
        what: the start of the message, as "pairs.csv is in es and en (its first row)"
        ordered: the first language is the one to translate from, unless the settings say otherwise
    """
    wanted = languages_of(data)
    if len(wanted) == 1:
        add = _option(target=languages[0])
        return OtherLanguagesError(f"{what}, but data.target_lang is {wanted[0]}: add {add}", languages)
    said = f"{what}, but data.source_lang and data.target_lang are {wanted[0]} and {wanted[1]}"
    if len(languages) < 2:
        return OtherLanguagesError(f"{said}: name a file with two languages.", languages)
    one, two, *more = languages
    if not ordered and (is_same(one, wanted[1]) or is_same(two, wanted[0])):
        one, two = two, one
    return OtherLanguagesError(f"{said}: add {_option(one, two)}{', or two of the others' if more else ''}", languages)


def _option(source: str = "", target: str = "") -> str:
    return " ".join([f"--data.source_lang {source}"] * bool(source) + [f"--data.target_lang {target}"])
