"""Any module as the covariate network: own initial weights per member, vmap or a loop, and training."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import sumosurv
from small_networks import table_encoder
from sumosurv import SumoNet, Surv
from sumosurv.networks import Inputs, ModuleEncoder, select_members

OPTIONS = {"time_layers": (4,), "max_epochs": 6, "batch_size": 32, "random_state": 0, "learning_rate": 0.02}


class Branching(nn.Module):
    """A decision that depends on the data, which vmap cannot follow."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(3, 4)

    def forward(self, x):
        return self.a(x) if float(x.detach().sum()) > 0 else self.b(x)


def mlp():
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4))


def with_batch_norm():
    return nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU())


def with_dropout():
    return nn.Sequential(nn.Linear(3, 16), nn.Dropout(0.5), nn.Linear(16, 4))


def attention():
    return nn.Sequential(nn.Unflatten(1, (3, 1)), nn.Linear(1, 4), nn.TransformerEncoderLayer(4, 2, 8), nn.Flatten())


MODULES = {"mlp": mlp, "batch norm": with_batch_norm, "dropout": with_dropout, "branching": Branching}


def data(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    time = rng.exponential(np.exp(-1.5 * X[:, 0]))
    return X, Surv.from_arrays(rng.random(n) < 0.8, time)


def shared(x):
    return Inputs(x, torch.zeros(len(x), 0, dtype=torch.long)).shared()


def member_copy(encoder: ModuleEncoder, make, k: int) -> nn.Module:
    """The plain module with the weights of member k: an independent way to run it."""
    module = make().to(encoder.stacked[0].dtype)
    state = {name: encoder.stacked[i][k] for i, name in enumerate(encoder._names)}
    state |= {name: getattr(encoder, f"buffer_{i}")[k] for i, name in enumerate(encoder._buffer_names)}
    module.load_state_dict(state)
    return module.eval()


def test_a_level_that_was_never_seen_starts_and_stays_at_the_zero_embedding():
    """Rows with two unseen levels are alike; so is what the layers see of them and of no categories at all."""
    encoder = table_encoder((0, 1), levels=(4, 3), n_numeric=2, frequencies=0)
    for table in encoder.embeddings:
        assert (table[:, 0] == 0).all()
        assert (table[:, 1:].abs().sum(2) > 0).all()
    numeric = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    features = encoder._features(Inputs(numeric, torch.zeros(5, 2, dtype=torch.long)).shared())
    assert (features[..., 2:] == 0).all()
    torch.testing.assert_close(features[0, :, :2], numeric)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("as_factory", [True, False])
def test_members_start_apart_and_run_as_plain_modules(name, as_factory):
    make = MODULES[name]
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    encoder = ModuleEncoder(make if as_factory else make(), [0, 1, 2], x).eval()
    codes = encoder(shared(x))
    assert codes.shape == (3, 7, encoder.width)
    assert not torch.allclose(codes[0], codes[1])
    assert not torch.allclose(codes[1], codes[2])
    for k in range(3):
        torch.testing.assert_close(codes[k], member_copy(encoder, make, k)(x), rtol=1e-5, atol=1e-6)
    alone = ModuleEncoder(make if as_factory else make(), [1], x).eval()
    torch.testing.assert_close(alone(shared(x))[0], codes[1], rtol=1e-5, atol=1e-6)
    own = torch.stack([x, x + 1, x + 2])
    each = encoder(Inputs(own, torch.zeros(3, 7, 0, dtype=torch.long)))
    torch.testing.assert_close(each[0], codes[0], rtol=1e-5, atol=1e-6)
    for k in range(3):
        torch.testing.assert_close(each[k], member_copy(encoder, make, k)(own[k]), rtol=1e-5, atol=1e-6)


def test_layers_with_a_private_reset_start_apart_too():
    x = torch.randn(2, 3)
    encoder = ModuleEncoder(attention(), [0, 1], x)
    for name, stacked in zip(encoder._names, encoder.stacked):
        if "norm" not in name and "bias" not in name:
            assert not torch.equal(stacked[0], stacked[1]), name


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("n_members", [1, 3])
def test_every_encoder_trains(name, n_members):
    X, y = data()
    model = SumoNet(encoder=MODULES[name](), n_members=n_members, **OPTIONS).fit(X, y)
    valid = model.history_.pivot(index="epoch", columns="member", values="valid")
    assert (valid.iloc[-1] > valid.iloc[0]).all()
    assert model.n_members_ == n_members
    again = SumoNet(encoder=MODULES[name](), n_members=n_members, **OPTIONS).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), again.predict(X))
    codes = model.stack_.populations[0].network.encoder(shared(torch.from_numpy(X)))
    for k in range(n_members):
        plain = member_copy(model.stack_.populations[0].network.encoder, MODULES[name], k)
        torch.testing.assert_close(codes[k], plain(torch.from_numpy(X)), rtol=1e-9, atol=1e-9)


