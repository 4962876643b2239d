"""Make the bundled English-Italian corpus: `train.tsv`, `validation.tsv` and `test.tsv`, beside this file.

    python data/phrasebook/make_phrasebook.py            rewrite the three files, and the figures in README.md
    python data/phrasebook/make_phrasebook.py --check    exit with 1 unless the files are up to date

The corpus is synthetic: a synchronous grammar writes both sides of a sentence at once. A pattern (`patterns/`) is a
pair of templates over shared slots. A slot draws a noun phrase, a subject, an action or a fixed expression from the
words (`words/`), and renders itself in either language, in the form that the template names. Read this file from top to
bottom: the tables, Italian morphology, English morphology, the words, the slots, the patterns, the splits.

Every choice is a hash of (seed, pattern, attempt, count), so the files are identical on every machine and Python.

Limits: the morphology covers this lexicon, not Italian. A new word may need an entry in a table of exceptions.
"""

from __future__ import annotations

import argparse
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar

T = TypeVar("T")

FOLDER = Path(__file__).resolve().parent
SEED = "phrasebook-1"
SIZES = {"train": 44_000, "validation": 500, "test": 500}
PER_WEIGHT = 4.0  # sentences drawn for each unit of weight of a pattern
EACH_PATTERN = 14  # for a pattern without a weight
EACH_PHRASE = 6  # for a set phrase: alone, and in the company of other words
HELD_OUT = 0.12  # share of all combinations that are kept out of train
HELD_OUT_SENTENCES = 0.09  # share of validation and test drawn from sentences with such a combination
COMMON = 6  # the pool takes more sentences with a word form until this many have it
RARE = 4  # sentences with a word form that occurs in fewer sentences than this are removed

# ----------------------------------------------------------------------------------------------------------------------
# The tables of words/. In a name, "_" stands for a space.


def read_sections(text: str) -> dict[str, list[str]]:
    """Split a text into its sections and their entries, without comments, and with continued lines joined."""
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"\n +", " ", text)
    sections: dict[str, list[str]] = {}
    section = re.compile(r"^\[(\w+)\]\n((?:(?!\[).+\n)*)", re.MULTILINE)
    for name, lines in section.findall(text):
        sections.setdefault(name, []).extend(lines.splitlines())
    if unread := section.sub("", text).split():
        raise ValueError(f"{unread[0]!r} is in no section: an empty line ends a section")
    return sections


def read_table(lines: Sequence[str]) -> dict[str, str]:
    """Read entries such as "name: value"; values of the same name are joined by ";"."""
    table: dict[str, str] = {}
    for name, _, value in (line.partition(": ") for line in lines):
        table[name] = f"{table[name]}; {value}" if name in table else value
    return table


def read_folder(name: str) -> str:
    """Return the text of all files of a folder, in the order of their names."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((FOLDER / name).glob("*.txt")))


LEXICON = read_sections(read_folder("words"))
GROUPS = {name: kinds.replace(";", "").split() for name, kinds in read_table(LEXICON["groups"]).items()}
PHRASES = read_table(LEXICON["phrases"])
CLASSES = {name: set(verbs.split()) for name, verbs in read_table(LEXICON["classes"]).items()}

# ----------------------------------------------------------------------------------------------------------------------
# Italian morphology. gender is "m" or "f", number is "s" or "p", person is 1, 2 or 3.

VOWEL = re.compile(r"[aeiouàèéìòù]", re.IGNORECASE)
IMPURE = re.compile(r"s[^aeiouàèéìòù]|z|gn|ps|pn|x|y", re.IGNORECASE)  # sounds before which "il" becomes "lo"
ARTICLE = re.compile(r"^(?:(il|lo|la|i|gli|le) |(l'))")


def before(word: str, gender: str, number: str, forms: str) -> str:
    """Choose one of eight forms, in the order lo, il, l', gli, i, la, l', le, by the sound that follows."""
    lo, il, elided, gli, i, la, la_elided, le = forms.split()
    if gender == "f":
        return le if number == "p" else la_elided if VOWEL.match(word) else la
    if number == "p":
        return gli if VOWEL.match(word) or IMPURE.match(word) else i
    return elided if VOWEL.match(word) else lo if IMPURE.match(word) else il


def attach(first: str, second: str) -> str:
    """Join two words; an elided one ends in an apostrophe and takes no space."""
    return first + second if first.endswith("'") else f"{first} {second}".strip()


def article(word: str, gender: str, number: str = "s") -> str:
    """Return the definite article before this word: il, lo, l', la, i, gli or le."""
    return before(word, gender, number, "lo il l' gli i la l' le")


def indefinite(word: str, gender: str) -> str:
    """Return the indefinite article before this word: un, uno, una or un'."""
    return before(word, gender, "s", "uno un un - - una un' -")


def demonstrative(word: str, gender: str, number: str, far: bool) -> str:
    """Return the form of questo, or of quello where far, before this word."""
    near = "questo questo quest' questi questi questa quest' queste"
    return before(word, gender, number, "quello quel quell' quegli quei quella quell' quelle" if far else near)


PARTITIVE = re.compile(r"^(?:(?:dello?|della|dei|degli|delle) |dell')(?=\w)")


def contract(preposition: str, phrase: str) -> str:
    """Put a preposition before a phrase, contracted with its article: contract("di", "la casa") is "della casa"."""
    if preposition == "di":
        phrase = PARTITIVE.sub("", phrase)  # bisogno di francobolli, not "di dei francobolli"
    stem = {"a": "a", "di": "de", "da": "da", "in": "ne", "su": "su"}.get(preposition)
    found = ARTICLE.match(phrase)
    if stem and found:
        tail = {"il": "l", "i": "i", "lo": "llo", "la": "lla", "le": "lle", "gli": "gli", "l'": "ll'"}
        return attach(stem + tail[found[1] or found[2]], phrase[found.end() :])
    if preposition == "a" and phrase[:1].lower() == "a":
        preposition = "ad"
    return f"{preposition} {phrase}"


HARDENED = ("co", "go", "ca", "ga")  # bianco, bianchi: an h keeps the consonant hard
HARD_PLURALS = {"antico", "carico", "scarico", "fico"}  # other words in -ico have a soft plural: medici
MASCULINE_PLURALS = {"mio": "miei", "tuo": "tuoi", "suo": "suoi"}


def pluralise(word: str, gender: str) -> str:
    """Return the regular plural of an Italian noun or adjective."""
    if word in ("zio", "addio"):
        return word[:-1] + "i"  # the i is stressed: zii
    if word[-1] not in "aeo" or (gender == "f" and word.endswith("o")):
        return word  # città, autobus, blu, foto
    stem, soft = word[:-1], word == "greco" or (word.endswith("ico") and word not in HARD_PLURALS)
    if gender == "f" and word.endswith("a"):
        if word.endswith(HARDENED):
            return stem + "he"
        if re.search(r"[^aeiou][cg]ia$", word):
            return stem[:-1] + "e"  # arancia, arance; but camicia, camicie
        return stem + "e"
    if word.endswith(HARDENED) and not soft:
        return stem + "hi"
    return stem if stem.endswith("i") else stem + "i"


def agree(adjective: str, gender: str, number: str) -> str:
    """Inflect an adjective or a participle, given in the masculine singular."""
    head, space, rest = adjective.partition(" ")
    if rest.startswith("di "):
        return f"{agree(head, gender, number)} {rest}"  # pieno di talento, sicuro di sé
    if space or adjective in CLASSES["invariable"]:
        return adjective  # in ritardo, bene
    if adjective in MASCULINE_PLURALS and (gender, number) == ("m", "p"):
        return MASCULINE_PLURALS[adjective]
    word = adjective[:-1] + "a" if gender == "f" and adjective.endswith("o") else adjective
    return word if number == "s" else pluralise(word, gender)


def agree_before(adjective: str, gender: str, number: str, noun: str) -> str:
    """Inflect an adjective that stands before its noun; bello and buono then behave like articles."""
    if adjective == "bello":
        return before(noun, gender, number, "bello bel bell' begli bei bella bell' belle")
    if adjective == "buono" and number == "s" and gender == "m":
        return before(noun, gender, number, "buono buon buon - - - - -")
    return agree(adjective, gender, number)


