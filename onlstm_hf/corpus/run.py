"""Parsing of a corpus from start to end: pipeline, manifest, progress bar and counts."""

import json
from collections import Counter
from collections.abc import Mapping
from math import ceil
from pathlib import Path

from datatrove.io import DataFolder, get_datafolder
from datatrove.pipeline.readers.base import BaseReader
from datatrove.utils.stats import MetricStats, PipelineStats
from transformers.utils.logging import get_logger

from ..text.sentence_splitting import MAX_SEVERAL, sentence_splitter
from ..utils.checkpoints import checkpoint_hash, load_checkpoint
from ..version import __version__
from .executors import Engine, run_tasks
from .parse_documents import SEVERAL, STEP_NAME, ParseDocuments, ParseOptions
from .progress import ProgressBar
from .writers import SCHEMA_VERSION, row_writer

logger = get_logger(__name__)

BYTES_PER_TASK = 1 << 25
# Folder of logs and other records. `datasets.load_dataset` ignores it because its name starts with a dot.
RUN_FOLDER = ".run"
MANIFEST = f"{RUN_FOLDER}/manifest.json"


def parse_corpus(
    reader: BaseReader,
    corpus: dict,
    output: str,
    model: str,
    options: ParseOptions,
    *,
    output_format: str = "parquet",
    engine: Engine = Engine(),  # noqa: B008 (it is immutable)
    tasks: int | None = None,
    trust_remote_code: bool = False,
) -> Counter[str] | None:
    """Parses all sentences of a corpus into a table, or resumes an interrupted job.

    The reader is one of `readers` or datatrove; the JSON values `corpus` identify what it reads. The folder `output`
    is local or remote. By default there is a task per `BYTES_PER_TASK` of the files, and at least one per worker.

    Returns:
        The number of sentences that were `"parsed"`, and of those that were not by reason; `None` if incomplete tasks
        were submitted to Slurm.

    Raises:
        ValueError: if the model does not fit, or the folder was begun with other settings or files.
        ChildProcessError: see `run_tasks`.
    """
    folder = get_datafolder(output)
    loaded, tokenizer = load_checkpoint(model, trust_remote_code=trust_remote_code)
    if not getattr(loaded, "induces_trees", False):
        raise ValueError(f'{model} induces no trees: choose a model that does, such as an "onlstm"')
    # Unknown layers and languages raise errors here, before anything is written.
    loaded.resolve_layer(options.layer)
    if options.language is not None:
        sentence_splitter(options.language)
    settings = {"corpus": corpus, "model": checkpoint_hash(loaded, tokenizer), **options._asdict()}
    settings["output_format"] = output_format
    num_bytes = sum(getattr(reader, "sizes", {}).values())
    default_tasks = max(engine.workers, ceil(num_bytes / BYTES_PER_TASK), 1)
    tasks = _begin_job(folder, settings, getattr(reader, "fingerprints", {}), tasks, default_tasks)
    records = DataFolder(folder._join(RUN_FOLDER), fs=folder.fs)
    shows_progress = records.is_local() and engine.name != "slurm"
    progress_folder = Path(records.resolve_paths("progress")) if shows_progress else None
    step = ParseDocuments(model, options, engine.threads, trust_remote_code, progress_folder)
    executor = engine.executor([reader, step, row_writer(folder, output_format, options.columns)], tasks, records)
    if ranks := executor.get_incomplete_ranks():
        if engine.name == "slurm":
            executor.run()
            return None
        with ProgressBar(progress_folder, tasks, completed=tasks - len(ranks)) as bar:
            run_tasks(executor, ranks, bar.read_reports)
    counts = _count_sentences(folder)
    several = counts.pop(SEVERAL, 0)
    if several > MAX_SEVERAL * counts["parsed"]:
        lines = "1 line has" if several == 1 else f"{several:,} lines have"
        logger.warning(f"{lines} several sentences, parsed as one: --split-sentences parses each")
    return counts


def _begin_job(
    output: DataFolder, settings: dict, fingerprints: Mapping[str, str], tasks: int | None, default_tasks: int
) -> int:
    """Begins a job, or resumes one that was begun with the same settings and files. Returns its number of tasks."""
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
    manifest = json.loads(output.read_text(MANIFEST))
    stored = manifest["settings"] | {"tasks": manifest["tasks"]}
    requested = settings | {"tasks": tasks or manifest["tasks"]}
    changed = [name for name in requested if requested[name] != stored.get(name)]
    changes = [f"{name} was {stored.get(name)}, not {requested[name]}" for name in changed]
    changes += sorted({f"the file {path} has changed" for path, _ in fingerprints.items() ^ manifest["files"].items()})
    if changes:
        raise ValueError(f"{output.path} was begun differently: {', '.join(changes[:3])}; name a new folder")
    return manifest["tasks"]


def _count_sentences(output: DataFolder) -> Counter[str]:
    """Counts sentences of complete tasks: `"parsed"`, the reasons why others were not parsed, and `SEVERAL`."""
    counts: Counter[str] = Counter()
    for path in output.list_files(f"{RUN_FOLDER}/stats"):
        for step in PipelineStats.from_json(json.loads(output.read_text(path))).stats:
            if step.name == STEP_NAME:
                counts.update({reason: MetricStats.from_dict(stat).total for reason, stat in step.stats.items()})
    return counts
