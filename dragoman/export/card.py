"""The model card of an export: its README.md, made from the templates in the folder `templates`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from dragoman import checkpoint
from dragoman.architectures.portable_weights import position_table
from dragoman.console import one_line
from dragoman.corpora.prepared_files import load_head
from dragoman.directions import split_tag, tag_of
from dragoman.export import formats
from dragoman.export.formats import Format
from dragoman.export.to_argos import package_name
from dragoman.export.verification import QuantizationCost, Sample
from dragoman.model import Transformer
from dragoman.serialization import load_json
from dragoman.settings import EOS, SOS
from dragoman.translation.translator import Translator

_templates = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=StrictUndefined,
    autoescape=select_autoescape(),  # for HTML only, and these are Markdown and Python
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_templates.filters.update(json=json.dumps, python=repr, one_line=one_line)


def card(translator: Translator, run: Path, kind: Format, sample: Sample, cost: QuantizationCost | None) -> str:
    """Describe an export: what it is, how good it is, how to load it, and what it cannot do."""
    config = translator.config
    directions = config.data.several or [translator.usual]
    return _templates.get_template("card.md.jinja").render(
        name=config.run.name,
        kind=kind,
        languages=list(dict.fromkeys(language for direction in directions for language in direction)),
        title=", ".join(" to ".join(direction) for direction in directions),
        parameters=sum(p.numel() for p in translator.model.parameters()),
        step=translator.step,
        pair_counts=pair_counts(translator),
        downloads=_trained_on(translator).get("downloads", {}),
        result=_scores(run, translator.step),
        verified=len(sample.flat),
        cost=cost,
        packages=formats.READERS[kind],
        usage=usage(kind, translator, sample.sources[0]),
        limitations=limitations(kind, translator),
    )


def hub_card(translator: Translator, run: Path, repository: str, licence: str, kinds: Sequence[Format]) -> str:
    """Describe a repository on the hub: the README.md with metadata for its search."""
    from huggingface_hub import EvalResult, ModelCardData

    config, result = translator.config, _scores(run, translator.step)
    directions = config.data.several or [translator.usual]
    languages = list(dict.fromkeys(language for direction in directions for language in direction if language))
    title = ", ".join(" to ".join(filter(None, direction)) for direction in directions)
    metadata = ModelCardData(
        language=languages,
        license=licence,
        pipeline_tag="translation",
        tags=["translation", "dragoman"],
        library_name="transformers" if "huggingface" in kinds else None,
        model_name=config.run.name,
        eval_results=[
            EvalResult("translation", f"{config.run.name}-{split}", f"{split} pairs of the run", metric, scores[metric])
            for split, scores in result.items()
            for metric in ("bleu", "chrf")
            if metric in scores
        ],
        ignore_metadata_errors=True,
    )
    example = next((split_tag(source)[1] for source, _ in load_head(run / "data" / "validation.tsv", 1)), "Hello!")
    return _templates.get_template("hub.md.jinja").render(
        metadata=metadata.to_yaml().strip(),
        name=config.run.name,
        title=title,
        repository=repository,
        kinds=kinds,
        parameters=sum(p.numel() for p in translator.model.parameters()),
        step=translator.step,
        example=example,
        usage=usage("huggingface", translator, example) if "huggingface" in kinds else "",
        pair_counts=pair_counts(translator),
        downloads=_trained_on(translator).get("downloads", {}),
        result=result,
        limitations=limitations("huggingface", translator) if "huggingface" in kinds else [],
    )


def pair_counts(translator: Translator) -> dict[str, int]:
    """Count the pairs of each split that were kept."""
    counts = _trained_on(translator)["counts"]
    return {
        split: count["read"] - sum(number for name, number in count.items() if name not in ("read", "places"))
        for split, count in counts.items()
    }


def _trained_on(translator: Translator) -> dict[str, Any]:
    return load_json(checkpoint.read(translator.path, ["trained_on.json"]).files["trained_on.json"])


def _scores(run: Path, step: int) -> dict[str, Any]:
    """Return the scores of validation and test in result.json that belong to this step."""
    path = run / "result.json"
    result = load_json(checkpoint.read_plain(path)) if path.exists() else {}
    return {split: result[split] for split in ("validation", "test") if result.get(split, {}).get("step") == step}


def limitations(kind: Format, translator: Translator) -> list[str]:
    """List the features that the export lacks."""
    assert isinstance(translator.model, Transformer)
    text = _templates.get_template("limitations.md.jinja").render(
        kind=kind,
        data=translator.config.data,
        decoding=translator.config.decoding,
        max_tokens=len(position_table(translator.model.encoder.embedding)) - 1,
        tags=list(translator.source.tags),
        whole_words=translator.source.is_of_words,
        placeholders=bool(translator.source.placeholders),
        one_tokenizer=_has_one_tokenizer(translator),
    )
    return text.splitlines()


def _has_one_tokenizer(translator: Translator) -> bool:
    return translator.source.fingerprint == translator.target.fingerprint


def usage(kind: Format, translator: Translator, text: str) -> str:
    """Write Python code that loads the export from the current folder and translates a text."""
    direction, text = split_tag(text) if translator.config.data.several else (None, text)
    tags = [tag_of(direction.target)] if direction else []
    data, model = translator.config.data, translator.config.model
    codes = {"from_code": data.source_lang or "", "to_code": data.target_lang}
    return _templates.get_template(f"use_{kind}.py.jinja").render(
        text=text,
        tags=tags,
        tag_ids=[translator.source.tags[tag] for tag in tags],
        whole_words=translator.source.is_of_words,
        one_tokenizer=_has_one_tokenizer(translator),
        layers=model.decoder_layers,
        heads=model.kv_heads or model.n_heads,
        head_width=model.d_model // model.n_heads,
        sos=SOS,
        eos=EOS,
        codes=codes,
        package=package_name(codes),
    )
