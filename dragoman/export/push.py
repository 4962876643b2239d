"""Put a run on the Hugging Face hub, where others can use it by name.

    dragoman push anna/phrasebook --run runs/phrasebook --license cc-by-4.0
    dragoman translate --run hf:anna/phrasebook "Where is the station?"

The repository gets the best checkpoint of the run without what only training needs, the files of transformers and of
CTranslate2 as far as these can express the model, and a card with scores, data and limits. The corpus stays here. A
second push replaces what the first one wrote.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from dragoman import checkpoint, console, hub, resources
from dragoman.averaging import TO_RESUME
from dragoman.errors import ConfigError, StorageError
from dragoman.export import card, formats
from dragoman.export.export import export
from dragoman.export.formats import Format
from dragoman.translation.loading import RESULT
from dragoman.translation.translator import Translator

PLACES: dict[Format, str] = {"huggingface": "", "ctranslate2": "ctranslate2"}


def main(options: argparse.Namespace) -> None:
    """Push a run, and print its address. Raises ConfigError, and StorageError if the hub refuses or is not reached."""
    translator = Translator(options.run, "cpu")
    with tempfile.TemporaryDirectory(prefix="dragoman-push-") as temporary:
        folder = Path(temporary, "repository")
        copy_run(translator, options.run, folder / hub.RUN)
        kinds: list[Format] = [
            kind for kind in PLACES if add_export(translator, options.run, kind, folder, Path(temporary))
        ]
        text = card.hub_card(translator, options.run, options.repository, options.license, kinds)
        (folder / "README.md").write_text(text, encoding="utf-8")
        print(upload(folder, options.repository, options.private, f"Step {translator.step} of {options.run.name}"))


def copy_run(translator: Translator, run: Path, folder: Path) -> None:
    """Copy the checkpoint of a translator, without what only training needs, and the scores of its run."""
    names = [name for name in checkpoint.read_manifest(translator.path)["files"] if name not in TO_RESUME]
    files = checkpoint.read(translator.path, names).files
    folder.mkdir(parents=True)
    checkpoint.save(folder / "checkpoints", translator.step, files)
    (folder / "config.yaml").write_bytes(files["config.yaml"])
    if (run / RESULT).exists():
        (folder / RESULT).write_bytes(checkpoint.read_plain(run / RESULT))


def add_export(translator: Translator, run: Path, kind: Format, folder: Path, temporary: Path) -> bool:
    """Add an export to a repository; one line says why if that cannot be."""
    config = translator.config
    reason = formats.unsupported(kind, config.model, translator.source.is_of_words, bool(config.data.several))
    if reason:
        console.warn(f"without the files of {kind}: {reason}")
        return False
    resources.require("export", formats.WRITERS[kind], kind)
    made = temporary / kind
    export(translator, run, kind, made)
    (made / "README.md").unlink()
    shutil.copytree(made, folder / PLACES[kind], dirs_exist_ok=True)
    return True


def upload(folder: Path, repository: str, private: bool, message: str) -> str:
    """Make a folder the content of a repository, in one commit. Returns its address. Raises as `main` does."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    api = HfApi()
    try:
        address = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            commit_message=message,
            delete_patterns=[f"{hub.RUN}/*", *(f"{place}/*" for place in PLACES.values() if place)],
        )
    except HFValidationError as error:
        raise ConfigError(f"{repository} is not a name for the hub: {error}") from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        login = ": run `hf auth login`, or set HF_TOKEN to a token that may write" if status in (401, 403) else ""
        raise StorageError(f"the hub refuses {repository} (status {status}){login}.") from None
    except Exception as error:
        if not hub.is_of_network(error):
            raise
        raise StorageError(f"the hub cannot be reached: {' '.join(str(error).split())[:200]}") from None
    return str(address)
