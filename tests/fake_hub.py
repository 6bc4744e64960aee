"""A Hugging Face Hub on the loopback address, which serves files as they are, torn, or not at all."""

import hashlib
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
    """Files by `repository/name`; a file in `torn` is cut off after so many bytes, as often as its number says."""

    files: dict[str, bytes] = field(default_factory=dict)
    torn: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    address: str = ""


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(with_content=False)

        def do_GET(self) -> None:
            self._answer(with_content=True)

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
        yield hub
