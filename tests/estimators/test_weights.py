"""The tensors of a model file beside those that its network must have."""

import pytest
import torch

from small_networks import network
from sumosurv.fitting.stack import check_weights


def stored(members):
    """As a model file has them: parameters in single precision, the rest in double precision."""
    made = network(tuple(range(members)))
    own = dict(made.named_parameters())
    return {
        name: value.float() if name in own else value.double() if value.is_floating_point() else value
        for name, value in made.state_dict().items()
    }


def test_those_of_the_network_pass():
    check_weights(network(), 3, stored(3))


def test_what_is_missing_or_too_much_is_named():
    weights = stored(2)
    name = next(iter(weights))
    for wrong, odd in (
        ({key: value for key, value in weights.items() if key != name}, name),
        (weights | {"another.weight": torch.zeros(2, 3)}, "another.weight"),
    ):
        with pytest.raises(ValueError, match=odd):
            check_weights(network(), 2, wrong)


def test_other_shapes_are_named():
    weights = stored(2)
    for name, value in weights.items():
        for wrong in (value[None], torch.cat([value] * 3), value[:, :0] if value.ndim > 1 and value.shape[1] else None):
            if wrong is not None:
                with pytest.raises(ValueError, match=f"{name} is "):
                    check_weights(network(), 2, weights | {name: wrong})
