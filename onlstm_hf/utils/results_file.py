"""JSON files of results with the details needed to reproduce them: command, date, machine and versions."""

import os
import platform
import re
import shlex
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
import transformers

from ..version import __version__
from .files import write_json

# Instruction sets that affect the speed of matrix products, as named in /proc/cpuinfo.
VECTOR_EXTENSIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def write_results(path: str | os.PathLike, results: dict, script: str, arguments: Sequence[str]) -> dict:
    """Writes results, and the command and machine that computed them, to a JSON file; returns its content.

    `script` is its path in a checkout, such as `eval/evaluate_lm.py`. `portable` converts all paths.
    """
    written = portable(
        {
            **results,
            "command": shlex.join(["python", script, *arguments]),
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "machine": describe_machine(),
            "versions": {
                "onlstm_hf": __version__,
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                "python": platform.python_version(),
            },
        }
    )
    write_json(path, written)
    return written


def portable(content: Any) -> Any:
    """Makes paths in strings, including keys, independent of this machine.

    Paths in the working directory become relative to it. Paths in the folder of the environment variable
    `ONLSTM_SHARED` begin with `$ONLSTM_SHARED`, so that commands still run. Other absolute paths are kept.
    """
    if isinstance(content, dict):
        return {portable(key): portable(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [portable(value) for value in content]
    if not isinstance(content, str):
        return content
    for folder, written in {os.environ.get("ONLSTM_SHARED"): "$ONLSTM_SHARED/", os.getcwd(): ""}.items():
        if folder and len(Path(folder).parts) > 1:
            start = rf"(?<![^\s=]){re.escape(str(Path(folder)))}/"
            content = re.sub(start, lambda _, written=written: written, content)
    return content


def describe_machine(device: torch.device | None = None) -> dict:
    """Describes CPU and threads, and the GPU if `device` is one or, by default, if there is one."""
    machine = {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "torch": torch.__version__,
    }
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.exists():
        fields = dict(re.findall(r"^(model name|flags)\s*: (.*)", cpu_info.read_text(), re.MULTILINE))
        machine["cpu"] = fields.get("model name", machine["cpu"])
        flags = fields.get("flags", "").split()
        machine["vector_extensions"] = [name for name in VECTOR_EXTENSIONS if name in flags]
    if device.type == "cuda" if device else torch.cuda.is_available():
        machine |= {"gpu": torch.cuda.get_device_name(device), "cuda": torch.version.cuda}
    return machine
