"""Rows as tensors and batches, and the covariate networks: the built-in one or any torch module."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parameter import is_lazy

from sumosurv.networks.layers import ACTIVATIONS, Activation, MemberDropout, MemberLinear, normal_parameter
from sumosurv.outcome import Outcome, each_field

_FEW_LEVELS = 64  # most levels whose embedding is computed as a matrix product in training on a GPU


# ------------------------------------------------------------------ rows


def take_rows(values: Tensor, rows: Any) -> Tensor:
    """Return ``values[rows]``; for row numbers on a CPU, in a quarter of the time."""
    if not isinstance(rows, Tensor) or rows.dtype != torch.long or rows.is_cuda:
        return values[rows]
    return values.index_select(0, rows.reshape(-1)).reshape(*rows.shape, *values.shape[1:])


@dataclass(frozen=True)
class Inputs:
    """Inputs of a covariate network: numbers of shape (rows, ...) and category codes of shape (rows, c)."""

    numeric: Tensor
    codes: Tensor

    def __getitem__(self, rows: Any) -> Inputs:
        return Inputs(take_rows(self.numeric, rows), take_rows(self.codes, rows))

    def shared(self) -> Inputs:
        """Add a member axis of length one: all members read the same rows."""
        return Inputs(self.numeric[None], self.codes[None])

    def to(self, device: torch.device, dtype: torch.dtype) -> Inputs:
        """Move to a device, and convert the numbers to ``dtype``."""
        return Inputs(self.numeric.to(device, dtype), self.codes.to(device))

    @classmethod
    def join(cls, parts: Sequence[Inputs]) -> Inputs:
        """Concatenate the rows of several tables."""
        return cls(torch.cat([part.numeric for part in parts]), torch.cat([part.codes for part in parts]))

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.codes)


@dataclass(frozen=True)
class Observed:
    """An `Outcome` in scaled time as tensors of shape (rows,), or (K, rows) in a batch.

    It has the same fields as `Outcome`: a field added there must be added here. All methods pass on every field.
    """

    event: Tensor
    time: Tensor
    entry: Tensor | None = None
    upper: Tensor | None = None
    cause: Tensor | None = None
    weight: Tensor | None = None
    group: Tensor | None = None

    @classmethod
    def of(cls, outcome: Outcome, dtype: torch.dtype = torch.float32) -> Self:
        """Convert an outcome in scaled time; floating-point fields get the given dtype."""

        def tensor(values: npt.NDArray[Any]) -> Tensor:
            made = torch.from_numpy(values.copy())
            return made.to(dtype) if made.is_floating_point() else made

        return cls(**each_field(tensor, outcome))

    def __getitem__(self, rows: Any) -> Self:
        # runs in every training step: `each_field` would take as long as the indexing
        some: dict[str, Any] = {name: None if own is None else take_rows(own, rows) for name, own in vars(self).items()}
        return type(self)(**some)

    def __len__(self) -> int:
        return len(self.time)

    def numpy(self) -> Outcome:
        """Return the outcome as arrays, in the same time unit."""
        return Outcome(**each_field(lambda values: values.cpu().numpy(), self))

    def to(self, device: torch.device) -> Self:
        """Move to a device."""
        return type(self)(**each_field(lambda values: values.to(device), self))

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the rows of several tables."""
        return cls(**each_field(lambda *values: torch.cat(values), *parts))