TENSES = ("presente", "imperfetto", "futuro", "condizionale", "congiuntivo", "congiuntivo_imperfetto")
PERSONS = ((1, "s"), (2, "s"), (3, "s"), (1, "p"), (3, "p"))  # "you" is always singular here: see README.md
IRREGULAR = {tense: read_table(LEXICON[tense]) for tense in TENSES if tense in LEXICON}
IRREGULAR_FUTURE_STEMS = read_table(LEXICON["future_stems"])
IRREGULAR_PARTICIPLES = read_table(LEXICON["participles"])
IRREGULAR_GERUNDS = read_table(LEXICON["gerunds"])
IRREGULAR_IMPERATIVES = read_table(LEXICON["imperatives"])
ENDINGS = {
    "presente": {"are": "o i a iamo ano", "ere": "o i e iamo ono", "ire": "o i e iamo ono"},
    "imperfetto": {v + "re": f"{v}vo {v}vi {v}va {v}vamo {v}vano" for v in "aei"},
    "futuro": dict.fromkeys(("are", "ere", "ire"), "ò ai à emo anno"),
    "condizionale": dict.fromkeys(("are", "ere", "ire"), "ei esti ebbe emmo ebbero"),
    "congiuntivo": {"are": "i i i iamo ino", "ere": "a a a iamo ano", "ire": "a a a iamo ano"},
}
REFLEXIVE = dict(zip(PERSONS, ("mi", "ti", "si", "ci", "si"), strict=True))


def future_stem(infinitive: str) -> str:
    """Return the stem of the future and the conditional."""
    if infinitive in IRREGULAR_FUTURE_STEMS:
        return IRREGULAR_FUTURE_STEMS[infinitive]
    if infinitive.endswith(("care", "gare")):
        return infinitive[:-3] + "her"  # cercare, cercherò
    if infinitive.endswith(("ciare", "giare")):
        return infinitive[:-4] + "er"  # mangiare, mangerò
    return infinitive[:-3] + ("er" if infinitive.endswith("are") else infinitive[-3:-1])


def present_stem(infinitive: str, ending: str) -> str:
    """Return the stem of the present before this ending."""
    stem = infinitive[:-3]
    if infinitive in CLASSES["isc"] and ending != "iamo":
        return stem + "isc"
    if infinitive.endswith(("care", "gare")) and ending.startswith("i"):
        return stem + "h"  # cercare, cerchi
    if infinitive.endswith("iare") and ending.startswith("i"):
        return stem[:-1]  # mangiare, mangi
    return stem


@cache
def conjugate(infinitive: str, tense: str, person: int, number: str) -> str:
    """Return a simple form of an Italian verb; reflexive verbs (alzarsi) come with their pronoun before them."""
    if tense not in TENSES:
        raise ValueError(f"tense is {tense!r}, but it must be one of {', '.join(TENSES)}")
    if infinitive.endswith("rsi"):
        return f"{REFLEXIVE[person, number]} {conjugate(infinitive[:-2] + 'e', tense, person, number)}"
    place = PERSONS.index((person, number))
    if tense.startswith("congiuntivo"):
        return subjunctive(infinitive, tense, place)
    if infinitive in IRREGULAR.get(tense, {}):
        return IRREGULAR[tense][infinitive].split()[place]
    ending = ENDINGS[tense][infinitive[-3:]].split()[place]
    if tense == "presente":
        return present_stem(infinitive, ending) + ending
    return (infinitive[:-3] if tense == "imperfetto" else future_stem(infinitive)) + ending


def subjunctive(infinitive: str, tense: str, place: int) -> str:
    """Return a form of the present or the imperfect subjunctive, for the person at this place of PERSONS."""
    irregular = IRREGULAR[tense].get(infinitive)
    if tense == "congiuntivo_imperfetto":
        first = irregular or conjugate(infinitive, "imperfetto", 1, "s")[:-2] + "ssi"
        return first[:-3] + ["ssi", "ssi", "sse", "ssimo", "ssero"][place]
    first_present, we = (conjugate(infinitive, "presente", 1, number) for number in "sp")
    if irregular:
        singular, plural = irregular.split()
        return (singular, singular, singular, we, plural)[place]
    ending = ENDINGS["congiuntivo"][infinitive[-3:]].split()[place]
    if place == 3:
        return we
    if infinitive.endswith("are") and infinitive not in IRREGULAR["presente"]:
        return present_stem(infinitive, ending) + ending
    return first_present[:-1] + ENDINGS["congiuntivo"]["ire"].split()[place]  # vengo, venga


def participle(infinitive: str) -> str:
    """Return the past participle in the masculine singular."""
    if infinitive in IRREGULAR_PARTICIPLES:
        return IRREGULAR_PARTICIPLES[infinitive]
    return infinitive[:-3] + {"are": "ato", "ere": "uto", "ire": "ito"}[infinitive[-3:]]


def gerund(infinitive: str) -> str:
    """Return the gerund."""
    if infinitive in IRREGULAR_GERUNDS:
        return IRREGULAR_GERUNDS[infinitive]
    return infinitive[:-3] + ("ando" if infinitive.endswith("are") else "endo")


def imperative(infinitive: str, clitic: str = "") -> str:
    """Return the familiar imperative, as to one friend, with a pronoun attached: dammi, aiutalo, alzati."""
    if infinitive.endswith("rsi"):
        return imperative(infinitive[:-2] + "e", "ti")  # alzati
    form = conjugate(infinitive, "presente", 3 if infinitive.endswith("are") else 2, "s")
    full, _, short = IRREGULAR_IMPERATIVES.get(infinitive, form).partition(" ")
    if not clitic:
        return full
    if short and not clitic.startswith("gl"):
        clitic = clitic[0] + clitic  # dammi, fallo; but digli
    return (short or full) + clitic


def leave_off(infinitive: str, clitic: str) -> str:
    """Attach a pronoun to an infinitive: vederlo."""
    return infinitive[:-1] + clitic if clitic else infinitive


def italian_sentence(text: str) -> str:
    """Tidy a filled template: spaces, elisions between its words, a capital first letter."""
    text = tidy(text)
    text = re.sub(r"\b(dov|com|c)[ei] (?=(è|era)\b)", r"\1'", text, flags=re.IGNORECASE)
    text = re.sub(r"\b(vent|trent|quarant|cinquant|sessant|settant|ottant|novant)[ia] (?=anni\b)", r"\1'", text)
    text = re.sub(r"\b((?:glie)?l)[oa] (?=(ho|hai|ha|abbiamo|hanno)\b)", r"\1'", text, flags=re.IGNORECASE)
    text = re.sub(r"\be (?=e)", "ed ", text)
    text = re.sub(r"\ba (?=[aA])", "ad ", text)
    return capitalise(text)


def capitalise(text: str) -> str:
    """Begin every sentence of a text with a capital letter."""
    return re.sub(r"(?:^|(?<=[.?!] ))\w", lambda found: found[0].upper(), text)


# ----------------------------------------------------------------------------------------------------------------------
# English morphology.

IRREGULAR_ENGLISH = read_table(LEXICON["english"])
DOUBLED = {verb: verb + verb[-1] for verb in read_table(LEXICON["doubled"])["double"].split()}


def inflect(lemma: str, form: str, person: int = 3, number: str = "s") -> str:
    """Inflect an English verb, whose first word carries the ending: base, present, past, done or ing."""
    verb, _, rest = lemma.partition(" ")
    return f"{_inflect(verb, form, person, number)} {rest}".strip()


def _inflect(verb: str, form: str, person: int, number: str) -> str:
    singular_third = person == 3 and number == "s"
    if verb == "be" and form in ("present", "past"):
        table = {"present": ("am", "is", "are"), "past": ("was", "was", "were")}[form]
        return table[0 if (person, number) == (1, "s") else 1 if singular_third else 2]
    if form == "present":
        if not singular_third:
            return verb
        return {"have": "has", "do": "does", "go": "goes"}.get(verb) or english_plural(verb)
    if form in ("past", "done") and verb in IRREGULAR_ENGLISH:
        return IRREGULAR_ENGLISH[verb].split()[form == "done"]
    stem = DOUBLED.get(verb, verb)
    if form == "ing":
        if verb in ("lie", "die"):
            return verb[:-2] + "ying"
        return (stem[:-1] if stem.endswith("e") and not stem.endswith("ee") and stem != "be" else stem) + "ing"
    if form in ("past", "done"):
        if re.search(r"[^aeiou]y$", stem):
            return stem[:-1] + "ied"
        return stem + ("d" if stem.endswith("e") else "ed")
    return verb


def english_plural(word: str) -> str:
    """Return the regular plural of a noun, which is also the third person of a verb."""
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    if re.search(r"(s|x|[^a]ch|[aeo]ach|sh|z|[^aeiou]o)$", word) and word not in ("photo", "piano", "risotto"):
        return word + "es"
    return word + "s"


def compare(adjective: str, degree: str) -> str:
    """Return the comparative (more) or the superlative (most) of an English adjective."""
    syllables = len(re.findall(r"[aeiouy]+", adjective.removesuffix("e")))
    if (syllables > 1 and not re.search(r"[^aeiou]y$", adjective)) or syllables > 2:
        return f"{degree} {adjective}"
    stem = re.sub(r"y$", "i", adjective).removesuffix("e")
    if re.search(r"[^aeiou][aeiou][dgnptm]$", stem) and not adjective.endswith("e"):
        stem += stem[-1]
    return stem + ("er" if degree == "more" else "est")


def a_or_an(phrase: str) -> str:
    """Put the English indefinite article before a phrase."""
    return ("an " if re.match(r"[aeiou](?!niv|uro)|8|18\b", phrase) else "a ") + phrase


NEGATED = re.compile(
    r"\b(can|could|will|would|should|do|does|did|is|are|was|were|has|have|had|must) not\b", re.IGNORECASE
)
PARTICIPLES = [forms.split()[1] for forms in IRREGULAR_ENGLISH.values()]
DONE = "|".join(["already", "never", "always", "just", "not", *PARTICIPLES])
PRONOUN_VERB = re.compile(
    r"\b(I(?= am)|(?:you|we|they)(?= are)|(?:he|she|it|that|there|here|what|where|who|how|everything)(?= is)"
    r"(?! is it\b)"
    rf"|(?:I|you|we|they)(?= have (?:{DONE}|\w\w\wed)\b)|(?:he|she|it)(?= has (?:{DONE}|\w\w\wed)\b)"
    r"|(?:I|you|he|she|it|we|they)(?= (?:will|would|had better)\b))"
    r" (am|is|are|has|have|had|will|would)\b(?= \w)",
    re.IGNORECASE,
)
CONTRACTED = {"am": "'m", "are": "'re", "is": "'s", "has": "'s", "have": "'ve"}
CONTRACTED |= {"will": "'ll", "would": "'d", "had": "'d"}
PRONOUN_IS_NOT = re.compile(r"\b(you|he|she|it|we|they|that|this|there) (is|are)(?= not\b)", re.IGNORECASE)


def contract_english(text: str, before_not: bool = False) -> str:
    """Write don't for do not, and I'm for I am where a word follows; it's not rather than it isn't if before_not."""

    def negated(found: re.Match[str]) -> str:
        verb = found[1]
        return {"can": "can't", "will": "won't"}.get(verb.lower(), f"{verb}n't")

    def joined(found: re.Match[str]) -> str:
        return found[1] + CONTRACTED[found[2]]

    text = PRONOUN_IS_NOT.sub(joined, text) if before_not else text
    return PRONOUN_VERB.sub(joined, NEGATED.sub(negated, text))


def tidy(text: str) -> str:
    """Leave one space between words, and none before a punctuation mark."""
    return re.sub(r" ([,.?!;:])", r"\1", " ".join(text.split()))


TAG = "do|does|did|is|are|was|were|has|have|could|would|should"


def english_sentence(text: str, contracted: bool, before_not: bool = False) -> str:
    """Tidy a filled template: spaces, contractions where wanted, capital first letters."""
    text = tidy(text)
    text = re.sub(rf"\b({TAG}) not (?=(?:I|you|he|she|it|we|they)\b)", r"\1n't ", text)  # isn't it?
    return capitalise((contract_english(text, before_not) if contracted else text).replace("can not", "cannot"))


# ----------------------------------------------------------------------------------------------------------------------
# The words.


@dataclass(frozen=True)
class Noun:
    """A noun in both languages. `count` is "count", "mass", "both" or "plural"; `at` is its prepositions of place."""

    en: str
    en_plural: str
    it: str
    it_plural: str
    gender: str
    plural_gender: str
    kind: str
    count: str
    at: tuple[str, str] | None  # English preposition; Italian one, "in" or "a" bare, "al" or "nel" or "sul" contracted

    def form(self, number: str) -> tuple[str, str, str]:
        """Return the English form, the Italian form and the gender in this number."""
        if number == "p":
            return self.en_plural, self.it_plural, self.plural_gender
        return self.en, self.it, self.gender


@dataclass(frozen=True)
class Adjective:
    """An adjective, its position in Italian (pre, post, or pred: after the verb only) and what it suits."""

    en: str
    it: str
    position: str
    suits: frozenset[str]


@dataclass(frozen=True)
class Verb:
    """A verb and the kinds of object (or single nouns) that it takes; an activity or a deed has its own rest.

    In the rest of a deed, "{}" is a pronoun, which `case` puts into the accusative ("d") or the dative ("i") in
    Italian, "{my}", "{self}" and the Italian "{solo}" agree with the subject, and `clitic` is a pronoun that always
    goes with the verb: ci.
    """

    en: str
    it: str
    objects: tuple[str, ...] = ()
    en_rest: str = ""
    it_rest: str = ""
    flags: frozenset[str] = frozenset()  # = ! ~ - * as words/verbs.txt explains them
    case: str = ""
    clitic: str = ""


def expand(names: Sequence[str]) -> list[str]:
    """Spell out the groups in a list of kinds and nouns."""
    return [spaced(kind) for name in names for kind in GROUPS.get(name, [name])]


def spaced(name: str) -> str:
    """Put the spaces into a name."""
    return name.replace("_", " ")


def read_noun(kind: str, entry: str) -> Noun:
    """Read one noun."""
    en, it, gender, *flags = entry.split()
    en, _, en_plural = spaced(en).partition("/")
    it, _, it_plural = spaced(it).partition("/")
    gender, _, plural_gender = gender.partition("/")
    marks = {"-": "mass", "±": "both", "+": "plural"}
    count = next((marks[flag] for flag in flags if flag in marks), "count")
    at = next((flag.split(">") for flag in flags if ">" in flag), None)
    if count == "plural":
        en_plural, it_plural = en, it
    if not it_plural:
        head, _, tail = it.partition(" ")  # sala da pranzo, sale da pranzo
        it_plural = f"{pluralise(head, gender)} {tail}".strip()
    en_plural, plural_gender = en_plural or english_plural(en), plural_gender or gender
    return Noun(en, en_plural, it, it_plural, gender, plural_gender, kind, count, (at[0], at[1]) if at else None)


def read_adjective(line: str) -> Adjective:
    """Read one adjective."""
    head, _, kinds = line.partition(": ")
    en, it, *position = head.split()
    return Adjective(en, spaced(it), position[0] if position else "post", frozenset(expand(kinds.split())))


def read_verb(line: str) -> Verb:
    """Read one transitive verb."""
    en, italian, kinds = line.split(" | ")
    it, *flags = italian.split()
    return Verb(en, it, tuple(expand(kinds.split())), flags=frozenset(flags))


def read_activity(line: str) -> Verb:
    """Read one verb that brings its own rest, or none."""
    (en, _, en_rest), (it, _, it_rest) = (side.partition(" + ") for side in line.split(" | "))
    return Verb(en, it, (), en_rest, it_rest)


def read_deed(line: str) -> Verb:
    """Read a verb with all that follows it, such as "tell {} the truth | dire i + la verità"."""
    en, italian = line.split(" | ")
    head, _, it_rest = italian.partition(" + ")
    it, *marks = head.split()
    case = next((mark for mark in marks if mark in ("d", "i")), "")
    clitic = next((mark for mark in marks if mark in ("ci", "lo", "ne", "la")), "")
    return Verb(en, it, (), "", it_rest, frozenset(marks), case, clitic)


ALL_NOUNS = [
    read_noun(kind, entry) for kind, entries in read_table(LEXICON["nouns"]).items() for entry in entries.split(";")
]
ALL_ADJECTIVES = [read_adjective(line) for line in LEXICON["adjectives"]]
ALL_VERBS = [read_verb(line) for line in LEXICON["verbs"]]
ALL_ACTIVITIES = [read_activity(line) for line in LEXICON["activities"]]
MOVES = [read_activity(line) for line in LEXICON["moves"]]
DEEDS = [read_deed(line) for line in LEXICON["deeds"]]
DEEDS_TO_PEOPLE = [read_deed(line) for line in LEXICON["deeds_to_people"]]
DEEDS_TO_THINGS = [read_deed(line) for line in LEXICON["deeds_to_things"]]
VERB_NAMED = {f"{verb.en} {verb.en_rest}".strip(): verb for verb in (*MOVES, *ALL_VERBS, *ALL_ACTIVITIES)}
assert not {noun.en for noun in ALL_NOUNS} & {noun.kind for noun in ALL_NOUNS}, "a kind has the name of a noun"

# ----------------------------------------------------------------------------------------------------------------------
# Slots: what a pattern draws, and how it is rendered in each language.


class Draw:
    """The choices of one sentence, all of them hashes, and the combinations of words that result."""

    def __init__(self, name: str, turn: int = 0) -> None:
        self.name = name
        self.turn = turn
        self.count = 0
        self.combinations: set[tuple[str, str]] = set()

    def number(self) -> int:
        """Return the next number, below 2 ** 32, of the sequence that the name gives; a hash holds sixteen."""
        block, place = divmod(self.count, 16)
        if place == 0:
            self.block = blake2b(f"{SEED}/{self.name}/{block}".encode()).digest()
        self.count += 1
        return int.from_bytes(self.block[4 * place : 4 * place + 4], "big")

    def choose(self, options: Sequence[T]) -> T:
        return options[self.number() % len(options)]

    def cycle(self, options: Sequence[T]) -> T:
        """Choose in turn from attempt to attempt, so that all options and their combinations are equally frequent."""
        rounds, place = divmod(self.turn, len(options))
        self.turn += rounds
        return options[place]

    def chance(self, probability: float) -> bool:
        return self.number() % 10_000 < probability * 10_000


