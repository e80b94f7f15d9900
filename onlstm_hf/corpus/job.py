"""The folder of a corpus that is parsed by tasks: what it was begun with, and what the complete tasks say."""

import json
import sys
from collections import Counter

from datatrove.io import DataFolder
from datatrove.utils.stats import MetricStats, PipelineStats

from ..version import __version__
from .inputs import CorpusFiles
from .parse_documents import STEP_NAME
from .readers import file_parts
from .rows import SCHEMA_VERSION

# Folder of records that are no output; `datasets.load_dataset` ignores folders with such a name.
RUN_FOLDER = ".run"
MANIFEST = f"{RUN_FOLDER}/manifest.json"


def begin_job(
    output: DataFolder, settings: dict, tasks: int | None, default_tasks: int, files: CorpusFiles | None = None
) -> tuple[int, list[tuple[str, int]]]:
    """Begins a job, or resumes the one that was begun in this folder with the same settings.

    Complete tasks that read files which have changed since then run again, and standard error says so.

    Args:
        output: the folder.
        settings: all that the rows depend on but the content of the files, as JSON can hold it.
        tasks: their number, if it was asked for.
        default_tasks: their number for a new job, otherwise.
        files: those that are read, if it is files.

    Returns:
        The number of tasks, and paths and sizes of the files by which these are shared out: the sizes that the job was
        begun with.

    Raises:
        ValueError: if the job was begun with other settings or files of other names, or the folder has other files.
    """
    settings = {"schema_version": SCHEMA_VERSION, **settings}
    now = {} if files is None else {name: (size, files.fingerprints[name]) for name, size in files.files}
    manifest = _read_manifest(output)
    if not manifest:
        if any(not path.startswith(f"{RUN_FOLDER}/") for path in output.list_files()):
            raise ValueError(f"{output.path} has files that are not from parse-corpus; name a new folder")
        tasks = tasks or default_tasks
        manifest = {"settings": settings, "tasks": tasks, "files": now, "begun_with": f"onlstm_hf {__version__}"}
        _write_manifest(output, manifest)
        return tasks, [] if files is None else files.files
    known = manifest["settings"] | {"tasks": manifest["tasks"]}
    asked = settings | {"tasks": tasks or known["tasks"]}
    if changed := [name for name in asked if asked[name] != known.get(name)]:
        changes = ", ".join(f"{name} was {known.get(name)}, not {asked[name]}" for name in changed)
        raise ValueError(f"{output.path} was begun with other settings: {changes}; name a new folder")
    before = {name: (size, fingerprint) for name, (size, fingerprint) in manifest.get("files", {}).items()}
    if others := sorted(before.keys() ^ now.keys()):
        shown = ", ".join(f"{name} is {'missing' if name in before else 'new'}" for name in others[:3])
        raise ValueError(f"{output.path} was begun with other files: {shown}; name a new folder")
    shares = [(name, size) for name, (size, _) in before.items()]
    if changed_files := [name for name in before if now[name][1] != before[name][1]]:
        repeated_tasks = _forget(output, shares, changed_files, known["tasks"])
        manifest["files"] = {name: (size, now[name][1]) for name, (size, _) in before.items()}
        _write_manifest(output, manifest)
        names = ", ".join(changed_files[:3]) + (", ..." if len(changed_files) > 3 else "")
        print(
            f"{len(changed_files)} of {len(shares)} files changed ({names}): {len(repeated_tasks)} complete tasks of "
            f"{known['tasks']} run again",
            file=sys.stderr,
        )
    return known["tasks"], shares


def _forget(output: DataFolder, shares: list[tuple[str, int]], changed_files: list[str], tasks: int) -> list[int]:
    """Makes complete tasks that read one of these files incomplete, and removes what they wrote; returns them."""
    readers = {name: set() for name in changed_files}
    for rank in range(tasks):
        for name, *_ in file_parts(shares, rank, tasks):
            readers.get(name, set()).add(rank)
    for name, ranks in readers.items():
        if not ranks:
            raise ValueError(f"{name} was empty when {output.path} was begun, and is not now; name a new folder")
    repeated_tasks = []
    for rank in sorted(set().union(*readers.values())):
        completion = f"{RUN_FOLDER}/completions/{rank:05d}"
        if output.exists(completion):
            repeated_tasks.append(rank)
            output.rm(completion)  # first, so that the task runs again wherever this is interrupted
        for path in [f"{RUN_FOLDER}/stats/{rank:05d}.json", *output.glob(f"{rank:05d}.*")]:
            if output.exists(path):
                output.rm(path)
    return repeated_tasks


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
    """Counts the sentences that the complete tasks parsed, and those that they did not, by reason."""
    counts: Counter[str] = Counter()
    for path in output.list_files(f"{RUN_FOLDER}/stats"):
        with output.open(path, "r") as file:
            steps = PipelineStats.from_json(json.load(file)).stats
        for step in steps:
            if step.name == STEP_NAME:
                counts.update({reason: MetricStats.from_dict(stat).total for reason, stat in step.stats.items()})
    return counts
