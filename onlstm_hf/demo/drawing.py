"""PNG pictures, drawn outside the server's process.

The library that draws them holds the interpreter lock for as long as it takes, seconds for a wide picture. A browser
could draw them as well, but not without a script, and not for whoever shows a preview of a link.
"""

import asyncio
import sys

from ..trees.drawing import png_zoom

SECONDS_TO_DRAW = 30
# A process for each picture: it imports nothing of this package, gives way to the models, and is killed when it takes
# too long or its reader has left.
_PROGRAM = """
import os, sys
sys.path = [folder for folder in sys.path if folder]  # without the current one
import resvg_py
if hasattr(os, "nice"):
    os.nice(10)
sys.stdout.buffer.write(resvg_py.svg_to_bytes(svg_string=sys.stdin.buffer.read().decode(), zoom=int(sys.argv[1])))
"""


async def draw_png(svg: str) -> bytes:
    """A picture of this package as PNG; see `svg_to_png`.

    Raises:
        ValueError: for a picture too large for PNG.
        asyncio.TimeoutError: if it takes longer than `SECONDS_TO_DRAW`.
        RuntimeError: if it cannot be drawn, because resvg is missing for instance.
    """
    zoom = png_zoom(svg)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _PROGRAM, str(zoom)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,  # which may quote what was typed
    )
    try:
        png, _ = await asyncio.wait_for(process.communicate(svg.encode()), SECONDS_TO_DRAW)
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise RuntimeError(
            f'no PNG was drawn (exit code {process.returncode}); it needs pip install "onlstm_hf[plot]"'
        )
    return png
