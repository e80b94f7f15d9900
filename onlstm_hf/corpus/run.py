"""Parsing of a corpus from start to end: pipeline, manifest, progress bar and counts."""

from collections import Counter
from math import ceil
from pathlib import Path

from datatrove.io import DataFolder, get_datafolder
from datatrove.pipeline.base import PipelineStep
from transformers.utils.logging import get_logger

from ..text.sentence_splitting import MAX_SEVERAL, sentence_splitter
from ..utils.checkpoints import checkpoint_hash, load_checkpoint
from .executors import Engine
from .inputs import CorpusFiles
from .job import RUN_FOLDER, begin_job, count_sentences
from .parse_documents import SEVERAL, ParseDocuments, ParseOptions
from .progress import shown_progress
from .writers import row_writer

logger = get_logger(__name__)

BYTES_PER_TASK = 1 << 25


def parse_corpus(
    reader: PipelineStep,
    corpus: dict,
    output: str,
    model: str,
    options: ParseOptions,
    *,
    files: CorpusFiles | None = None,
    output_format: str = "parquet",
    engine: Engine = Engine(),  # noqa: B008 (it is immutable)
    tasks: int | None = None,
    trust_remote_code: bool = False,
    progress: bool = True,
) -> Counter[str] | None:
    """Parses all sentences of a corpus into a table, or resumes an interrupted job.

    Args:
        reader: a reader of `readers` or datatrove.
        corpus: JSON values that identify the corpus.
        output: folder of the table, local or remote.
        model: a checkpoint folder, or a name on the Hub.
        options: what to compute.
        files: the files of a `FileReader`; `None` for other readers.
        output_format: `"parquet"` or `"jsonl"`.
        engine: where the tasks run.
        tasks: number of tasks; by default one per `BYTES_PER_TASK` of the corpus, and at least one per worker.
        trust_remote_code: see `load_checkpoint`.
        progress: whether to show a progress bar.

    Returns:
        The number of sentences that were `"parsed"`, and of those that were not by reason; `None` if incomplete tasks
        were submitted to Slurm.

    Raises:
        ValueError: if the model does not fit, or the folder was begun with other settings or files.
        ChildProcessError: if tasks failed. The other tasks are complete, unless a worker was killed.
    """
    folder = get_datafolder(output)
    loaded, tokenizer = load_checkpoint(model, trust_remote_code=trust_remote_code)
    if not getattr(loaded, "induces_trees", False):
        raise ValueError(f'{model} induces no trees: choose a model that does, such as an "onlstm"')
    # Unknown layers and languages raise errors here, before anything is written.
    loaded.resolve_layer(options.layer)
    if options.language is not None:
        sentence_splitter(options.language)
    settings = {
        "corpus": corpus,
        "model": checkpoint_hash(loaded, tokenizer),
        **options._asdict(),
        "output_format": output_format,
    }
    num_bytes = 0 if files is None else files.num_bytes
    default_tasks = max(engine.workers, ceil(num_bytes / BYTES_PER_TASK), 1)
    tasks = begin_job(folder, settings, tasks, default_tasks, files)
    records = DataFolder(folder._join(RUN_FOLDER), fs=folder.fs)
    is_shown = progress and records.is_local() and engine.name != "slurm"
    progress_folder = Path(records.resolve_paths("progress")) if is_shown else None
    step = ParseDocuments(model, options, engine.threads, trust_remote_code, progress_folder)
    executor = engine.executor([reader, step, row_writer(folder, output_format, options.columns)], tasks, records)
    if engine.name == "slurm" and executor.get_incomplete_ranks():
        executor.run()
        return None
    with shown_progress(progress_folder, tasks, completed=tasks - len(executor.get_incomplete_ranks())):
        executor.run()
    if failed := executor.get_incomplete_ranks():
        log = records.resolve_paths(f"logs/task_{failed[0]:05d}.log")
        raise ChildProcessError(f"{len(failed)} of {tasks} tasks failed; {log} says why")
    counts = count_sentences(folder)
    several = counts.pop(SEVERAL, 0)
    if several > MAX_SEVERAL * counts["parsed"]:
        lines = "1 line has" if several == 1 else f"{several:,} lines have"
        logger.warning(f"{lines} several sentences, parsed as one: --split-sentences parses each")
    return counts
