"""Shows a written page on this machine, with the standard library's server for files."""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _Files(SimpleHTTPRequestHandler):
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {
        ".js": "text/javascript",
        ".json": "application/json",
        ".svg": "image/svg+xml",
        ".bin": "application/octet-stream",
    }

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, *arguments) -> None:
        """Writes nothing."""


def build_server(folder: Path, host: str = "127.0.0.1", port: int = 7860) -> ThreadingHTTPServer:
    """A server for the files of a folder, on a port that is free if it is 0; a port that is taken is an `OSError`."""
    return ThreadingHTTPServer((host, port), partial(_Files, directory=str(folder)))
