"""Serve a trained model over HTTP: a web page that translates as you type, and a JSON API.

    dragoman serve --run runs/phrasebook                         # then open http://127.0.0.1:8000
    curl -H "Content-Type: application/json" -d '{"text": "Where is the station?"}' http://127.0.0.1:8000/translate

/openapi.json describes the API. There is no password and no encryption: use the server on this computer, or on a
network of people you trust. On Ctrl-C or SIGTERM it answers the requests it has accepted, then exits with 130 or 143,
within ten seconds; requests that need more time are asked to come back later.
"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import closing

from dragoman import console
from dragoman.device import choose_device, tune_device
from dragoman.errors import ConfigError
from dragoman.server.application import create_application
from dragoman.server.batcher import Batcher
from dragoman.server.connection import listen, make_server, serve
from dragoman.server.limits import Limits
from dragoman.server.schemas import ServerInfo
from dragoman.server.security import is_loopback, only_for_this_computer
from dragoman.translation.loading import usual_run
from dragoman.translation.translator import Translator


def main(options: argparse.Namespace) -> None:
    """Run the server until it is asked to stop. Raises ConfigError, CheckpointError and DataError."""
    budgets = Limits(**{name: vars(options)[name] for name in vars(Limits()) if name in options})
    with listen(options.host, options.port, budgets.max_connections) as listener:
        tune_device(choose_device(options.device))
        path = options.checkpoint or options.run or usual_run()
        translator = Translator(path, options.device, options.overrides, engine="auto")
        if options.glossary:
            if translator.config.data.several:
                raise ConfigError(
                    "--glossary is for one direction, but this model has several: send the terms with each request, "
                    "in its field glossary."
                )
            translator = translator.with_glossary(options.glossary)
        translator.translate(["."])  # a warm-up: fails before anyone connects, and makes the first request fast
        info = ServerInfo.of(translator, budgets)
        host, port = listener.getsockname()[:2]
        host = f"[{host}]" if ":" in host else host
        if not is_loopback(host):
            console.warn("warning: anyone on the network who can reach this computer can use this server: no password")
        languages = " to ".join(filter(None, (info.source_lang, info.target_lang)))
        languages = ", ".join(f"{each.source_lang} to {each.target_lang}" for each in info.directions) or languages
        console.warn(
            f"http://{host}:{port} translates {languages} (run {info.run}, step {info.step}); press Ctrl-C to stop"
        )
        with closing(Batcher(translator, budgets)) as batcher:
            app = create_application(batcher, info)
            server = make_server(only_for_this_computer(app) if is_loopback(host) else app, listener)
            asyncio.run(serve(server, listener, batcher.give_up))