@dataclass(frozen=True)
class Table:
    """Inputs and outcomes of all rows, from which batches are taken."""

    inputs: Inputs
    outcome: Observed
    _remembered: dict[object, tuple[int, Tensor]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.outcome)

    def remembered(self, owner: object, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """Return ``compute(times of all rows)``, cached until the times change or another owner asks."""
        time = self.outcome.time
        version, found = self._remembered.get(owner, (-1, time))
        if version != time._version:
            self._remembered.clear()  # before the next is made: each may be as large as the table
            version, found = time._version, compute(time)
            self._remembered[owner] = version, found
        return found

    @property
    def device(self) -> torch.device:
        """The device of the rows."""
        return self.outcome.time.device

    def to(self, device: torch.device) -> Table:
        """Move to a device."""
        return Table(self.inputs.to(device, self.inputs.numeric.dtype), self.outcome.to(device))

    def batch(self, index: Tensor, present: Tensor) -> Batch:
        """Return the batch of rows (K, b)."""
        return Batch(self.inputs[index], self.outcome[index], present, index, self)

    def row_weights(self, index: Tensor) -> Tensor:
        """Return the weights of rows, a one if rows have no weights."""
        weight = self.outcome.weight
        return torch.ones((), dtype=self.outcome.time.dtype, device=self.device) if weight is None else weight[index]

    @classmethod
    def join(cls, parts: Sequence[Table]) -> Table:
        """Concatenate the rows of several tables."""
        return cls(Inputs.join([part.inputs for part in parts]), Observed.join([part.outcome for part in parts]))


@dataclass(frozen=True)
class Batch:
    """Rows (K, b) of each member, or (1, b) for all; rows with ``present`` False are padding and must not count."""

    inputs: Inputs
    outcome: Observed
    present: Tensor
    index: Tensor  # row numbers in the table
    table: Table


@dataclass(frozen=True)
class Rows:
    """Row numbers of each member, (K, n); entries with ``present`` False are padding."""

    index: Tensor
    present: Tensor

    @classmethod
    def of(cls, rows: Sequence[npt.NDArray[np.int64]]) -> Rows:
        """Pad one array of row numbers per member."""
        longest = max(len(part) for part in rows)
        index = torch.zeros(len(rows), longest, dtype=torch.long)
        present = torch.zeros(len(rows), longest, dtype=torch.bool)
        for k, part in enumerate(rows):
            index[k, : len(part)] = torch.as_tensor(part)
            present[k, : len(part)] = True
        return cls(index, present)

    def to(self, device: torch.device) -> Rows:
        """Move to a device."""
        return Rows(self.index.to(device), self.present.to(device))

    def columns(self, part: slice) -> Rows:
        """Return some columns, the same for all members."""
        return Rows(self.index[:, part], self.present[:, part])

    def members(self, part: slice) -> Rows:
        """Return the rows of some members."""
        return Rows(self.index[part], self.present[part])

    def padded(self, multiple: int) -> Rows:
        """Pad the number of columns to a multiple of ``multiple``."""
        more = 0, -self.index.shape[1] % multiple
        return Rows(functional.pad(self.index, more), functional.pad(self.present, more))


# ------------------------------------------------------------------ covariate networks


class NoEncoder(nn.Module):
    """Stands in for the encoder of a network that receives embeddings; it only stores their width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, inputs: Inputs) -> Tensor:
        """Raise a TypeError."""
        raise TypeError("This network reads embeddings, not covariates.")


class TableEncoder(nn.Module):
    r"""The covariate network h^cov: numbers and embedded categories in, one embedding per subject out.

    Parameters
    ----------
    generators : sequence of torch.Generator
        One per member, for its initial weights.
    seeds, dropout : Tensor of shape (K,)
        Seed and rate of each member's dropout.
    n_numeric : int
        Number of numeric columns.
    levels : sequence of int
        Number of codes of each categorical column; the embedding of code 0 (a level not seen in training) is zero.
    widths : sequence of int
        Widths of the hidden layers.
    activation : {"silu", "relu", "tanh", "gelu"}
    residual : bool
        Add a hidden layer's input to its output if their widths agree; never for the first layer.
    frequencies : int
        Number of learned periodic features sin(w·x + b) per numeric column, appended to the column itself.

    Notes
    -----
    ``active`` is empty unless networks of different depth were stacked (see `stack_members`); then it is a mask
    (K, layers) of the layers that each member has, and the other layers are skipped.
    """

    active: Tensor

    def __init__(
        self,
        generators: Sequence[torch.Generator],
        seeds: Tensor,
        dropout: Tensor,
        *,
        n_numeric: int,
        levels: Sequence[int],
        widths: Sequence[int],
        activation: Activation,
        residual: bool,
        frequencies: int,
    ) -> None:
        super().__init__()
        self.activation, self.residual = activation, residual
        sizes = [min(16, 1 + math.ceil(math.sqrt(level))) for level in levels]
        self.embeddings = nn.ParameterList(
            normal_parameter(generators, (level, size), 1.0 / math.sqrt(size)) for level, size in zip(levels, sizes)
        )
        with torch.no_grad():
            for table in self.embeddings:
                table[:, 0] = 0.0
        self.frequency: nn.Parameter | None = None
        self.phase: nn.Parameter | None = None
        if frequencies and n_numeric:
            self.frequency = normal_parameter(generators, (n_numeric, frequencies), 0.5)
            self.phase = normal_parameter(generators, (n_numeric, frequencies), 1.0)
        n_in = n_numeric * (1 + (frequencies if self.frequency is not None else 0)) + sum(sizes)
        widths = list(widths)
        self.layers = nn.ModuleList(MemberLinear(generators, a, b) for a, b in zip([n_in, *widths], widths))
        self.dropouts = nn.ModuleList(MemberDropout(seeds, dropout, place) for place in range(len(widths)))
        self.n_in = n_in
        self.width = widths[-1] if widths else n_in
        self.register_buffer("active", torch.zeros(1, 0, dtype=torch.bool))

    def forward(self, inputs: Inputs) -> Tensor:
        """Embeddings (K, n, width) of inputs with a member axis (K or 1)."""
        a = self._features(inputs)
        act = ACTIVATIONS[self.activation]
        for place, (layer, dropout) in enumerate(zip(self.layers, self.dropouts)):
            new = dropout(act(layer(a)))
            # never for the first layer: equal widths there are a coincidence, for example due to padding
            new = a + new if self.residual and place and new.shape == a.shape else new
            a = torch.where(self.active[:, place, None, None], new, a) if place and self.active.numel() else new
        return a

    def check_stored(self, members: int) -> None:
        """Raise a ValueError if the stored mask of active layers has the wrong shape."""
        if tuple(self.active.shape) not in ((1, 0), (members, len(self.layers))):
            raise ValueError(f"the mask of active layers has shape {tuple(self.active.shape)}")

    def _features(self, inputs: Inputs) -> Tensor:
        numeric = inputs.numeric
        parts = [numeric]
        members = next((len(p) for p in self.parameters()), len(numeric))  # none without layers and categories
        if self.frequency is not None and self.phase is not None:
            # one long row per subject: arithmetic on a last axis of length four is slow
            each = numeric[..., None].expand(*numeric.shape, self.frequency.shape[2]).flatten(2)
            parts.append(torch.sin(each * self.frequency.flatten(1)[:, None] + self.phase.flatten(1)[:, None]))
        parts += [self._embedded(table, inputs.codes[..., j]) for j, table in enumerate(self.embeddings)]
        if len(parts) == 1:
            return numeric
        return torch.cat([part.expand(members, -1, -1) for part in parts], dim=2)

    def _embedded(self, table: Tensor, codes: Tensor) -> Tensor:
        """Look up category codes (K or 1, n) in tables (K, levels, size); returns (K, n, size)."""
        if self.training and table.device.type == "cuda" and table.shape[1] <= _FEW_LEVELS:
            # the gradient of a look-up sorts the codes of a batch, which takes a GPU longer than the rest of the step
            places = torch.arange(table.shape[1], device=codes.device)
            return (codes[..., None] == places).to(table.dtype) @ table
        who = torch.arange(len(table), device=codes.device)[:, None]
        return table[who, codes]


class ModuleEncoder(nn.Module):
    """Any ``torch.nn.Module`` as the covariate network, with separate weights for every member.

    Parameters of the copies are stacked and the module runs under ``torch.vmap``; a module that vmap does not
    support (data-dependent branches, batch normalisation in training) runs member by member.

    Parameters
    ----------
    module : nn.Module or callable
        A module, whose layers are reinitialised for each member by their ``reset_parameters``, or a function
        without arguments that returns a new module (for weights that ``reset_parameters`` does not change, or for
        pretrained weights). Weights that need no gradient are kept.
    seeds : sequence of int
        One per member.
    example : Tensor
        A few rows of input, to determine the width of the output.
    inputs_description : str
        Description of the rows, for the error message if the encoder cannot read them.
    """

    def __init__(
        self,
        module: nn.Module | Callable[[], nn.Module],
        seeds: Sequence[int],
        example: Tensor,
        inputs_description: str = "these rows",
    ) -> None:
        super().__init__()
        with _describe_input_errors(inputs_description):
            copies = [_fresh_copy(module, seed, example) for seed in seeds or [0]]
        self._skeleton = [copy.deepcopy(copies[0])]  # in a list, so that its weights are not registered as parameters
        self._names = [name for name, _ in copies[0].named_parameters()]
        self._buffer_names = [name for name, _ in copies[0].named_buffers()]
        per_copy = [dict(c.named_parameters()) for c in copies]
        buffers = [dict(c.named_buffers()) for c in copies]
        own = slice(len(seeds))
        self.stacked = nn.ParameterList(
            nn.Parameter(
                torch.stack([p[name].detach() for p in per_copy])[own], requires_grad=per_copy[0][name].requires_grad
            )
            for name in self._names
        )
        for i, name in enumerate(self._buffer_names):
            self.register_buffer(f"buffer_{i}", torch.stack([b[name] for b in buffers])[own])
        self._loop = False
        with torch.no_grad(), _describe_input_errors(inputs_description):
            copies[0].eval()
            out = copies[0](example)
        if not isinstance(out, Tensor) or out.ndim != 2 or len(out) != len(example):
            what = f"a tensor of shape {tuple(out.shape)}" if isinstance(out, Tensor) else f"a {type(out).__name__}"
            raise ValueError(
                f"The encoder must return one vector per row, a tensor of shape (rows, width); for {len(example)} rows "
                f"it returned {what}."
            )
        self.width = int(out.shape[1])

    def forward(self, inputs: Inputs) -> Tensor:
        """Embeddings (K, n, width) of inputs with a member axis (K or 1)."""
        skeleton = self._skeleton[0]
        skeleton.train(self.training)
        x = inputs.numeric
        states: dict[str, Tensor] = dict(zip(self._names, self.stacked))
        states |= {name: getattr(self, f"buffer_{i}") for i, name in enumerate(self._buffer_names)}
        members = len(next(iter(states.values()))) if states else len(x)
        if states and not self._loop:
            shared = x.shape[0] == 1 and members > 1
            try:
                result: Tensor = torch.vmap(
                    lambda state, row: torch.func.functional_call(skeleton, state, (row,)),
                    in_dims=(0, None if shared else 0),
                    randomness="different",
                )(states, x[0] if shared else x)
                return result
            except torch.OutOfMemoryError:
                raise
            except (RuntimeError, NotImplementedError):
                self._loop = True  # vmap does not support this module
        outputs = []
        for k in range(members):
            state = {name: value[k] for name, value in states.items()}
            outputs.append(torch.func.functional_call(skeleton, state, (x[k if x.shape[0] > 1 else 0],)))
        return torch.stack(outputs)

    @property
    def has_buffers(self) -> bool:
        """Whether the module has buffers, such as the running means of batch normalisation."""
        return bool(self._buffer_names)

    def run_member_by_member(self) -> None:
        """Run member by member, without vmap, so that the program can be traced."""
        self._loop = True


Encoder = TableEncoder | ModuleEncoder | NoEncoder


@contextmanager
def _describe_input_errors(inputs_description: str) -> Iterator[None]:
    """Describe the inputs in the error if an encoder fails on them."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, IndexError) as error:
        raise ValueError(f"The encoder cannot read {inputs_description}. Adapt its first layer: {error}") from error


def _fresh_copy(module: nn.Module | Callable[[], nn.Module], seed: int, example: Tensor) -> nn.Module:
    gpus = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=gpus):  # the user's random state does not change
        torch.manual_seed(seed)
        if not isinstance(module, nn.Module):
            if not callable(module):
                raise TypeError(f"encoder must be a torch.nn.Module or a function that makes one; got {module!r}.")
            made = module()
            if not isinstance(made, nn.Module):
                raise TypeError(f"encoder must be a torch.nn.Module or return one; it returned {type(made).__name__}.")
            return _initialised(made, example)
        if any(is_lazy(buffer) for buffer in module.buffers()):
            raise ValueError(
                "The encoder has a lazy layer with buffers (such as LazyBatchNorm1d), which torch cannot copy before "
                "it has seen rows; pass a function that makes the module."
            )
        fresh = copy.deepcopy(module)
        for part in fresh.modules():
            reset = getattr(part, "reset_parameters", None) or getattr(part, "_reset_parameters", None)
            if callable(reset):
                reset()
        fresh = _initialised(fresh, example)
        with torch.no_grad():
            for name, p in module.named_parameters():
                if not p.requires_grad and not is_lazy(p):
                    fresh.get_parameter(name).copy_(p)
        return fresh


def _initialised(module: nn.Module, example: Tensor) -> nn.Module:
    """Initialise lazy layers by running the module on the example."""
    if any(is_lazy(p) for p in (*module.parameters(), *module.buffers())):
        with torch.no_grad():
            module.eval()(example)
    return module
