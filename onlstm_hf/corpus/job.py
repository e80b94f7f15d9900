"""State of a corpus job in its output folder: the manifest, and the statistics of complete tasks."""

import json
from collections import Counter
from collections.abc import Mapping

from datatrove.io import DataFolder
from datatrove.utils.stats import MetricStats, PipelineStats

from ..version import __version__
from .parse_documents import STEP_NAME
from .rows import SCHEMA_VERSION

# Folder of logs and other records. `datasets.load_dataset` ignores it because its name starts with a dot.
RUN_FOLDER = ".run"
MANIFEST = f"{RUN_FOLDER}/manifest.json"


def begin_job(
    output: DataFolder, settings: dict, fingerprints: Mapping[str, str], tasks: int | None, default_tasks: int
) -> int:
    """Begins a job, or resumes a job in this folder that was begun with the same settings and files.

    `settings` are JSON values that determine the rows, except the contents of the files. A job has the number of tasks
    that was requested when it began, else the default; this number is returned.

    Raises:
        ValueError: if the job was begun with other settings or files, or if the folder has unrelated files.
    """
    settings = {"schema_version": SCHEMA_VERSION, **settings}
    if not output.isfile(MANIFEST):
        if any(not path.startswith(f"{RUN_FOLDER}/") for path in output.list_files()):
            raise ValueError(f"{output.path} has files that are not from parse-corpus; name a new folder")
        manifest = {"settings": settings, "tasks": tasks or default_tasks, "files": dict(fingerprints)}
        manifest["begun_with"] = f"onlstm_hf {__version__}"
        with output.open(f"{MANIFEST}.new", "w") as file:
            json.dump(manifest, file, indent=2, ensure_ascii=False)
        output.mv(f"{MANIFEST}.new", MANIFEST)
        return manifest["tasks"]
    with output.open(MANIFEST, "r") as file:
        manifest = json.load(file)
    stored = manifest["settings"] | {"tasks": manifest["tasks"]}
    requested = settings | {"tasks": tasks or manifest["tasks"]}
    if changed := [name for name in requested if requested[name] != stored.get(name)]:
        changes = ", ".join(f"{name} was {stored.get(name)}, not {requested[name]}" for name in changed)
        raise ValueError(f"{output.path} was begun with other settings: {changes}; name a new folder")
    if changed_files := {path for path, _ in fingerprints.items() ^ manifest["files"].items()}:
        examples = ", ".join(sorted(changed_files)[:3])
        raise ValueError(f"{output.path} was begun with other files: {examples}; name a new folder")
    return manifest["tasks"]


def count_sentences(output: DataFolder) -> Counter[str]:
    """Counts sentences of complete tasks: `"parsed"`, the reasons why others were not parsed, and `SEVERAL`."""
    counts: Counter[str] = Counter()
    for path in output.list_files(f"{RUN_FOLDER}/stats"):
        with output.open(path, "r") as file:
            steps = PipelineStats.from_json(json.load(file)).stats
        for step in steps:
            if step.name == STEP_NAME:
                counts.update({reason: MetricStats.from_dict(stat).total for reason, stat in step.stats.items()})
    return counts
