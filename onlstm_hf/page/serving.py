"""Local file server for the page, based on the standard library."""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _Files(SimpleHTTPRequestHandler):
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".js": "text/javascript"}  # Windows may name another

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, *arguments) -> None:
        """Disables the request log."""


def build_server(folder: Path, host: str = "127.0.0.1", port: int = 7860) -> ThreadingHTTPServer:
    """Builds a server for the files of a folder; port 0 selects a free port, and a used port raises an `OSError`."""
    return ThreadingHTTPServer((host, port), partial(_Files, directory=str(folder)))
