"""Export to ONNX Runtime, which does not need PyTorch."""

import copy
import json
import os
from pathlib import Path

import torch
from torch.export import Dim, ShapesCollection
from torch.utils import _pytree as pytree
from transformers import PreTrainedModel

OPSET = 20


class _Graph(torch.nn.Module):
    """A model whose outputs are a plain dictionary."""

    def __init__(self, model: PreTrainedModel):
        super().__init__()
        self.model = model
        self.options = {"return_dict": True}
        if model.can_generate():
            self.options["use_cache"] = True
        if model.can_generate() and model.induces_trees:
            self.options["output_distances"] = True

    def forward(self, input_ids, attention_mask, state=None, input_ids_pair=None, attention_mask_pair=None):
        others = {"state": state, "input_ids_pair": input_ids_pair, "attention_mask_pair": attention_mask_pair}
        given = {name: value for name, value in others.items() if value is not None}
        return dict(self.model(input_ids, attention_mask, **given, **self.options))


def export_onnx(model: PreTrainedModel, path: str | os.PathLike) -> Path:
    """Exports a model of this package as a float32 graph for ONNX Runtime (opset 20).

    Batch size and length are dynamic. A language model takes integers `input_ids` and `attention_mask`, both
    `(batch, length)`, and the tensors of its state, whose names begin with `state`. It returns the outputs of
    `forward` (`logits`, and distances if it induces trees) and the new state, whose names begin with `new_state`. The
    metadata entry `initial_state`, a JSON object, has the state before the first token. A classifier takes
    `input_ids` and `attention_mask`, for pairs also `input_ids_pair` and `attention_mask_pair`, and returns `logits`.

    Args:
        model: a language model, or a classifier of sequences or pairs. It is not changed.
        path: output file; an existing file is replaced.

    Raises:
        ImportError: if the extra `onnx` is not installed.
    """
    model = copy.deepcopy(model).eval().float().cpu().requires_grad_(False)
    model.set_implementation("scan")
    ids = torch.ones(2, 5, dtype=torch.long)
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]])
    inputs, metadata = {"input_ids": ids, "attention_mask": mask}, {}
    if model.can_generate():
        state = model.model.initial_state(len(ids))
        inputs["state"] = state
        fills = {name: tensor.flatten()[0].item() for name, tensor in named_tensors({"state": state}).items()}
        metadata["initial_state"] = json.dumps(fills)  # one number per tensor
    elif model.takes_pairs:
        inputs |= {"input_ids_pair": ids.clone(), "attention_mask_pair": mask.clone()}

    graph = _Graph(model)
    outputs = named_tensors(graph(**inputs))
    batch, lengths = Dim("batch"), {"input_ids": Dim("length"), "input_ids_pair": Dim("length_pair")}
    lengths |= {"attention_mask": lengths["input_ids"], "attention_mask_pair": lengths["input_ids_pair"]}
    shapes = ShapesCollection()
    for name, tensor in named_tensors(inputs).items():
        shapes[tensor] = {0: batch, 1: lengths[name]} if name in lengths else {0: batch}
    program = torch.export.export(graph, (), inputs, dynamic_shapes=shapes, strict=False)
    onnx_program = torch.onnx.export(
        program,
        input_names=list(named_tensors(inputs)),
        output_names=[f"new_{name}" if name.startswith("state") else name for name in outputs],
        opset_version=OPSET,
        custom_translation_table={torch.ops.prims.prod.default: _product},
        # This optimizer treats 1e-8 as 0, so that a PRPN would divide by 0. ONNX Runtime optimizes graphs itself.
        optimize=False,
        verbose=False,
    )
    onnx_program.model.metadata_props.update(metadata)
    onnx_program.save(path)
    return Path(path)


def named_tensors(tree: dict) -> dict[str, torch.Tensor]:
    """Flattens nested dicts, states and tuples of tensors; names join the keys and indices of the path."""
    leaves, _ = pytree.tree_flatten_with_path(tree)
    return {"_".join(map(_name, path)): leaf for path, leaf in leaves}


def _name(key: pytree.KeyEntry) -> str:
    return str(next(getattr(key, kind) for kind in ("name", "idx", "key") if hasattr(key, kind)))


def _product(inputs, dimensions):
    # The decomposed cumulative product of a PRPN's gates contains this operator, which PyTorch cannot export.
    from onnxscript import opset20

    return opset20.ReduceProd(inputs, dimensions, keepdims=0)
