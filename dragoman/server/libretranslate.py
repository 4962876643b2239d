"""The API of LibreTranslate, so that its clients can talk to this server, too.

    curl -d q="Where is the station?" -d source=en -d target=it http://127.0.0.1:8000/translate

Its requests are JSON, forms or parameters of the address; `q` tells them from our own. Described at
https://docs.libretranslate.com/api/operations/.
"""

from __future__ import annotations

from typing import Any

from babel import Locale, UnknownLocaleError
from fastapi import HTTPException
from pydantic import ValidationError

from dragoman.corpora.language_id import identify
from dragoman.directions import base_code
from dragoman.server.models import Models
from dragoman.server.schemas import LibreRequest, ServerInfo, TranslateRequest
from dragoman.translation.output import n_best
from dragoman.translation.results import Translation

OURS = {"text": "q", "texts": "q", "source_lang": "source", "target_lang": "target", "n_best": "alternatives"}


def read_request(values: dict[str, Any], models: Models) -> tuple[TranslateRequest, list[dict[str, Any]]]:
    """Turn a request into one of our own. Returns it with the languages that were detected, if they were asked for.

    Raises HTTPException.
    """
    for name in ("q", "source", "target"):
        if not values.get(name) and values.get(name) != "":
            ours = next((each for each, theirs in OURS.items() if theirs == name and each in values), None)
            beside = "source and target" if name == "q" else "q"
            hint = f": beside {beside}, {ours} is called {name}" if ours else ""
            raise HTTPException(400, f"Invalid request: missing {name} parameter{hint}")
    try:
        asked = LibreRequest.model_validate(values)
        texts = [asked.q] if isinstance(asked.q, str) else asked.q
        detected = [detect(text, models) for text in texts] if asked.source == "auto" else []
        if len({each["language"] for each in detected}) > 1:
            raise HTTPException(400, "the texts are in several languages: send those of each language apart")
        source = detected[0]["language"] if detected else asked.source
        for language, known in ((source, 0), (asked.target, 1)):
            if language not in {direction[known] for direction in models.by_direction}:
                raise HTTPException(400, f"{language} is not supported")
        if source == asked.target:
            raise HTTPException(
                400, f"the text and its translation are both in {source}: there is nothing to translate"
            )
        request = TranslateRequest(
            texts=texts, source_lang=source, target_lang=asked.target, format=asked.format,
            n_best=asked.alternatives + 1 if asked.alternatives else None,
        )  # fmt: skip
    except ValidationError as error:
        first, *_ = error.errors(include_url=False, include_input=False, include_context=False)
        raise HTTPException(400, f"Invalid request: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    return request, detected


def answer(
    values: dict[str, Any], detected: list[dict[str, Any]], translations: list[Translation], target: str
) -> dict[str, Any]:
    """The answer: a list of each thing if `q` was one."""
    content: dict[str, Any] = {"translatedText": [each.text for each in translations]}
    if detected:
        content["detectedLanguage"] = detected
    if wanted := int(values.get("alternatives") or 0):
        content["alternatives"] = [
            [] if "\n" in each.source else list(dict.fromkeys(n_best(each, wanted + 1, target)))[1:]
            for each in translations
        ]
    return content if isinstance(values["q"], list) else {name: value[0] for name, value in content.items()}


def detect(text: str, models: Models) -> dict[str, Any]:
    """The language of a text among those that can be translated from, as far as that is clear, and a confidence."""
    language, confidence = identify(text)
    sources = list(dict.fromkeys(direction.source for direction in models.by_direction if direction.source))
    chosen = next((each for each in sources if base_code(each) == language), None)
    if chosen is None and len(sources) == 1:
        chosen, confidence = sources[0], 0.0
    return {"language": chosen or language, "confidence": round(100 * float(confidence), 1)}


def languages(models: Models) -> list[dict[str, Any]]:
    """The languages, by name, with what each is translated into."""
    targets: dict[str, list[str]] = {}
    for source, target in models.by_direction:
        targets.setdefault(target, [])
        if source:
            targets.setdefault(source, []).append(target)
    return [{"code": code, "name": language_name(code), "targets": into} for code, into in targets.items()]


def settings(info: ServerInfo, needs_key: bool) -> dict[str, Any]:
    """What clients ask for before they show a page."""
    codes = {"source": info.source_lang or "", "target": info.target_lang}
    return {
        "apiKeys": needs_key,
        "keyRequired": needs_key,
        "charLimit": info.characters,
        "filesTranslation": True,
        "supportedFilesFormat": info.documents,
        "suggestions": False,
        "frontendTimeout": 500,
        "language": {side: {"code": code, "name": language_name(code)} for side, code in codes.items()},
    }


def language_name(code: str) -> str:
    """The English name of a language; its code if it has none."""
    try:
        return Locale.parse(code, sep="-" if "-" in code else "_").get_display_name("en") or code
    except (UnknownLocaleError, ValueError):
        return code