class Slot(Protocol):
    """Anything that fills a slot; `form` is what follows the colon in a template."""

    def en(self, form: str) -> str: ...

    def it(self, form: str) -> str: ...


FEMININE = re.compile(r"un'|(?:una|la|colpa) |l'(?:ultima|influenza)")  # how a feminine phrase begins


@dataclass
class Phrase:
    """A fixed expression; in Italian a preposition may be put before it."""

    english: str
    italian: str

    def en(self, form: str) -> str:
        if form == "a":
            return a_or_an(self.english)
        return compare(self.english, form) if form in ("more", "most") else self.english

    def it(self, form: str) -> str:
        if form == "un":
            return attach(indefinite(self.italian, "m"), self.italian)
        if form == "questo":  # questa è una bella idea
            return "questa" if FEMININE.match(self.italian) else "questo"
        return contract(form, self.italian) if form else self.italian


COLOURS = {"red", "blue", "white", "black", "green", "yellow", "brown", "pink", "grey", "golden", "orange"}
ABSOLUTE = COLOURS | {"ready", "late", "free", "open", "closed", "broken", "empty", "delicious", "ill"}
ABSOLUTE |= {"wooden", "secret", "round", "full"}
LONG = {"expensive", "comfortable", "modern", "elegant", "interesting", "beautiful", "famous", "crowded"}
QUALITIES: dict[str, Callable[[str], bool]] = {
    "quality": lambda name: True,
    "graded": lambda name: name not in ABSOLUTE,  # goes after "very"
    "long": lambda name: name in LONG,  # goes after "more"
    "passing": lambda name: name in {"open", "closed", "crowded", "late"},  # may have been so only yesterday
    "mood": lambda name: name in {"tired", "happy", "sad", "busy", "worried", "nervous"},
    "trouble": lambda name: name in {"tired", "ill", "busy"},  # a reason not to do a thing
}
OBJECT_PRONOUNS = {  # of person, number and gender: English; Italian direct; Italian indirect
    (1, "s", "m"): ("me", "mi", "mi"),
    (2, "s", "m"): ("you", "ti", "ti"),
    (3, "s", "m"): ("him", "lo", "gli"),
    (3, "s", "f"): ("her", "la", "le"),
    (1, "p", "m"): ("us", "ci", "ci"),
    (3, "p", "m"): ("them", "li", "gli"),
    (3, "p", "f"): ("them", "le", "gli"),
}
SUBJECT_PRONOUNS = {"1s": "I", "2s": "you", "1p": "we", "3p": "they"}


@dataclass
class Nominal:
    """A noun phrase or a subject, with the person, number and gender that other words agree with."""

    draw: Draw
    english: str
    italian: str
    number: str = "s"
    gender: str = "m"
    person: int = 3
    human: bool = False
    noun: Noun | None = None
    predicate: Adjective | None = None

    def quality(self, pool: str) -> Adjective:
        """Draw, once, an adjective from a pool of QUALITIES that suits this."""
        if self.predicate is None:
            suited = [adjective for adjective in suiting(self.noun, pred=True) if QUALITIES[pool](adjective.en)]
            self.predicate = self.draw.choose(suited)
            if self.noun:
                self.draw.combinations.add((self.predicate.en, self.noun.en))
        return self.predicate

    def en(self, form: str) -> str:
        """Render the phrase, `at` a place, `quality`, a pronoun (it, they), or a verb (be, have.past) that agrees."""
        if form == "":
            return self.english
        if form == "at":
            return f"{self.place()[0]} {self.english}"
        if form in QUALITIES:
            return self.quality(form).en
        if form == "bare":
            return self.english.partition(" ")[2]
        if form == "this":
            return "this" if self.number == "s" else "these"
        key = (self.person, self.number, self.gender)
        if form == "it":
            return OBJECT_PRONOUNS[key][0] if self.human or self.number == "p" else "it"
        if form == "they":
            if self.person == 3 and self.number == "s":
                return {"m": "he", "f": "she"}[self.gender] if self.human else "it"
            return SUBJECT_PRONOUNS[f"{self.person}{self.number}"]
        verb, _, tense = form.partition(".")
        return inflect(verb, tense or "present", self.person, self.number)

    def it(self, form: str) -> str:
        """Render the phrase, after a preposition, `at`, `quality`, a clitic (lo, gli), `=agreeing`, or a verb.tense."""
        if form == "":
            return self.italian
        if form == "at":
            return self.there()
        if form in QUALITIES:
            return agree(self.quality(form).it, self.gender, self.number)
        if form == "bare":
            return re.sub(r"^(un'|uno |una |un )", "", self.italian)
        if form == "il":
            return article("più", self.gender, self.number)
        if form == "me":  # after a preposition
            strong = {"1s": "me", "2s": "te", "1p": "noi", "3p": "loro"}
            return self.italian or strong[f"{self.person}{self.number}"]
        if form == "strong":
            return self.italian or {"1s": "io", "2s": "tu", "1p": "noi", "3p": "loro"}[f"{self.person}{self.number}"]
        if form[0] == "=":
            return agree(form[1:], self.gender, self.number)
        if form.startswith("dative"):  # "a Marco non", but "non mi"
            negated = "non" if form == "dative not" else ""
            return f"{contract('a', self.italian)} {negated}" if self.italian else f"{negated} {self.it('gli')}"
        if form in ("lo", "gli"):
            return OBJECT_PRONOUNS[self.person, self.number, self.gender][1 if form == "lo" else 2]
        verb, _, tense = form.partition(".")
        if verb.endswith(("re", "rsi")):
            return conjugate(verb, tense or "presente", self.person, self.number)
        return contract(form, self.italian)

    def place(self) -> tuple[str, str]:
        """Return the English and the Italian preposition of place."""
        if self.noun is None or self.noun.at is None:
            raise ValueError(f"{self.english} has no preposition: give the noun a place in words/")
        return self.noun.at

    def there(self) -> str:
        """Return the idiomatic phrase of place: in banca, al mercato, nel giardino."""
        how = self.place()[1]
        if how in ("in", "a"):
            return f"{how} {ARTICLE.sub('', self.italian)}"
        return contract({"al": "a", "nel": "in", "sul": "su"}[how], self.italian)


JOINED = {"mi": "me lo", "ti": "te lo", "gli": "glielo", "le": "glielo", "ci": "ce lo"}  # a person's pronoun and "it"
OWN = {"1s": "my myself", "2s": "your yourself", "1p": "our ourselves", "3p": "their themselves"}


def own_words(person: int, number: str, gender: str) -> list[str]:
    """Return the English possessive and reflexive of a subject: her, herself."""
    third = {"m": "his himself", "f": "her herself"}[gender]
    return (third if (person, number) == (3, "s") else OWN[f"{person}{number}"]).split()


def own(subject: Nominal) -> str:
    """Return the English possessive of a subject."""
    return own_words(subject.person, subject.number, subject.gender)[0]


