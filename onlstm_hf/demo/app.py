"""The server of the web page: the list of what it answers, and how it runs.

    /                       the page, with the result that the fields of the address ask for
    /static/...             its style, script and icon
    /download/figure.svg    the figure of one sentence or pair; also figure.png, the brackets as tree.txt, and the
                            numbers as table.tsv and table.json

These are all, for GET and HEAD; there is nothing to send to the server but the address. The fields are `text`, or
`grammatical` and `ungrammatical`, and `model`, `layer`, `bias`, `treebank` and `beside` (`Choices`).
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qsl

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, PlainTextResponse, Response
    from starlette.routing import Route

    from .connection import MAX_CONNECTIONS_OF_CLIENT, BoundedConnection
    from .guard import MAX_HEADER_BYTES, METHODS, Guard, client_of
    from .pages import FILES, content_security_policy, file_content, page_html
except ImportError as error:
    raise ImportError('the demo needs its extra: pip install "onlstm_hf[demo]"') from error

from ..utils.checkpoints import default_model
from .drawing import draw_png
from .fair_queue import FairQueue
from .models import DemoModels

FIELDS = ("text", "grammatical", "ungrammatical", "model", "layer", "bias", "treebank", "beside")
MAX_FIELDS = 50
MAX_WAITING_OF_CLIENT = 50
MEDIA_TYPES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".txt": "text/plain",
    ".tsv": "text/tab-separated-values",
    ".json": "application/json",
}
Result = TypeVar("Result")


def build_app(models: DemoModels, allowed_hosts: Sequence[str] = (), space_host: str | None = None) -> Starlette:
    """The page of these models.

    Args:
        models: what it shows.
        allowed_hosts: names that the server has beside `localhost` and its own address.
        space_host: the name of the Space of the Hub that it runs in, behind a proxy and in a frame of the Hub's page.
    """
    # Models read, and pictures are drawn, one request at a time; the thread leaves the server free for others.
    reading, drawing = FairQueue(MAX_WAITING_OF_CLIENT), FairQueue(MAX_WAITING_OF_CLIENT)
    thread = ThreadPoolExecutor(max_workers=1)

    def client(request: Request) -> str:
        return client_of(request.scope, behind_proxy=space_host is not None)

    async def in_turn(request: Request, work: Callable[..., Result], *arguments) -> Result:
        async with reading.turn(client(request)):
            return await asyncio.get_running_loop().run_in_executor(thread, work, *arguments)

    async def page(request: Request) -> Response:
        scheme = request.url.scheme if space_host is None else "https"
        origin = f"{scheme}://{request.headers['host']}"  # a name of this server: see `Guard`
        html, succeeded = await in_turn(request, page_html, models, read_fields(request), origin)
        return HTMLResponse(html, status_code=200 if succeeded else 400)

    async def download(request: Request) -> Response:
        name = Path(request.scope["path"]).name
        content, saved_as = await in_turn(request, file_content, models, name, read_fields(request))
        if name.endswith(".png"):
            async with drawing.turn(client(request)):
                content = await draw_png(content)
        # Where a browser shows the picture instead of saving it, nothing in it may run.
        headers = {
            "Content-Disposition": f'attachment; filename="{saved_as}"',
            "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
        }
        return Response(content, media_type=MEDIA_TYPES[Path(name).suffix], headers=headers)

    async def not_accepted(request: Request, error: Exception) -> Response:
        return PlainTextResponse(str(error), status_code=400)

    async def too_many(request: Request, error: Exception) -> Response:
        return PlainTextResponse("Too many of your requests are waiting.", status_code=429)

    async def too_slow(request: Request, error: Exception) -> Response:
        return PlainTextResponse("This picture takes too long to draw; take the SVG.", status_code=503)

    routes = [Route("/", page, methods=METHODS)]
    routes += [Route(f"/download/{name}", download, methods=METHODS) for name in FILES.values()]
    routes += [_static_file(path) for path in sorted((Path(__file__).parent / "static").iterdir())]
    frame_ancestors = "'none'" if space_host is None else "https://huggingface.co"
    guard = Middleware(
        Guard,
        paths=[route.path for route in routes],
        hosts=[*allowed_hosts, *([space_host] if space_host else [])],
        headers={"Content-Security-Policy": content_security_policy(frame_ancestors)},
    )
    errors = {ValueError: not_accepted, asyncio.QueueFull: too_many, asyncio.TimeoutError: too_slow}
    return Starlette(routes=routes, middleware=[guard], exception_handlers=errors)


def build_server(
    app: Starlette, host: str, port: int, space_host: str | None = None, **connection: float
) -> uvicorn.Server:
    """The server of an app, which logs its own errors only: neither requests nor what is wrong with them.

    Args:
        app: what it answers.
        host: the address to listen on.
        port: 0 for any that is free.
        space_host: see `build_app`.
        connection: other limits of time than those of `BoundedConnection`.
    """
    max_connections = MAX_CONNECTIONS_OF_CLIENT if space_host is None else None
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=partial(BoundedConnection, max_connections=max_connections, **connection),
        ws="none",
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        log_level="error",
        access_log=False,
        proxy_headers=False,  # see `client_of`
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


def serve(
    names: Sequence[str] = (), host: str = "127.0.0.1", port: int = 7860, allowed_hosts: Sequence[str] = ()
) -> None:
    """Shows the page until the process is ended.

    Args:
        names: checkpoint folders or names on the Hub; the default model where there are none.
        host: the address to listen on.
        port: the port.
        allowed_hosts: names that the server has, beside `localhost`, the address that a client connected to, and the
            name in the environment variable `SPACE_HOST`, which a Space of the Hub sets.
    """
    space_host = os.environ.get("SPACE_HOST")
    app = build_app(DemoModels.load(list(names) or [default_model()]), allowed_hosts, space_host)
    print(f"The demo is at http://{host}:{port}/ until Ctrl-C ends it.", flush=True)
    build_server(app, host, port, space_host).run()


def read_fields(request: Request) -> dict[str, str]:
    """The fields of an address that mean something here, each given once, as text in UTF-8.

    Raises:
        ValueError: for anything else.
    """
    try:
        query = request.scope["query_string"].decode("ascii")
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError as error:  # which may quote the text
        raise ValueError("The fields of the address are too many or not in UTF-8.") from error
    fields = {}
    for name, value in pairs:
        if name in FIELDS:
            if name in fields:
                raise ValueError(f"The address has the field {name} twice.")
            fields[name] = value
    return fields


def _static_file(path: Path) -> Route:
    """A route to a file of the package, which is read once: no request names a file."""
    content = path.read_bytes()

    async def static_file(request: Request) -> Response:
        return Response(content, media_type=MEDIA_TYPES[path.suffix])

    return Route(f"/static/{path.name}", static_file, methods=METHODS)
