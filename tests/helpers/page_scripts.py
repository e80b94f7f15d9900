"""The page's script in Node, for tests that compare it with Python."""

import json
import shutil
import subprocess
from typing import Any

from onlstm_hf.page.site import STATIC
from tests.helpers.requirements import missing


def run_script(body: str, data: Any = None, **imports: str) -> Any:
    """Runs a function of the page's modules on data, and returns what it makes of it.

    Args:
        body: of the function, in JavaScript; `data` is its argument.
        data: what JSON can hold.
        imports: for each module that the body needs, what to call it, and its path below `static/`.
    """
    if shutil.which("node") is None:
        missing("node", "Node is not installed (Debian: apt-get install nodejs)")
    lines = [f"import * as {name} from {json.dumps((STATIC / path).as_uri())};" for name, path in imports.items()]
    source = "\n".join(
        [
            *lines,
            'import { readFileSync } from "node:fs";',
            'const data = JSON.parse(readFileSync(0, "utf-8"));',
            f"const result = await (async (data) => {{ {body} }})(data);",
            "process.stdout.write(JSON.stringify(result ?? null));",
        ]
    )
    answer = subprocess.run(
        ["node", "--input-type=module", "-e", source],
        input=json.dumps(data),
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert answer.returncode == 0, answer.stderr[-2000:]
    return json.loads(answer.stdout)
