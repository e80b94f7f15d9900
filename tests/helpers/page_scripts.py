"""The page's script in Node, for tests that compare it with Python."""

import json
import shutil
import subprocess
from collections.abc import Iterable
from typing import Any

from onlstm_hf.page.site import STATIC
from tests.helpers.requirements import missing


def run_script(body: str, data: Any = None, **imports: str) -> Any:
    """Runs a JavaScript function with the page's modules in Node, and returns its result.

    Args:
        body: body of the function; `data` is its argument.
        data: JSON-serialisable argument.
        imports: path below `static/` of each module to import, by its name in the body.
    """
    if shutil.which("node") is None:
        missing("node", "Node is not installed (Debian: apt-get install nodejs)")
    lines = [f"import * as {name} from {json.dumps((STATIC / path).as_uri())};" for name, path in imports.items()]
    lines += [
        'import { readFileSync } from "node:fs";',
        'const data = JSON.parse(readFileSync(0, "utf-8"));',
        f"const result = await (async (data) => {{ {body} }})(data);",
        "process.stdout.write(JSON.stringify(result ?? null));",
    ]
    command = ["node", "--input-type=module", "-e", "\n".join(lines)]
    answer = subprocess.run(command, input=json.dumps(data), capture_output=True, encoding="utf-8")
    assert answer.returncode == 0, answer.stderr[-2000:]
    return json.loads(answer.stdout)


def error_of_script(expression: str, data: Any = None, **imports: str) -> str:
    """Returns the message of the error that an expression throws."""
    return run_script(f"try {{ {expression}; }} catch (error) {{ return error.message; }}", data, **imports)


def utf16(text: str, places: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Converts positions of characters to those of UTF-16 units, which JavaScript counts."""
    return [[len(text[:place].encode("utf-16-le")) // 2 for place in pair] for pair in places]