@dataclass
class Action:
    """A verb with its object, and its subject if it has one; a form ending such as .1s names another subject."""

    verb: Verb
    subject: Nominal | None = None
    thing: Nominal | None = None
    pronoun: tuple[int, str, str] | None = None  # person, number and gender of an object that is a pronoun

    def who(self, person: str) -> tuple[int, str, str]:
        if person:
            return int(person[0]), person[1], "m"
        assert self.subject
        return self.subject.person, self.subject.number, self.subject.gender

    def en(self, form: str) -> str:
        """Render the verb (base, present, past, done, ing) and its object."""
        form, _, person = form.partition(".")
        number = self.who(person)[:2] if form in ("present", "past") else (3, "s")
        rest = self.thing.english if self.thing else self.verb.en_rest
        return self.fill_in(f"{inflect(self.verb.en, form, *number)} {rest}".strip(), person)

    def fill_in(self, text: str, person: str) -> str:
        """Replace {}, {my} and {self} in English."""
        if "{" not in text:
            return text
        if self.pronoun:
            object_ = (
                "it" if self.verb in DEEDS_TO_THINGS and self.pronoun[1] == "s" else OBJECT_PRONOUNS[self.pronoun][0]
            )
            text = text.replace("{}", object_)
        who, number, gender = self.who(person or ("" if self.subject else "2s"))
        my, self_ = own_words(who, number, gender)
        return text.replace("{my}", my).replace("{self}", self_)

    def it(self, form: str) -> str:
        """Render the verb in one of the forms below and its object.

        `presente-` is the verb alone and `resto` the object; an adverb goes between the two, or between `stare` and
        `gerundio`.
        """
        form, _, person = form.partition(".")
        rest = self.thing.italian if self.thing else self.agreeing_rest(person)
        if form == "resto":
            return rest
        if form == "gerundio":
            verb = active(self.verb.it)
            return rest if verb in CLASSES["without_progressive"] else f"{gerund(verb)} {rest}".strip()
        if form in ("ausiliare", "stare") or form.endswith("-"):
            return self.italian_verb(form.rstrip("-"), person)
        return f"{self.italian_verb(form, person)} {rest}".strip()

    def agreeing_rest(self, who: str) -> str:
        """Return the rest of the verb, where "da {solo}" agrees with the subject."""
        _, number, gender = self.who(who or ("" if self.subject else "2s"))
        return re.sub(r"\{(\w+)\}", lambda found: agree(found[1], gender, number), self.verb.it_rest)

    def clitic(self, who: str) -> str:
        """Return the pronoun that goes with the verb: of the object, of a reflexive verb, or ci."""
        if self.verb.it.endswith("rsi"):
            return REFLEXIVE[self.who(who)[:2]]
        if self.pronoun:
            pronoun = OBJECT_PRONOUNS[self.pronoun][1 if self.verb.case == "d" else 2]
            return JOINED[pronoun] if self.verb.clitic == "lo" else pronoun
        return self.verb.clitic

    def past_participle(self, essere: bool, who: str) -> str:
        """Return the participle, which agrees with the subject of essere, or with lo, la, li and le before avere."""
        plain = participle(active(self.verb.it))
        if essere:
            _, number, gender = self.who(who)
            return agree(plain, gender, number)
        direct = self.pronoun and self.verb.case == "d" and self.pronoun[0] == 3
        return agree(plain, self.pronoun[2], self.pronoun[1]) if direct and self.pronoun else plain

    def italian_verb(self, form: str, who: str) -> str:
        verb = active(self.verb.it)
        fixed = self.pronoun or self.verb.clitic
        clitic = self.clitic(who) if fixed or (verb != self.verb.it and (self.subject or who)) else ""
        attached = clitic.replace(" ", "")
        match form:
            case "imperativo":
                return imperative(self.verb.it if verb != self.verb.it else verb, attached if fixed else "")
            case "infinito":
                return leave_off(verb, attached)  # alzarmi, vederlo
            case "esortativo":
                return conjugate(verb, "presente", 1, "p") + (attached or ("ci" if verb != self.verb.it else ""))
        person, number, _ = self.who(who)
        form = self.simple_form(form, person, number)
        essere = verb != self.verb.it or verb in CLASSES["essere"] or "&" in self.verb.flags
        auxiliary = conjugate("essere" if essere else "avere", "presente", person, number)
        match form:
            case "ausiliare":
                return f"{clitic} {auxiliary}".strip()
            case "participio":
                return self.past_participle(essere, who)
            case "passato":
                return f"{clitic} {auxiliary} {self.past_participle(essere, who)}".strip()
            case "stare":
                return f"{clitic} {conjugate('stare', 'presente', person, number)}".strip()
            case "progressivo" | "progredivo":
                tense = "presente" if form == "progressivo" else "imperfetto"
                return f"{clitic} {conjugate('stare', tense, person, number)} {gerund(verb)}".strip()
        return f"{clitic} {conjugate(verb, form, person, number)}".strip()

    def simple_form(self, form: str, person: int, number: str) -> str:
        """Return the form that Italian prefers: sapevo (a state), vado rather than "sto andando", ti chiamo (I'll)."""
        promise = (person, number) == (1, "s") and self.pronoun and self.pronoun[0] == 2
        if form == "futuro" and promise and self.verb.flags.isdisjoint("~^"):
            return "presente"
        if form == "passato" and "^" in self.verb.flags:
            return "imperfetto"
        if active(self.verb.it) in CLASSES["without_progressive"]:
            return {"progressivo": "presente", "stare": "presente", "progredivo": "imperfetto"}.get(form, form)
        return form


def active(infinitive: str) -> str:
    """Return the verb without its reflexive pronoun: alzare for alzarsi."""
    return infinitive[:-2] + "e" if infinitive.endswith("rsi") else infinitive


PREDICATES = [adjective for adjective in ALL_ADJECTIVES if "subject" in adjective.suits]


@cache
def suiting(noun: Noun | None, pred: bool) -> tuple[Adjective, ...]:
    """Return the adjectives that suit a noun, or a person where there is none."""
    if noun is None or (pred and noun.kind == "family"):
        return tuple(PREDICATES)
    names = {noun.en, noun.kind}
    return tuple(a for a in ALL_ADJECTIVES if a.suits & names and (pred or a.position != "pred"))


@cache
def nouns_of(kind: str) -> tuple[Noun, ...]:
    """Return the nouns of a kind or a group, or the one noun of that name."""
    kinds = expand([kind.replace(" ", "_")])
    found = tuple(noun for noun in ALL_NOUNS if noun.kind in kinds or noun.en in kinds)
    assert found, f"no noun is called {kind}"
    return found


POSSESSIVES = {"my": "mio", "your": "tuo", "his": "suo", "her": "suo", "our": "nostro", "their": "loro"}
OWNERS = ["my", "my", "my", "your", "your", "his", "her", "our", "their"]
SPOUSES = {"husband": ["my", "your", "her"], "wife": ["my", "your", "his"]}
FRIENDS = {"friend", "colleague", "neighbour", "guest"}
OWNABLE = {"object", "clothing", "readable", "vehicle", "furniture", "animal"}
DETERMINERS = {
    "any": "the the the the the the a a a a some some this that",
    "def": "the the the the this that",
    "this": "this this this that",
}
FORCED = {"next": "prossimo", "last": "ultimo", "first": "primo"}


def possessive(owner: str, gender: str, number: str, bare: bool) -> str:
    """Return "il mio", or "mia" without an article, as before one member of the family."""
    italian = POSSESSIVES[owner]
    if italian == "loro":
        return f"{article('loro', gender, number)} loro"
    form = agree(italian, gender, number)
    return form if bare else f"{article(form, gender, number)} {form}"


def noun_phrase(draw: Draw, noun: Noun, determiner: str, number: str, adjective: Adjective | None = None) -> Nominal:
    """Render a noun with its determiner and adjective in both languages."""
    english, italian, gender = noun.form(number)
    if adjective:
        draw.combinations.add((adjective.en, noun.en))
        english = f"{adjective.en} {english}"
        if adjective.position == "pre":
            italian = attach(agree_before(adjective.it, gender, number, italian), italian)
        else:
            italian = f"{italian} {agree(adjective.it, gender, number)}"
    word = english
    match determiner:
        case "the" | "generic":
            english, italian = f"the {word}", attach(article(italian, gender, number), italian)
        case "a":
            english, italian = a_or_an(word), attach(indefinite(italian, gender), italian)
        case "some":
            english = f"some {word}"
            italian = contract("di", attach(article(italian, gender, number), italian))
        case "this" | "that":
            english = f"{determiner if number == 's' else {'this': 'these', 'that': 'those'}[determiner]} {word}"
            italian = attach(demonstrative(italian, gender, number, determiner == "that"), italian)
        case "bare":
            pass
        case _ if determiner in POSSESSIVES:
            bare = noun.kind == "family" and number == "s" and not adjective
            english = f"{determiner} {word}"
            italian = f"{possessive(determiner, gender, number, bare)} {italian}"
        case _:
            raise ValueError(f"no determiner is called {determiner}")
    human = noun.kind in ("family", "person")
    return Nominal(draw, english, italian, number, gender, 3, human, noun)


def draw_number(draw: Draw, noun: Noun, determiner: str, plural: float) -> str:
    """Choose singular or plural, where the noun and its determiner allow both."""
    if noun.count == "plural":
        return "p"
    if noun.count == "mass" or determiner == "a":
        return "s"
    if determiner in ("some", "bare", "generic"):
        return "s" if noun.count == "both" else "p"
    return "p" if draw.chance(plural) else "s"


PLACES = {"lodging", "public", "sight", "chamber", "outdoors", "nature"}
FIXED = PLACES | {"person", "device", "machine", "transport", "opening"}  # these are usually definite


def draw_determiner(draw: Draw, noun: Noun, determiner: str) -> str:
    """Resolve `any`, `def`, `poss` and the like into a determiner that this noun takes."""
    if determiner in ("bare", "generic"):
        return determiner
    if noun.kind == "family" or determiner == "poss" or noun.en in FRIENDS:
        return draw.choose(SPOUSES.get(noun.en, OWNERS))
    if determiner in ("any", "def"):
        if noun.kind in OWNABLE and draw.chance(0.25):
            return draw.choose(OWNERS)
        if noun.kind in FIXED:
            determiner = "def"
    if determiner in DETERMINERS:
        determiner = draw.choose(DETERMINERS[determiner].split())
    if determiner == "a" and noun.count in ("mass", "plural"):
        return "some" if noun.count == "mass" else "the"
    return determiner


