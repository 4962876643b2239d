"""Serve a trained model over HTTP: a web page that translates as you type, and a JSON API.

    dragoman serve --run runs/phrasebook                         # then open http://127.0.0.1:8000
    dragoman serve --run runs/en-it --run runs/it-en             # several directions
    curl -H "Content-Type: application/json" -d '{"text": "Where is the station?"}' http://127.0.0.1:8000/translate

/docs describes the API, which is LibreTranslate's, too. There is no encryption, and no password without --api-key: use
the server on this computer, on a network of people you trust, or behind a proxy. On Ctrl-C or SIGTERM it answers the
requests it has accepted, then exits with 130 or 143, within ten seconds; requests that need more time are asked to come
back later.
"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import ExitStack, closing
from pathlib import Path

from starlette.types import ASGIApp

from dragoman import console
from dragoman.device import choose_device, tune_device
from dragoman.errors import ConfigError
from dragoman.server.access import Access, read_keys
from dragoman.server.application import create_application
from dragoman.server.batcher import Batcher
from dragoman.server.connection import listen, make_server, serve
from dragoman.server.limits import Limits
from dragoman.server.models import Models
from dragoman.server.schemas import DirectionInfo
from dragoman.server.security import is_loopback, only_for
from dragoman.translation.loading import usual_run
from dragoman.translation.translator import Translator


def main(options: argparse.Namespace) -> None:
    """Run the server until it is asked to stop. Raises ConfigError, CheckpointError and DataError."""
    budgets = Limits(**{name: vars(options)[name] for name in vars(Limits()) if name in options})
    keys = read_keys(options.api_key) if options.api_key else []
    with listen(options.host, options.port, budgets.max_connections) as listener, ExitStack() as stack:
        tune_device(choose_device(options.device))
        paths = [options.checkpoint] if options.checkpoint else options.run or [usual_run()]
        translators = [load(path, options) for path in paths]
        models = Models([stack.enter_context(closing(Batcher(each, budgets))) for each in translators])
        host, port = listener.getsockname()[:2]
        host = f"[{host}]" if ":" in host else host
        if not is_loopback(host) and not keys:
            console.warn(
                "warning: anyone on the network who can reach this computer can use this server: there is no --api-key"
            )
        served = ", ".join(filter(None, (_shown(each) for each in models.directions())))
        console.warn(f"http://{host}:{port} translates {served}; press Ctrl-C to stop")
        access = Access(keys, options.rate, options.public_name, options.cors)
        app: ASGIApp = create_application(models, access, options.metrics)
        if is_loopback(host) or options.public_name:
            app = only_for(app, options.public_name)
        asyncio.run(serve(make_server(app, listener), listener, models.give_up))


def load(path: Path | list[Path], options: argparse.Namespace) -> Translator:
    """A translator that has translated something: so it fails before anyone connects, and the first request is fast."""
    translator = Translator(path, options.device, options.overrides, engine="auto")
    if options.glossary:
        if translator.config.data.several or len(options.run or []) > 1:
            raise ConfigError(
                "--glossary is for one direction, but several are served: send the terms with each request, in its "
                "field glossary."
            )
        translator = translator.with_glossary(options.glossary)
    translator.translate(["."])
    return translator


def _shown(direction: DirectionInfo) -> str:
    languages = " to ".join(filter(None, (direction.source_lang, direction.target_lang)))
    return f"{languages} (run {direction.run}, step {direction.step})"
