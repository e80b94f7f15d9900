"""The folder of a corpus that is parsed by tasks: what it was begun with, and what the complete tasks say."""

import json
from collections import Counter

from datatrove.io import DataFolder
from datatrove.utils.stats import MetricStats, PipelineStats

from ..version import __version__
from .inputs import CorpusFiles
from .parse_documents import STEP_NAME
from .rows import SCHEMA_VERSION

# Folder of records that are no output; `datasets.load_dataset` ignores folders with such a name.
RUN_FOLDER = ".run"
MANIFEST = f"{RUN_FOLDER}/manifest.json"


def begin_job(
    output: DataFolder, settings: dict, tasks: int | None, default_tasks: int, files: CorpusFiles | None = None
) -> int:
    """Begins a job, or resumes the one that was begun in this folder with the same settings and files.

    Args:
        output: the folder.
        settings: all that the rows depend on but the content of the files, as JSON can hold it.
        tasks: their number, if it was asked for.
        default_tasks: their number for a new job, otherwise.
        files: those that are read, if it is files.

    Returns:
        The number of tasks.

    Raises:
        ValueError: if the job was begun with other settings or other files, or the folder has files that are not its.
    """
    settings = {"schema_version": SCHEMA_VERSION, **settings}
    now = {} if files is None else files.fingerprints
    manifest = _read_manifest(output)
    if not manifest:
        if any(not path.startswith(f"{RUN_FOLDER}/") for path in output.list_files()):
            raise ValueError(f"{output.path} has files that are not from parse-corpus; name a new folder")
        tasks = tasks or default_tasks
        manifest = {"settings": settings, "tasks": tasks, "files": now, "begun_with": f"onlstm_hf {__version__}"}
        _write_manifest(output, manifest)
        return tasks
    known = manifest["settings"] | {"tasks": manifest["tasks"]}
    asked = settings | {"tasks": tasks or known["tasks"]}
    if changed := [name for name in asked if asked[name] != known.get(name)]:
        changes = ", ".join(f"{name} was {known.get(name)}, not {asked[name]}" for name in changed)
        raise ValueError(f"{output.path} was begun with other settings: {changes}; name a new folder")
    before = manifest.get("files", {})
    states = {
        name: "missing" if name not in now else "new" if name not in before else "changed"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    }
    if states:
        shown = ", ".join(f"{name} is {state}" for name, state in list(states.items())[:3])
        raise ValueError(f"{output.path} was begun with other files: {shown}; name a new folder")
    return known["tasks"]


def _read_manifest(output: DataFolder) -> dict:
    if not output.exists(MANIFEST):
        return {}
    with output.open(MANIFEST, "r") as file:
        return json.load(file)


def _write_manifest(output: DataFolder, manifest: dict) -> None:
    with output.open(f"{MANIFEST}.new", "w") as file:
        json.dump(manifest, file, indent=2, ensure_ascii=False)
    output.mv(f"{MANIFEST}.new", MANIFEST)


def count_sentences(output: DataFolder) -> Counter[str]:
    """Counts the sentences that the complete tasks parsed, those that they did not, by reason, and `SEVERAL`."""
    counts: Counter[str] = Counter()
    for path in output.list_files(f"{RUN_FOLDER}/stats"):
        with output.open(path, "r") as file:
            steps = PipelineStats.from_json(json.load(file)).stats
        for step in steps:
            if step.name == STEP_NAME:
                counts.update({reason: MetricStats.from_dict(stat).total for reason, stat in step.stats.items()})
    return counts
