"""Counter-based random numbers: uniform, unrelated to each other, and each member's alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch._subclasses.fake_tensor import FakeTensorMode

from sumosurv.networks.layers import MemberDropout, drop_threshold, keep_mask, random_bits, stream_key

SEEDS = torch.tensor([0, 1, 2, 3, 12345, 2**31 - 2], dtype=torch.int64)
COUNT = 1 << 15


def bits(*counters: int) -> np.ndarray:
    """(members, COUNT) as unsigned 32-bit integers."""
    return random_bits(stream_key(SEEDS, *counters), COUNT).numpy().view(np.uint32)


def mixed(x: int) -> int:
    """The hash of one number, with Python's integers."""
    for shift, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
        x = (x ^ (x >> shift)) * factor % 2**32
    return x ^ (x >> 15)


def test_keys_and_bits_are_the_same_wherever_they_are_computed():
    """In host memory keys are made by NumPy, bits by torch: both are the hash written out."""
    keys = stream_key(SEEDS, 7, torch.tensor(3))
    found = random_bits(keys, 5, first=2).numpy().view(np.uint32)
    for seed, row in zip(SEEDS.tolist(), found):
        key = mixed(seed)
        for counter in (7, 3):
            key = mixed((key * 31 + counter + 0x3C6EF372) % 2**32)
        assert row.tolist() == [mixed((mixed(place + 0x517CC1B7) + key) % 2**32) for place in range(2, 7)]


def test_a_traced_program_leaves_nothing_behind():
    with FakeTensorMode():
        random_bits(stream_key(torch.zeros(2, dtype=torch.int64), 1), 4321)
    found = random_bits(stream_key(SEEDS, 1), 4321)
    assert torch.equal(found[:, 321:], random_bits(stream_key(SEEDS, 1), 4000, first=321))


def test_bits_are_uniform():
    for row in bits(1, 0):
        assert stats.chisquare(np.bincount(row >> 24, minlength=256)).pvalue > 1e-4
        assert stats.kstest(row / 2.0**32, "uniform").pvalue > 1e-4
        ones = np.unpackbits(row.view(np.uint8)).reshape(COUNT, 32).mean(0)
        assert np.abs(ones - 0.5).max() < 4.5 * 0.5 / np.sqrt(COUNT)


def independent(a: np.ndarray, b: np.ndarray) -> bool:
    cells = np.bincount((a >> 28) * 16 + (b >> 28), minlength=256)
    return stats.chisquare(cells).pvalue > 1e-5 and abs(np.corrcoef(a.astype(float), b.astype(float))[0, 1]) < 0.03


def test_neighbours_members_steps_and_places_are_unrelated():
    now = bits(1, 0)
    for lag in (1, 2, 64):
        assert all(independent(row[:-lag], row[lag:]) for row in now)
    assert all(independent(now[i], now[j]) for i in range(len(SEEDS)) for j in range(i))
    assert all(independent(a, b) for a, b in zip(now, bits(2, 0)))
    assert all(independent(a, b) for a, b in zip(now, bits(1, 1)))
    assert all(independent(a, b) for a, b in zip(bits(2, 1), bits(1, 2)))


def test_keys_do_not_collide():
    seeds = torch.arange(500)
    keys = torch.stack([stream_key(seeds, step, place) for step in range(40) for place in range(3)])
    # 60,000 draws of 2^32: about 0.4 pairs are expected to agree
    assert len(torch.unique(keys)) >= keys.numel() - 4


def test_a_member_s_numbers_do_not_depend_on_the_others():
    together = random_bits(stream_key(SEEDS, 5, 2), 100)
    for k in range(len(SEEDS)):
        assert torch.equal(random_bits(stream_key(SEEDS[k : k + 1], 5, 2), 100)[0], together[k])


@pytest.mark.parametrize("drop", [0.0, 0.1, 0.5, 0.9])
def test_keep_mask_keeps_the_wanted_share(drop):
    rates = torch.full((len(SEEDS),), drop)
    keep = keep_mask(stream_key(SEEDS, 3, 1), drop_threshold(rates), (256, 128))
    assert keep.shape == (len(SEEDS), 256, 128)
    share = keep.double().mean((1, 2)).numpy()
    np.testing.assert_allclose(share, 1 - drop, atol=4.5 * np.sqrt(max(drop * (1 - drop), 1e-12) / (256 * 128)))


def test_each_member_has_its_own_rate():
    keep = keep_mask(stream_key(SEEDS[:3], 0), drop_threshold(torch.tensor([0.0, 0.2, 0.7])), (100, 100))
    np.testing.assert_allclose(keep.double().mean((1, 2)).numpy(), [1.0, 0.8, 0.3], atol=0.02)


def test_dropout_layer_keeps_the_mean_and_rests_in_evaluation():
    layer = MemberDropout(SEEDS, torch.full((len(SEEDS),), 0.4), place=0)
    x = torch.ones(len(SEEDS), 200, 50)
    first = layer.train()(x)
    assert torch.equal(first, layer(x))  # the same step, the same mask
    layer.step += 1
    assert not torch.equal(first, layer(x))
    assert first.unique().tolist() == [0.0, pytest.approx(1 / 0.6)]
    np.testing.assert_allclose(first.mean((1, 2)).numpy(), 1.0, atol=0.04)
    assert torch.equal(layer.eval()(x), x)
