"""Checkpoints: a training that is ended and goes on becomes what it would have become."""

from __future__ import annotations

import errno

import numpy as np
import pytest
import torch
from safetensors import SafetensorError, safe_open

from sumosurv import SumoNet, WeibullNet, datasets
from sumosurv.model_files import model_digest
from sumosurv.training import Checkpoints
from sumosurv.training.checkpoint import Checkpoint

DATA = datasets.simulate("weibull", 150, random_state=0)


class EndedError(Exception):
    """What ends a training in the middle, as a signal would."""


def kill_at(number, component="network"):
    def on_epoch(epoch):
        if epoch.number == number and epoch.component == component:
            raise EndedError

    return on_epoch


def fit(model, folder, seconds=0.0):
    return model.fit(DATA.X, DATA.y, checkpoint=Checkpoints(folder, seconds))


def own_encoder():
    return torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.3))


@pytest.mark.parametrize("settings", [{}, {"refit": True}, {"encoder": own_encoder}], ids=["plain", "refit", "encoder"])
def test_a_training_that_goes_on_ends_where_it_would_have_ended(tmp_path, settings):
    """Bit for bit, dropout in an encoder of the user's own and its averages included."""
    settings = {"components": "networks", "n_members": 2, "max_epochs": 8, "patience": 3, "random_state": 0, **settings}
    whole = SumoNet(**settings).fit(DATA.X, DATA.y)
    with pytest.raises(EndedError):
        fit(SumoNet(**settings, verbose=kill_at(4)), tmp_path)
    seen = []
    model = fit(SumoNet(**settings, verbose=lambda epoch: seen.append(epoch.number)), tmp_path)
    assert seen[0] == 4  # the epoch that was ended before it was kept
    assert model_digest(model) == model_digest(whole)
    assert model.history_.equals(whole.history_)
    np.testing.assert_array_equal(model.best_valid_, whole.best_valid_)


def test_components_that_were_trained_are_not_trained_again(tmp_path):
    whole = SumoNet(max_epochs=3, random_state=0).fit(DATA.X, DATA.y)
    with pytest.raises(EndedError):
        fit(SumoNet(max_epochs=3, random_state=0, verbose=kill_at(1, "proportional_hazards")), tmp_path)
    seen = []
    told = SumoNet(max_epochs=3, random_state=0, verbose=lambda epoch: seen.append((epoch.component, epoch.number)))
    model = fit(told, tmp_path)
    assert seen[0] == ("proportional_hazards", 1)
    assert {component for component, _ in seen} == {"proportional_hazards", "lognormal"}
    assert model_digest(model) == model_digest(whole)
    assert model.members_.equals(whole.members_)
    assert len(list(tmp_path.iterdir())) == 4


def test_a_fit_that_has_ended_is_read_and_not_trained(tmp_path):
    settings = {"n_members": 1, "max_epochs": 3, "random_state": 0}
    first = fit(WeibullNet(**settings), tmp_path)
    again = fit(WeibullNet(**settings, verbose=kill_at(0)), tmp_path)
    assert model_digest(again) == model_digest(first)
    assert again.history_.equals(first.history_)


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    settings = {"n_members": 1, "max_epochs": 2, "random_state": 0}
    fit(WeibullNet(**settings), tmp_path)
    for other in ({"random_state": 1}, {"max_epochs": 3}, {"learning_rate": 0.5}, {"covariate_layers": (8,)}):
        with pytest.raises(ValueError, match="other rows, settings or seeds"):
            fit(WeibullNet(**settings | other), tmp_path)
    with pytest.raises(ValueError, match="other rows, settings or seeds"):
        WeibullNet(**settings).fit(DATA.X[::-1], DATA.y, checkpoint=tmp_path)
    fit(WeibullNet(**settings), tmp_path)  # which changes nothing


def test_a_damaged_file_is_told(tmp_path):
    """A file cut short, and one with another bit anywhere: in its header, its weights or its history."""
    settings = {"n_members": 1, "max_epochs": 2, "random_state": 0}
    fit(WeibullNet(**settings), tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    damaged = [whole[:-100]]
    for place in np.linspace(8, len(whole) - 1, 20).astype(int):
        changed = bytearray(whole)
        changed[place] ^= 1
        damaged.append(bytes(changed))
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(ValueError, match="delete it"):
            fit(WeibullNet(**settings), tmp_path)
    path.write_bytes(whole)
    fit(WeibullNet(**settings, verbose=kill_at(0)), tmp_path)


def test_what_is_no_folder_is_told(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    for name in (path, path / "inside"):
        with pytest.raises(NotADirectoryError, match="is a file"):
            fit(WeibullNet(n_members=1, max_epochs=2), name)
    with pytest.raises(TypeError, match=r"checkpoint .*folder.* got 5"):
        WeibullNet(n_members=1, max_epochs=2).fit(DATA.X, DATA.y, checkpoint=5)
    assert path.read_text() == "mine"


def test_between_two_files_there_is_time(tmp_path):
    """Of long intervals only the end of the training is kept."""
    with pytest.raises(EndedError):
        fit(WeibullNet(n_members=1, max_epochs=3, random_state=0, verbose=kill_at(2)), tmp_path, seconds=1e6)
    assert not list(tmp_path.iterdir())
    fit(WeibullNet(n_members=1, max_epochs=3, random_state=0), tmp_path, seconds=1e6)
    (path,) = tmp_path.iterdir()
    with safe_open(str(path), framework="pt") as file:
        assert '"epochs": 3, "done": true' in file.metadata()["sumosurv checkpoint"]


def test_a_full_disk_is_an_error_of_the_system(tmp_path, monkeypatch):
    def full(*_, **__):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        Checkpoint(tmp_path / "training-1.safetensors", 0.0).save("digest", [], [[np.zeros(1)]], done=False)
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []
