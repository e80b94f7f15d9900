"""Affine maps that are read instead of called: adapters, hooks, offloaded weights."""

import pytest
import torch

from onlstm_hf.fast.projections import affine, is_plain, weight_and_bias


def test_the_weight_of_an_adapted_map_is_what_it_computes():
    layer = torch.nn.Linear(4, 5)
    assert [id(tensor) for tensor in weight_and_bias(layer, layer.weight)] == [id(layer.weight), id(layer.bias)]

    class Adapted(torch.nn.Module):
        """A linear layer and a correction of low rank beside it."""

        def __init__(self):
            super().__init__()
            self.base_layer, self.down, self.up = layer, torch.nn.Linear(4, 2, bias=False), torch.nn.Linear(2, 5)
            self.in_features, self.weight = 4, layer.weight

        def forward(self, inputs):
            return self.base_layer(inputs) + self.up(self.down(inputs))

    adapted = Adapted()
    weight, bias = weight_and_bias(adapted, layer.weight)
    torch.testing.assert_close(weight, layer.weight + adapted.up.weight @ adapted.down.weight)
    torch.testing.assert_close(bias, layer.bias + adapted.up.bias)


def test_a_library_that_cannot_compute_a_map_is_named_in_one_sentence():
    class Linear4bit(torch.nn.Linear):
        """As bitsandbytes' on a CPU with bfloat16."""

        def forward(self, inputs):
            raise AssertionError("N must be divisible by block_n")

    with pytest.raises(
        ValueError, match=r"Linear4bit cannot map 4 to 5 units here \(N must be divisible by block_n\)"
    ):
        affine(Linear4bit(4, 5), torch.randn(3, 4), torch.zeros(5))
    with pytest.raises(ValueError, match="Linear4bit cannot map 4 to 5 units here"):
        weight_and_bias(Linear4bit(4, 5), torch.randn(3, 4))


def test_a_further_bias_is_added_to_what_a_module_gives():
    torch.manual_seed(0)
    plain, inputs, bias = torch.nn.Linear(4, 5), torch.randn(3, 4), torch.randn(5)
    hooked = torch.nn.Linear(4, 5)
    hooked.load_state_dict(plain.state_dict())
    hooked.register_forward_hook(lambda *call: None)
    assert is_plain(plain) and not is_plain(hooked)
    torch.testing.assert_close(affine(hooked, inputs, bias), affine(plain, inputs, bias))
    torch.testing.assert_close(affine(plain, inputs, bias), plain(inputs) + bias)