def test_batch_norm_keeps_statistics_per_member_and_those_of_the_best_epoch():
    X, y = data(160)
    valid = (X[:50], y[:50])
    model = SumoNet(encoder=with_batch_norm(), n_members=3, dropout=0.0, **(OPTIONS | {"learning_rate": 0.3}))
    model.fit(X[50:], y[50:], validation_data=valid)
    means = model.stack_.populations[0].network.encoder.buffer_0
    assert means.shape == (3, 6)
    assert not torch.allclose(means[0], means[1])
    assert (model.best_epoch_ < OPTIONS["max_epochs"] - 1).any()  # else the last epoch's would do
    scores = [model.predict_distribution(X[:50]).base.components[k] for k in range(3)]
    for k, part in enumerate(scores):
        t = torch.from_numpy(y["time"][:50] / model.time_unit_)
        event = torch.from_numpy(y["event"][:50])
        terms = torch.where(event, part.log_density(own_times=t), part.log_survival(own_times=t))
        value = terms.mean() - event.double().mean() * np.log(model.time_unit_)
        assert float(value) == pytest.approx(model.best_valid_[k], abs=1e-4)


def test_dropout_inside_an_encoder_differs_between_members_and_rests_in_evaluation():
    x = torch.randn(50, 3)
    encoder = ModuleEncoder(with_dropout, [5, 5], x)  # the same weights twice
    one, two = encoder.train()(shared(x))
    assert not torch.allclose(one, two)
    one, two = encoder.eval()(shared(x))
    torch.testing.assert_close(one, two)


def test_images_through_a_convolution():
    rng = np.random.default_rng(3)
    images = rng.normal(size=(90, 1, 6, 6)).astype(np.float32)
    images[:, :, :3] += rng.choice([-1.0, 1.0], 90)[:, None, None, None]
    time = rng.exponential(np.exp(-2.0 * images[:, 0, :3].mean((1, 2))))
    y = Surv.from_arrays(np.ones(90, dtype=bool), time)
    encoder = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4))
    model = SumoNet(encoder=encoder, n_members=2, **OPTIONS).fit(images, y)
    assert model.predict_survival_function(images[:5], [0.1, 1.0, 2.0]).shape == (5, 3)
    assert np.corrcoef(model.predict(images), images[:, 0, :3].mean((1, 2)))[0, 1] > 0.5
    with pytest.raises(ValueError, match=r"\(1, 6, 6\); got \(1, 5, 6\)"):
        model.predict(images[:, :, :5])
    with pytest.raises(ValueError, match="NaN or infinity"):
        model.predict(np.full_like(images, np.nan))
    with pytest.raises(ValueError, match="encoder="):
        SumoNet(max_epochs=1).fit(images, y)


@pytest.mark.parametrize("as_factory", [True, False])
def test_frozen_weights_stay_as_they_are(as_factory):
    def make():
        module = mlp()
        with torch.no_grad():
            module[0].weight.copy_(torch.arange(24.0).reshape(8, 3) / 24)
        module[0].weight.requires_grad_(False)
        return module

    X, y = data()
    model = SumoNet(encoder=make if as_factory else make(), n_members=2, **OPTIONS).fit(X, y)
    weights = dict(
        zip(model.stack_.populations[0].network.encoder._names, model.stack_.populations[0].network.encoder.stacked)
    )
    assert torch.equal(weights["0.weight"].float(), (torch.arange(24.0).reshape(8, 3) / 24).expand(2, 8, 3))
    assert not torch.equal(weights["2.weight"][0], weights["2.weight"][1])


