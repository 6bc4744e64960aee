"""A Hugging Face Hub on the loopback address, which serves files whole, torn, or not at all, and takes uploads."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    """Files by `repository/name`; a file in `torn` is cut off after so many bytes, as often as its number says.

    A file in `flipped` is served with one wrong byte, as often as its number says.
    Uploads need `token`, if there is one. `gone` closes the connection after so many more requests.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    torn: dict[str, int] = field(default_factory=dict)
    flipped: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    repositories: dict[str, dict[str, object]] = field(default_factory=dict)
    """What was asked of `create_repo`, by the repository's name."""
    objects: dict[str, bytes] = field(default_factory=dict)
    """Large files by their SHA-256, until a commit names them."""
    token: str | None = None
    gone: int | None = None
    address: str = ""


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(with_content=False)

        def do_GET(self) -> None:
            self._answer(with_content=True)

        def do_PUT(self) -> None:
            hub.objects[self.path.rpartition("/")[2]] = self._body()
            self._json({})

        def do_POST(self) -> None:
            path = self.path.partition("?")[0]
            hub.asked.append(f"POST {path}")
            body = self._body()
            if hub.gone is not None:
                hub.gone -= 1
                if hub.gone < 0:
                    self.close_connection = True
                    return
            if path == "/api/validate-yaml":  # needs no token
                self._json({"errors": [], "warnings": []})
            elif hub.token is not None and self.headers.get("Authorization") != f"Bearer {hub.token}":
                self._json({"error": "Invalid username or password."}, 401)
            elif path == "/api/repos/create":
                asked = json.loads(body)
                name = f"{asked['organization']}/{asked['name']}"
                known = name in hub.repositories
                hub.repositories.setdefault(name, asked)
                self._json({"url": f"{hub.address}/{name}"}, 409 if known else 200)
            elif "/preupload/" in path:
                modes = [(file["path"], file["path"].endswith("safetensors")) for file in json.loads(body)["files"]]
                files = [
                    {"path": name, "uploadMode": "lfs" if is_large else "regular", "shouldIgnore": False}
                    for name, is_large in modes
                ]
                self._json({"files": files})
            elif path.endswith("/info/lfs/objects/batch"):
                objects = [
                    {**one, "actions": {"upload": {"href": f"{hub.address}/objects/{one['oid']}", "header": {}}}}
                    for one in json.loads(body)["objects"]
                ]
                self._json({"transfer": "basic", "objects": objects})
            elif "/commit/" in path:
                _, _, kind, owner, name, *_ = path.split("/")
                prefix = "" if kind == "models" else f"{kind}/"
                for line in map(json.loads, body.splitlines()):
                    value = line["value"]
                    if line["key"] == "file":
                        hub.files[f"{prefix}{owner}/{name}/{value['path']}"] = base64.b64decode(value["content"])
                    elif line["key"] == "lfsFile":
                        hub.files[f"{prefix}{owner}/{name}/{value['path']}"] = hub.objects[value["oid"]]
                self._json({"commitUrl": f"{hub.address}/{owner}/{name}/commit/{COMMIT}", "commitOid": COMMIT})
            else:
                self._json({"error": f"nothing at {path}"}, 404)

        def _body(self) -> bytes:
            if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def _json(self, content: object, status: int = 200) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _answer(self, with_content: bool) -> None:
            path = self.path.lstrip("/").partition("?")[0].replace("/resolve/main/", "/")
            path = path.replace(f"/resolve/{COMMIT}/", "/")
            hub.asked.append(f"{self.command} {path}")
            content = hub.files.get(path)
            if content is None:
                self.send_response(404)
                self.send_header("X-Error-Code", "EntryNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            first = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0] or 0)
            self.send_response(206 if first else 200)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(content) - first))
            if first:
                self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            if with_content and hub.flipped.get(path, 0) > 0:
                hub.flipped[path] -= 1
                content = content[:-1] + bytes([content[-1] ^ 1])
            if with_content and hub.torn.get(path, 0) > 0:
                hub.torn[path] -= 1
                self.wfile.write(content[first : first + max((len(content) - first) // 2, 1)])
                self.wfile.flush()
                self.close_connection = True
            elif with_content:
                self.wfile.write(content[first:])

        def log_message(self, *arguments: object) -> None:
            """Requests are kept in `asked`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def fake_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub that huggingface_hub asks instead of the real one, with an empty cache."""
    from huggingface_hub import constants

    with serving(FakeHub()) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.address + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # large files by Git LFS
        yield hub