FITTING = {"dirty": {"wash", "clean"}, "broken": {"repair"}}  # adjectives that go only with these verbs
UNFITTING = {("write", "old"), ("write", "boring"), ("cook", "delicious"), ("cook", "cold"), ("cook", "hot")}


def draw_noun_phrase(
    draw: Draw, noun: Noun, determiner: str, plural: float, adjective: float, verb: str = ""
) -> Nominal:
    """Draw the open parts of a noun phrase, which may be the object of a verb."""
    chosen = draw_determiner(draw, noun, determiner)
    if noun.kind == "family" and noun.en not in PLURAL_PEOPLE:
        plural = 0.0  # one mother each
    number = draw_number(draw, noun, chosen, plural)
    suited = [a for a in suiting(noun, pred=False) if noun.kind != "family"]
    suited = [a for a in suited if verb in FITTING.get(a.en, (verb,)) and (verb, a.en) not in UNFITTING]
    suited = [a for a in suited if (chosen, a.en) != ("the", "good")]
    return noun_phrase(draw, noun, chosen, number, draw.choose(suited) if suited and draw.chance(adjective) else None)


PERSONAL = {"lose", "forget", "wear", "try on"}  # verbs whose object belongs to the subject, which Italian need not say
RARELY_PLURAL = FIXED - {"person", "nature"} | {"drink", "dish", "family", "person"}


def draw_action(draw: Draw, verb: Verb, subject: Nominal | None, determiner: str) -> Action:
    """Draw an object for a verb."""
    if not verb.objects or determiner == "none":
        return Action(verb, subject)
    noun = draw.choose([noun for kind in verb.objects for noun in nouns_of(kind)])
    draw.combinations.add((verb.en, noun.en))
    plural = 0.1 if noun.kind in RARELY_PLURAL else 0.25
    thing = draw_noun_phrase(draw, noun, determiner, plural, 0.35, verb.en)
    if verb.en in PERSONAL and subject and thing.english.startswith(f"{own(subject)} "):
        thing.italian = re.sub(r"^\w+ \w+ ", "", thing.italian)  # ho perso il mio passaporto: ho perso il passaporto
        thing.italian = attach(article(thing.italian, thing.gender, thing.number), thing.italian)
    return Action(verb, subject, thing)


SUBJECTS = {
    "who": "I someone you he someone we she someone they I",
    "me": "I",
    "us": "we",
    "asked": "you someone he you she someone they",
    "pronoun": "I you he we I she they",
    "silent": "I you we they",  # Italian drops these, so the sentence starts with the verb
    "child": "I you he I she",
    "man": "I you he I",
    "heshe": "he she",
    "others": "you he we she they",
    "helped": "I we he I she they",
    "someone": "name family name family person family couple",
}


def draw_who(draw: Draw, kind: str) -> Nominal:
    """Draw a subject of a kind in SUBJECTS; `someone` is a named third person."""
    while kind in SUBJECTS:
        kind = draw.cycle(SUBJECTS[kind].split())
    if kind in ("he", "she"):
        return Nominal(draw, kind, {"he": "lui", "she": "lei"}[kind], "s", "m" if kind == "he" else "f", human=True)
    if kind in SUBJECT_PRONOUNS.values():
        person = next(key for key, value in SUBJECT_PRONOUNS.items() if value == kind)
        return Nominal(draw, kind, "", person[1], "m", int(person[0]), human=True)
    if kind == "couple":
        first, second = draw_phrase(draw, "female"), draw_phrase(draw, "male")
        english, italian = f"{first.english} and {second.english}", f"{first.italian} e {second.italian}"
        return Nominal(draw, english, italian, "p", "m", human=True)
    if kind == "name":
        return draw_name(draw, draw.choose("mf"))
    noun = draw.choose(nouns_of(kind))
    number = "p" if draw.chance(0.2) and noun.en in PLURAL_PEOPLE else "s"
    return noun_phrase(draw, noun, draw_determiner(draw, noun, "the"), number)


def draw_name(draw: Draw, gender: str) -> Nominal:
    """Draw the first name of a man or a woman."""
    name = draw_phrase(draw, "male" if gender == "m" else "female")
    return Nominal(draw, name.english, name.italian, "s", gender, human=True)


PLURAL_PEOPLE = FRIENDS | {
    "student", "child", "boy", "girl", "tourist", "brother", "sister", "son", "daughter", "uncle", "aunt",
}  # fmt: skip


@cache
def phrases(name: str) -> tuple[Phrase, ...]:
    """Return the fixed expressions of a name."""
    return tuple(Phrase(*entry.strip().split("=")) for entry in PHRASES[name].split(";"))


def draw_phrase(draw: Draw, name: str) -> Phrase:
    """Draw a fixed expression."""
    return draw.choose(phrases(name))


def draw_clock(draw: Draw) -> Phrase:
    """Draw a time of day, with its preposition: at half past one, all'una e mezza."""
    if draw.chance(0.25):
        time = f"{8 + draw.number() % 15}:{draw.choose(['15', '20', '30', '40', '45'])}"
        return Phrase(f"at {time}", f"alle {time}")
    if draw.chance(0.1):
        return draw.choose([Phrase("at noon", "a mezzogiorno"), Phrase("at midnight", "a mezzanotte")])
    english, italian = draw_hour(draw)
    return Phrase(f"at {english}", contract("a", italian))


def draw_hour(draw: Draw) -> tuple[str, str]:
    """Draw an hour on the dial: half past one, l'una e mezza."""
    names = "one two three four five six seven eight nine ten eleven twelve"
    ore = "l'una|le due|le tre|le quattro|le cinque|le sei|le sette|le otto|le nove|le dieci|le undici|le dodici"
    hour = draw.number() % 12
    english, italian = names.split()[hour], ore.split("|")[hour]
    return draw.choose(
        [
            (f"{english} o'clock", italian),
            (f"half past {english}", f"{italian} e mezza"),
            (f"a quarter past {english}", f"{italian} e un quarto"),
            (f"a quarter to {english}", f"{italian} meno un quarto"),
        ]
    )


UNDECLARED = {"w": "who", "p": "pronoun", "q": "asked", "n": "name"}


def draw_slot(draw: Draw, words: Sequence[str], filled: dict[str, Slot]) -> Slot:
    """Draw what a pattern specifies after the name of a slot; patterns/grammar.txt explains it."""
    kind, *rest = words
    if kind == "[":
        return Phrase(*draw.cycle(rest).split("="))
    bound = filled[rest[0]] if rest and rest[0] in filled else None
    assert bound is None or isinstance(bound, Nominal)
    if kind == "namesake":
        assert bound
        return draw_name(draw, bound.gender)
    if kind in ("family", "person", "name", *SUBJECTS):
        verb = next((word.partition("=")[2] for word in rest), None)
        who = draw_who(draw, kind) if not verb else draw_noun_phrase(draw, draw.choose(nouns_of(kind)), "the", 0, 0)
        return combine(draw, who, verb=verb)
    if kind in PHRASES:
        return draw_phrase(draw, kind)
    if kind == "clock":
        return draw_clock(draw)
    if kind == "date":
        month = draw_phrase(draw, "month")
        day = 2 + draw.number() % 27
        return Phrase(f"{day} {month.english}", f"{day} {month.italian}")
    if kind == "hour":
        english, italian = draw_hour(draw)
        return Phrase(english, f"{'sono' if italian.startswith('le ') else 'è'} {italian}")
    if kind in DEED_KINDS:
        return draw_deed(draw, kind, bound)
    if kind in ("do", "doing", "now", "habit", "plan", "deed", "act", "go"):
        return draw_verb(draw, kind, bound, dict(word.split("=") for word in rest if "=" in word))
    return draw_thing(draw, kind, rest)


DEED_KINDS = {
    f"{name}{use}": [deed for deed in deeds if deed.flags.isdisjoint(unfit)]
    for name, deeds in (("vp", DEEDS), ("to", DEEDS_TO_PEOPLE), ("it", DEEDS_TO_THINGS))
    for use, unfit in (("", ""), ("ing", "="), ("do", "~"), ("done", "^"), ("can", "~%"))
}
DEED_KINDS |= {  # a past tense that looks like one: not "I cut it"
    f"{name}past": [deed for deed in DEED_KINDS[name] if inflect(deed.en, "past") != inflect(deed.en, "base")]
    for name in ("vp", "to", "it")
}