def test_an_encoder_without_weights():
    X, y = data()
    model = SumoNet(encoder=nn.Flatten(), n_members=2, **OPTIONS).fit(X, y)
    assert np.isfinite(model.score(X, y))


def test_an_encoder_reads_categories_as_columns_of_zero_and_one():
    import pandas as pd

    X, y = data()
    frame = pd.DataFrame({"a": X[:, 0], "c": np.where(X[:, 1] > 0, "p", "q")})
    model = SumoNet(encoder=nn.Linear(5, 4), n_members=2, **OPTIONS).fit(frame, y)  # number, unseen, missing, p, q
    assert model.stack_.populations[0].network.encoder.stacked[0].shape == (2, 4, 5)


@pytest.mark.parametrize("make", [mlp, Branching, with_batch_norm])
def test_some_members_of_an_encoder(make):
    x = torch.randn(6, 3)
    encoder = ModuleEncoder(make, [0, 1, 2], x).train()
    encoder(
        Inputs(torch.stack([x] * 3), torch.zeros(3, 6, 0, dtype=torch.long))
    )  # finds out whether vmap can follow it
    whole = encoder.eval()(shared(x))
    for members in ([2, 0], [1], slice(1, 2)):
        part = select_members(encoder, members).eval()(shared(x))
        torch.testing.assert_close(part, whole[members], rtol=1e-5, atol=1e-6)


def test_what_is_no_encoder():
    X, y = data(20)
    with pytest.raises(TypeError, match=r"torch\.nn\.Module .* returned int"):
        SumoNet(encoder=lambda: 3, max_epochs=1).fit(X, y)
    with pytest.raises(ValueError, match=r"2 rows .* shape \(2, 3, 1\)"):
        SumoNet(encoder=nn.Unflatten(1, (3, 1)), max_epochs=1).fit(X, y)
    with pytest.raises(ValueError, match=r"function .*; got 'resnet'"):
        SumoNet(encoder="resnet", max_epochs=1).fit(X, y)
    with pytest.raises(ValueError, match=r"3 inputs, of 3 columns: .*mat1"):
        SumoNet(encoder=nn.Linear(7, 2), max_epochs=1).fit(X, y)


def test_an_encoder_whose_width_does_not_fit_is_told_where_its_inputs_come_from():
    frame = pd.DataFrame({"age": [50.0, np.nan] * 10, "stage": ["I", "II", "III", "IV"] * 5, "size": np.arange(20.0)})
    _, y = data(20)
    expected = (
        r"rows of 9 inputs, of 3 columns: 'age' 2 \(value, missing\), 'stage' 6 \(4 levels, unseen, missing\), 'size' 1"
    )
    with pytest.raises(ValueError, match=expected):
        SumoNet(encoder=nn.Linear(3, 2), max_epochs=1).fit(frame, y)
    assert SumoNet(encoder=nn.Linear(9, 2), max_epochs=1, n_members=2).fit(frame, y).predict(frame).shape == (20,)


@pytest.mark.parametrize("kind", ["module", "function"])
def test_lazy_layers_take_their_width_from_the_rows(kind, tmp_path):
    def lazy():
        return nn.Sequential(nn.LazyLinear(4), nn.ReLU(), *([nn.LazyBatchNorm1d()] if kind == "function" else []))

    X, y = data(30)
    encoder = lazy() if kind == "module" else lazy
    settings = {"n_members": 2, "max_epochs": 2, "random_state": 0}
    model = SumoNet(encoder=encoder, **settings).fit(X, y)
    weights = model.stack_.populations[0].network.encoder.stacked[0]
    assert weights.shape == (2, 4, 3)
    assert not torch.equal(weights[0], weights[1])
    again = SumoNet(encoder=lazy() if kind == "module" else lazy, **settings).fit(X, y)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(sumosurv.load(tmp_path / "m", encoder=encoder).predict(X), model.predict(X))


def test_lazy_batch_normalisation_must_be_made_by_a_function():
    X, y = data(20)
    with pytest.raises(ValueError, match=r"LazyBatchNorm1d.* pass a function"):
        SumoNet(encoder=nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d()), max_epochs=1).fit(X, y)
