"""The folder of a corpus that is parsed by tasks: what it was begun with, and what the complete tasks say."""

import hashlib
import json
from collections import Counter

import torch
from datatrove.io import DataFolder
from datatrove.utils.stats import MetricStats, PipelineStats
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..utils.tokenizer_check import tokenizer_fingerprint
from ..version import __version__
from .parse_documents import STEP_NAME
from .rows import SCHEMA_VERSION

# Folder of records that are no output; `datasets.load_dataset` ignores folders with such a name.
RUN_FOLDER = ".run"
MANIFEST = f"{RUN_FOLDER}/manifest.json"


def recorded_settings(output: DataFolder) -> dict:
    """The settings that the job in this folder was begun with and its number of `"tasks"`, or nothing."""
    if not output.exists(MANIFEST):
        return {}
    with output.open(MANIFEST, "r") as file:
        manifest = json.load(file)
    return manifest["settings"] | {"tasks": manifest["tasks"]}


def begin_job(output: DataFolder, settings: dict, tasks: int | None, default_tasks: int) -> int:
    """Begins a job, or resumes the one that was begun in this folder with the same settings.

    Args:
        output: the folder.
        settings: all that the rows depend on, as JSON can hold it.
        tasks: their number, if it was asked for.
        default_tasks: their number for a new job, otherwise.

    Returns:
        The number of tasks.

    Raises:
        ValueError: if the job was begun with other settings, or the folder has other files.
    """
    settings = {"schema_version": SCHEMA_VERSION, **settings}
    known = recorded_settings(output)
    if not known:
        if any(not path.startswith(f"{RUN_FOLDER}/") for path in output.list_files()):
            raise ValueError(f"{output.path} has files that are not from parse-corpus; name a new folder")
        tasks = tasks or default_tasks
        manifest = {"settings": settings, "tasks": tasks, "begun_with": f"onlstm_hf {__version__}"}
        with output.open(f"{MANIFEST}.new", "w") as file:
            json.dump(manifest, file, indent=2, ensure_ascii=False)
        output.mv(f"{MANIFEST}.new", MANIFEST)
        return tasks
    asked = settings | {"tasks": tasks or known["tasks"]}
    if changed := [name for name in asked if asked[name] != known.get(name)]:
        changes = ", ".join(f"{name} was {known.get(name)}, not {asked[name]}" for name in changed)
        raise ValueError(f"{output.path} was begun with other settings: {changes}; name a new folder")
    return known["tasks"]


def model_fingerprint(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str:
    """A hash of a model's configuration and weights and its tokenizer, wherever they were loaded from."""
    config = {name: value for name, value in model.config.to_diff_dict().items() if name != "transformers_version"}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    digest.update((tokenizer.backend_tokenizer.to_str() if tokenizer.is_fast else "").encode())
    digest.update(tokenizer_fingerprint(tokenizer).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def count_sentences(output: DataFolder) -> Counter[str]:
    """Counts the sentences that the complete tasks parsed, and those that they did not, by reason."""
    counts: Counter[str] = Counter()
    for path in output.list_files(f"{RUN_FOLDER}/stats"):
        with output.open(path, "r") as file:
            steps = PipelineStats.from_json(json.load(file)).stats
        for step in steps:
            if step.name == STEP_NAME:
                counts.update({reason: MetricStats.from_dict(stat).total for reason, stat in step.stats.items()})
    return counts