def draw_deed(draw: Draw, kind: str, subject: Nominal | None) -> Action:
    """Draw a deed, and a pronoun for its object that is not its subject."""
    deed = draw.cycle(DEED_KINDS[kind])
    if not deed.case:
        return Action(deed, subject)
    person = subject.person if subject else 2
    if deed in DEEDS_TO_THINGS:
        pronouns = [(3, "s", "m"), (3, "s", "m"), (3, "p", "m")]
    else:
        pronouns = [key for key in OBJECT_PRONOUNS if key != (3, "p", "f") and (key[0] != person or person == 3)]
    return Action(deed, subject, None, draw.cycle(pronouns))


def draw_verb(draw: Draw, kind: str, subject: Nominal | None, options: dict[str, str]) -> Action:
    """Draw a verb that allows this use, and its object."""
    verbs: Sequence[Verb] = ALL_ACTIVITIES if kind == "act" else ALL_VERBS
    if "verbs" in options:
        verbs = [VERB_NAMED[spaced(name)] for name in options["verbs"].split(",")]
    unfit = {"doing": "=", "plan": "!", "deed": "~", "now": "-"}.get(kind)
    verbs = [verb for verb in verbs if unfit not in verb.flags and (kind != "habit" or "*" in verb.flags)]
    return draw_action(draw, draw.cycle(verbs), subject, options.get("det", "any"))


def combine(draw: Draw, phrase: Nominal, **said: str | None) -> Nominal:
    """Record the words that a template combines with this phrase: verbs (verb=, also=) or adjectives (is=)."""
    words = [word for words in said.values() if words for word in words.split(",")]
    draw.combinations.update((spaced(word), phrase.noun.en) for word in words if phrase.noun)
    return phrase


def draw_thing(draw: Draw, determiner: str, words: Sequence[str]) -> Nominal:
    """Draw a noun phrase from words like `the ~ food drink`, `this clothing p` or `a adj room`."""
    options = dict(word.split("=") for word in words if "=" in word)
    marks = {word for word in words if word in ("~", "adj", "p", "sp")}
    nouns = [noun for word in words if word not in marks and "=" not in word for noun in nouns_of(spaced(word))]
    if determiner == "a" or "p" in marks:
        nouns = [noun for noun in nouns if noun.count in ("count", "both")]
    elif determiner == "bare":
        nouns = [noun for noun in nouns if noun.count in ("mass", "both")]
    elif determiner == "some":
        nouns = [noun for noun in nouns if noun.count != "plural"]
    adjective = 1.0 if "adj" in marks else 0.35 if "~" in marks else 0.0
    if "adj" in marks:
        nouns = [noun for noun in nouns if suiting(noun, pred=False)]
    noun = draw.choose(nouns)
    if determiner in FORCED:
        forced = Adjective(determiner, FORCED[determiner], "pre", frozenset())
        phrase = noun_phrase(draw, noun, "the", "s", forced)
        draw.combinations.discard((determiner, noun.en))
        return phrase
    if determiner == "bare" and "p" in marks:
        suited = [a for a in suiting(noun, pred=False) if a.en not in FITTING]
        return combine(
            draw,
            noun_phrase(draw, noun, "bare", "p", draw.choose(suited) if suited and draw.chance(adjective) else None),
            **options,
        )
    plural = 1.0 if "p" in marks else 0.3 if "sp" in marks else 0.0
    return combine(draw, draw_noun_phrase(draw, noun, determiner, plural, adjective), **options)


def fill(template: str, slots: dict[str, Slot], language: str) -> str:
    """Fill a template such as "Where {x:be} {x}?" from its slots."""

    def say(found: re.Match[str]) -> str:
        slot, form = slots[found[1]], found[2] or ""
        if form.startswith("~"):  # {w:~t}: the Italian of t, which agrees with w
            assert isinstance(slot, Nominal)
            return agree(slots[form[1:]].it(""), slot.gender, slot.number)
        if form.startswith("@"):  # {y:@s}: y after the preposition of several words that s is
            first, _, last = slots[form[1:]].it("").rpartition(" ")
            return f"{first} {slot.it(last)}"
        return slot.en(form) if language == "en" else slot.it(form)

    return re.sub(r"\{(\w+)(?::([^}]+))?\}", say, template)


# ----------------------------------------------------------------------------------------------------------------------
# The patterns.


@dataclass(frozen=True)
class Pattern:
    """A line of a file in patterns/. `times` is how often it is drawn; company, whether it may get an opener."""

    name: str
    times: int
    slots: tuple[tuple[str, ...], ...]
    en: str
    it: str
    company: bool


@dataclass
class Sentence:
    """A sentence pair, its English without contractions (`plain`), and the word combinations in it."""

    en: str
    it: str
    plain: str
    fixed: bool = False  # a set phrase as patterns/ has it, which must be in train
    combinations: frozenset[tuple[str, str]] = field(default_factory=frozenset)


def read_slot(text: str) -> tuple[str, ...]:
    """Read a slot such as `w who` or `t [today=oggi, now=adesso]`."""
    name, _, rest = text.strip().partition(" ")
    if rest.startswith("["):
        return (name, "[", *(entry.strip() for entry in rest.strip("[] ").split(",")))
    return (name, *rest.split())


def read_pattern(line: str) -> Pattern:
    """Read a line such as `weight | slots | English | Italian`; a set phrase may lack the first two."""
    *head, en, it = (part.strip() for part in line.split(" | "))
    slots = [read_slot(slot) for slot in head[-1].split(";")] if head and head[-1] else []
    known = {name for name, *_ in slots}
    for name in dict.fromkeys(re.findall(r"\{(\w+)", en + it)):
        if name not in known:  # {name} is short for a slot of that kind; {city2} is a second one
            slots.append((name, UNDECLARED.get(name) or name.rstrip("0123456789")))
    if len(head) == 2:
        return Pattern(f"{en} {it}", round(int(head[0]) * PER_WEIGHT), tuple(slots), en, it, False)
    alone = en.startswith("=")
    times = EACH_PATTERN if slots else 1 if alone else EACH_PHRASE
    return Pattern(f"{en} {it}", times, tuple(slots), en.lstrip("= "), it, not alone)


@cache
def read_patterns() -> tuple[Pattern, ...]:
    """Read all patterns, set phrases first."""
    lines = [line for line in read_folder("patterns").splitlines() if line and not line.startswith("#")]
    patterns = [read_pattern(line) for line in lines]
    return tuple(sorted(patterns, key=lambda pattern: bool(pattern.slots)))


def in_company(draw: Draw, en: str, it: str, named: bool) -> tuple[str, str]:
    """Put an opener (well, sorry) before a sentence, or the name of the person who is addressed after it."""
    kind = {"?": "question", "!": "order"}.get(en[-1], "statement")
    if named or draw.chance(0.35):
        name = draw_phrase(draw, "addressed")
        return f"{en[:-1]}, {name.english}{en[-1]}", f"{it[:-1]}, {name.italian}{it[-1]}"
    opener = draw.cycle(phrases(f"opener.{kind}"))
    return f"{opener.english} {en}", f"{opener.italian} {it}"


def write_sentence(pattern: Pattern, attempt: int) -> Sentence:
    """Draw one sentence of a pattern; the first one is always alone."""
    start = Draw(pattern.name).number() % 9973  # each pattern begins elsewhere in the lists it cycles through
    draw = Draw(f"{pattern.name}/{attempt}", start + attempt)
    slots: dict[str, Slot] = {}
    for name, *words in pattern.slots:
        slots[name] = draw_slot(draw, words, slots)
    english, italian = fill(pattern.en, slots, "en"), fill(pattern.it, slots, "it")
    alone = not attempt or not pattern.company or (pattern.slots and not draw.chance(0.2))
    if not alone:
        english, italian = in_company(draw, english, italian, named=attempt >= EACH_PHRASE and not pattern.slots)
    return Sentence(
        english_sentence(english, draw.chance(0.65 if not pattern.company else 0.8), before_not=draw.chance(0.4)),
        italian_sentence(italian),
        english_sentence(english, contracted=False),
        not attempt and not pattern.slots,
        frozenset(draw.combinations),
    )


@cache
def set_wordings() -> tuple[str, ...]:
    """Return the English of all set phrases and deeds."""
    deeds = [deed.en for deeds in (DEEDS, DEEDS_TO_PEOPLE, DEEDS_TO_THINGS) for deed in deeds]
    options = [option for pattern in read_patterns() for slot in pattern.slots if slot[1] == "[" for option in slot[2:]]
    lists = [entry for entries in PHRASES.values() for entry in entries.split(";")]
    texts = [f" {template.lower()} " for template in templates()]
    return *texts, *(f" {text.partition('=')[0].lower()} " for text in [*deeds, *options, *lists])


def templates() -> list[str]:
    """Return the English of all patterns, with the words of their lists."""
    lists = {
        name: " ".join(entry.partition("=")[0] for entry in entries.split(";")) for name, entries in PHRASES.items()
    }
    return [
        " ".join([pattern.en, *(" ".join([*slot, lists.get(slot[1], "")]) for slot in pattern.slots)])
        for pattern in read_patterns()
    ]


