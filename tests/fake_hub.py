"""A small stand-in for the Hugging Face hub: the part of its API that huggingface_hub uses, on loopback."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


class FakeHub(ThreadingHTTPServer):
    """Repositories by name: their files. Only requests with the token `write` may change them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.sizes: dict[str, int] = {}  # that the hub claims, by file
        self.objects: dict[str, bytes] = {}

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def commit(self, name: str) -> str:
        """The hash of a repository's content."""
        content = json.dumps(
            [[path, hashlib.sha256(data).hexdigest()] for path, data in sorted(self.repositories[name].items())]
        )
        return hashlib.sha1(content.encode()).hexdigest()


class Handler(BaseHTTPRequestHandler):
    server: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def answer(self, content: Any = None, status: int = 200, headers: dict[str, str] | None = None) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        name = "/".join(path.removeprefix("/api/models").split("/")[1:3])
        files = self.server.repositories.get(name)
        if files is None:
            self.answer({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        elif path.startswith("/api/models/"):
            commit = self.server.commit(name)
            siblings = [
                {"rfilename": each, "size": self.server.sizes.get(each, len(data))} for each, data in files.items()
            ]
            tree = [{"type": "file", "path": each, "size": len(data), "oid": "0" * 40} for each, data in files.items()]
            self.answer(tree if "/tree/" in path else {"id": name, "sha": commit, "siblings": siblings})
        else:
            wanted = path.split("/resolve/", 1)[1].split("/", 1)[1]
            data = files.get(wanted, b"")
            headers = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": self.server.commit(name)}
            self.answer(data, 200 if wanted in files else 404, headers)

    def do_PUT(self) -> None:
        self.server.objects[self.path.rpartition("/")[2]] = self.body()
        self.answer({})

    def do_POST(self) -> None:
        body, path = self.body(), unquote(self.path.partition("?")[0])
        if self.headers.get("authorization") != "Bearer write" and not path.endswith("/verify"):
            self.answer({"error": "Unauthorized"}, 401)
            return
        name = "/".join(path.removeprefix("/api/models").split("/")[1:3])
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            self.server.repositories.setdefault(name, {".gitattributes": b""})
            self.answer({"url": f"{self.server.address}/{name}"})
        elif "/preupload/" in path:
            files = json.loads(body)["files"]
            modes = {each["path"]: "lfs" if each["path"].endswith(".safetensors") else "regular" for each in files}
            self.answer(
                {"files": [{"path": each, "uploadMode": mode, "shouldIgnore": False} for each, mode in modes.items()]}
            )
        elif path.endswith("/info/lfs/objects/batch"):
            objects = json.loads(body)["objects"]
            put = lambda oid: {"upload": {"href": f"{self.server.address}/objects/{oid}"}}  # noqa: E731
            self.answer(
                {"transfer": "basic", "objects": [{**each, "actions": put(each["oid"])} for each in objects]},
                headers={"Content-Type": "application/vnd.git-lfs+json"},
            )
        elif "/commit/" in path:
            self.commit(self.server.repositories[name], [json.loads(line) for line in body.splitlines()])
            commit = self.server.commit(name)
            self.answer(
                {"success": True, "commitOid": commit, "commitUrl": f"{self.server.address}/{name}/commit/{commit}"}
            )
        else:
            self.answer({})

    def commit(self, files: dict[str, bytes], lines: list[dict[str, Any]]) -> None:
        for line in lines:
            value = line["value"]
            match line["key"]:
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    files[value["path"]] = self.server.objects[value["oid"]]
                case "deletedFile" | "deletedFolder":
                    for path in [each for each in files if fnmatch(each, value["path"])]:
                        del files[path]


@contextmanager
def running() -> Iterator[FakeHub]:
    hub = FakeHub()
    thread = threading.Thread(target=hub.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()