@cache
def of_people() -> set[str]:
    """Return the English adjectives that patterns/people.txt says of everybody."""
    return {phrase.english for name in ("mood", "condition", "trait", "kind") for phrase in phrases(name)}


@cache
def is_held_out(combination: tuple[str, str]) -> bool:
    """Whether this combination is kept out of train, which it cannot be if a set phrase has it."""
    first, noun = combination
    if first in of_people() and any(entry.kind in ("family", "person") for entry in nouns_of(noun)):
        return False
    words = {inflect(first, form) for form in ("base", "present", "past", "done", "ing")}
    if any(noun in text and any(f" {word}" in text for word in words) for text in set_wordings()):
        return False
    return Draw(f"held out/{'/'.join(combination)}").chance(HELD_OUT)


def words_of(text: str) -> list[str]:
    """Split a sentence into words and punctuation marks."""
    return re.findall(r"\w+|[^\w\s]", text)


# words that a sentence may repeat: "your mother ... your father"
REPEATABLE = set(
    re.findall(
        r"\w+",
        """and because been can did for from has have her his know not our some that the their they this too want wants
        was were will you your""",
    )
)


def stutters(text: str) -> bool:
    """Whether a sentence repeats a content word: "the cake or the cake"."""
    words = [word for word in re.findall(r"[a-z]{3,}", text.lower()) if word not in REPEATABLE]
    return len(set(words)) < len(words)


AUXILIARY_OF_BE = re.compile(r"\w (?:do|does|did) not be\b|\b(?:do|does|did) (?!not\b)[\w ]{1,40}(?<! to) be\b")


def is_wanted(pattern: Pattern, sentence: Sentence) -> bool:
    """Whether a sentence neither stutters nor says "does not be", as a template made for other verbs does."""
    text = sentence.plain
    return not AUXILIARY_OF_BE.search(text.lower()) and (pattern.company or not stutters(text))


def forms_of(sentence: Sentence) -> set[str]:
    """Return the word forms of both sides, marked by language."""
    return {f"en {word}" for word in words_of(sentence.en)} | {f"it {word}" for word in words_of(sentence.it)}


def is_free(sentence: Sentence) -> bool:
    """Whether this sentence may be in train."""
    return not any(map(is_held_out, sentence.combinations))


def draw_pool() -> list[Sentence]:
    """Draw sentences from all patterns, each English sentence once, then more for rare words.

    A second round draws more from each pattern, and keeps those with a word form that is still rare in the pool: a
    word-level model learns a form such as "scegliamo" only from sentences that contain it. Where two patterns say the
    same in English, a set phrase wins; two others must agree in Italian.
    """
    pool: dict[str, Sentence] = {}
    counts: Counter[str] = Counter()
    for extra in (False, True):
        for pattern in read_patterns():
            more = 8 if pattern.company else max(2 * pattern.times, 160)
            for attempt in range(pattern.times) if not extra else range(pattern.times, pattern.times + more):
                sentence = write_sentence(pattern, attempt)
                if not is_wanted(pattern, sentence) or (extra and not is_free(sentence)):
                    continue
                known = pool.setdefault(sentence.plain.lower(), sentence)
                if known is not sentence:
                    if known.it != sentence.it and not known.fixed:
                        raise ValueError(f"{sentence.en!r} is both {known.it!r} and {sentence.it!r}")
                    continue
                forms = forms_of(sentence)
                if extra and all(counts[form] >= COMMON for form in forms):
                    del pool[sentence.plain.lower()]
                elif is_free(sentence):
                    counts.update(forms)
    return list(pool.values())


def without_rare(pool: list[Sentence], least: int) -> list[Sentence]:
    """Drop sentences with a word form that occurs in fewer than `least` of them, until there are none left."""
    while True:
        counts = Counter(form for sentence in pool for form in forms_of(sentence))
        rare = {form for form, count in counts.items() if count < least}
        if not rare:
            return pool
        pool = [sentence for sentence in pool if rare.isdisjoint(forms_of(sentence))]


def shuffled(sentences: list[Sentence], name: str) -> list[Sentence]:
    """Put sentences in an order of hashes."""
    return sorted(sentences, key=lambda sentence: Draw(f"{name}/{sentence.en}").number())


def take_spare(sentences: dict[str, Sentence], counts: Counter[str], number: int) -> list[Sentence]:
    """Remove and return the first `number` sentences without a word form that the others need."""
    taken = []
    for sentence in list(sentences.values()):
        if len(taken) == number:
            break
        forms = forms_of(sentence)
        if not sentence.fixed and all(counts[form] > RARE for form in forms):
            taken.append(sentences.pop(sentence.en))
            counts.subtract(forms)
    return taken


@cache
def make_splits() -> dict[str, tuple[Sentence, ...]]:
    """Make the three splits. Every word form of train stays in at least RARE of its sentences."""
    pool = shuffled(draw_pool(), "order")
    seen = {sentence.en: sentence for sentence in without_rare([s for s in pool if is_free(s)], RARE)}
    counts = Counter(form for sentence in seen.values() for form in forms_of(sentence))
    unseen = iter([s for s in pool if not is_free(s) and forms_of(s) <= counts.keys()])
    splits: dict[str, tuple[Sentence, ...]] = {}
    for name in ("validation", "test"):
        held_out = round(SIZES[name] * HELD_OUT_SENTENCES)
        chosen = list(islice(unseen, held_out)) + take_spare(seen, counts, SIZES[name] - held_out)
        splits[name] = tuple(shuffled(chosen, name))
    take_spare(seen, counts, len(seen) - SIZES["train"])
    splits = {"train": tuple(seen.values()), **splits}
    wrong = {name: len(splits[name]) for name in SIZES if len(splits[name]) != SIZES[name]}
    if wrong:
        raise ValueError(f"the pool of {len(pool)} sentences gives {wrong} instead of {SIZES}: change POOL")
    return splits


def as_tsv(sentences: Sequence[Sentence]) -> str:
    """Return the text of a file."""
    return "en\tit\n" + "".join(f"{sentence.en}\t{sentence.it}\n" for sentence in sentences)


def new_ones(shown: set[tuple[str, str]], trained: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the combinations that train never shows, neither in a pattern's slots nor in a set phrase."""
    return {pair for pair in shown - trained if is_held_out(pair)}


def figures() -> str:
    """Return the table of figures that README.md holds."""
    splits = make_splits()
    trained = {combination for sentence in splits["train"] for combination in sentence.combinations}
    rows = ["| | " + " | ".join(splits) + " |", "|---|" + "---:|" * len(splits)]

    def row(name: str, cells: list[str]) -> None:
        rows.append(f"| {name} | {' | '.join(cells)} |")

    row("pairs", [f"{len(sentences):,}" for sentences in splits.values()])
    for side, language in (("en", "English"), ("it", "Italian")):
        texts = [[words_of(getattr(sentence, side)) for sentence in sentences] for sentences in splits.values()]
        row(f"{language} words and marks", [f"{sum(map(len, lines)):,}" for lines in texts])
        row(f"{language}, distinct", [f"{len({word for line in lines for word in line}):,}" for lines in texts])
        row(f"{language}, mean length", [f"{sum(map(len, lines)) / len(lines):.1f}" for lines in texts])
        row(f"{language}, shortest to longest", [f"{min(map(len, x))} to {max(map(len, x))}" for x in texts])
    shown = [{pair for sentence in sentences for pair in sentence.combinations} for sentences in splits.values()]
    row("combinations", [f"{len(pairs):,}" for pairs in shown])
    row("combinations that train never shows", [f"{len(new_ones(pairs, trained)) / len(pairs):.0%}" for pairs in shown])
    return "\n".join(rows)


def files() -> Iterator[tuple[Path, bytes]]:
    """Yield the path and the bytes of each file: the three splits, and README.md with its figures."""
    for name, sentences in make_splits().items():
        yield FOLDER / f"{name}.tsv", unicodedata.normalize("NFC", as_tsv(sentences)).encode()
    readme = FOLDER / "README.md"
    head, begin, rest = readme.read_text(encoding="utf-8").partition("<!-- figures -->\n")
    _, end, tail = rest.partition("<!-- end of figures -->\n")
    yield readme, f"{head}{begin}{figures()}\n{end}{tail}".encode()


def main() -> int:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(description="Make the bundled English-Italian corpus.")
    parser.add_argument("--check", action="store_true", help="compare the files on disk instead of writing them")
    check = parser.parse_args().check
    stale = []
    for path, content in files():
        if not check:
            path.write_bytes(content)
        elif not path.is_file() or path.read_bytes() != content:
            stale.append(path.name)
    if stale:
        print(f"out of date: {', '.join(stale)}. Run this script without --check.", file=sys.stderr)
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
