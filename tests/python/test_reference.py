"""Two opinions on the contract, one in C++ loops, one in NumPy: they must agree on everything."""

import numpy as np
import pytest
from conftest import Data

import heed

OPTIONS = {
    "nothing": {},
    "causal": {"causal": True},
    "top left": {"mask": "t"},
    "window": {"window": (3, 1)},
    "causal window": {"window": (3, -1), "causal": True},
    "window with sink keys": {"mask": "b:2,0,2"},
    "raw coordinates": {"mask": "g:3,5"},
    "scale": {"scale": -0.3},
    "soft cap": {"softcap": 1.5},
    "accurate": {"math": "accurate"},
    "dropout": {"dropout_p": 0.3, "seed": 2**40 + 17, "offset": 2**33 + 5},
    "lengths": {"seqlens_q": np.array([4, 0], np.int32), "seqlens_k": np.array([13, 5], np.int64)},
}


def with_arrays(name, data):
    """Options that are arrays, for b 2, h 4, s_q 9, s_k 13."""
    everything = {
        "bias": {"bias": data.normal(2, 4, 9, 13)},
        "bias of keys": {"bias": data.normal(13)},
        "bias with -inf": {"bias": np.where(data.rng.random((9, 13)) < 0.5, -np.inf, 0).astype(np.float32)},
        "bool mask": {"mask": data.rng.random((2, 1, 9, 13)) < 0.6},
        "bool mask and causal": {"mask": data.rng.random((4, 9, 13)) < 0.6, "causal": True},
        "a row without keys": {"mask": np.arange(9)[:, None] != np.full(13, 4)[None, :]},
        "block mask": {"block_mask": (data.rng.random((2, 4, 3, 4)) < 0.6, 4, 4)},
        "alibi": {"alibi_slopes": data.normal(4)},
        "alibi per batch entry": {"alibi_slopes": data.normal(2, 4), "causal": True},
        "sink": {"sink": data.normal(4)},
        "sink without keys": {"sink": data.normal(4), "seqlens_k": np.array([0, 2], np.int32)},
    }
    everything["all together"] = {
        "bias": data.normal(4, 9, 13),
        "alibi_slopes": data.normal(4),
        "sink": data.normal(4),
        "softcap": 2.0,
        "mask": data.rng.random((9, 13)) < 0.8,
        "window": (8, 2),
        "dropout_p": 0.2,
        "seed": 5,
    }
    return everything if name is None else everything[name]


NAMES = list(OPTIONS) + list(with_arrays(None, Data()))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_the_two_references_agree(name, layout):
    data = Data(3)
    q, k, v = data.qkv(layout=layout, d_v=24)
    options = OPTIONS[name] if name in OPTIONS else with_arrays(name, data)
    expected, expected_lse = heed.oracle(q, k, v, return_lse=True, layout=layout, **options)
    got, lse = heed.reference.attention(q, k, v, layout=layout, **options)
    np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(lse, expected_lse, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_library_is_as_right_as_its_type_allows(name):
    data = Data(4)
    q, k, v = data.qkv(d_v=24)
    options = OPTIONS[name] if name in OPTIONS else with_arrays(name, data)
    o, lse = heed.attention(q, k, v, return_lse=True, **options)
    judge = heed.Validator(q, k, v, **options)
    assert judge.check(o), judge.check(o)
    assert judge.check_lse(lse), judge.check_lse(lse)
    # A validator that lets everything pass would be of no use.
    o[0, 1, 2, 3] += 20 * judge.allowed
    assert not judge.check(o)
    assert judge.check(o).position == (0, 1, 2, 3)


def test_packed_sequences_agree():
    data = Data(5)
    starts_q, starts_k = np.array([0, 5, 5, 9], np.int32), np.array([0, 3, 8, 15], np.int32)
    q, k, v = data.normal(9, 4, 16), data.normal(15, 2, 16), data.normal(15, 2, 8)
    options = {"causal": True, "sink": data.normal(4), "bias": data.normal(4, 5, 7)}
    arguments = {"cu_seqlens_q": starts_q, "cu_seqlens_k": starts_k, **options}
    expected, expected_lse = heed.oracle(q, k, v, return_lse=True, **arguments)
    got, lse = heed.reference.attention(q, k, v, **arguments)
    np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(lse, expected_lse, rtol=1e-11, atol=1e-12)
    o, o_lse = heed.attention_varlen(q, k, v, starts_q, starts_k, return_lse=True, **options)
    np.testing.assert_allclose(o, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(o_lse, expected_lse, rtol=1e-5, atol=1e-5)


def test_a_hidden_nan_stays_hidden_and_a_visible_one_is_told():
    q, k, v = Data(6).qkv(b=1, s_q=5, s_k=5, h=2, h_k=2)
    v[0, 4, 0, 3] = np.nan
    o = heed.attention(q, k, v, causal=True)
    assert np.isfinite(o[0, :4]).all()
    assert np.isnan(o[0, 4, 0, 3]) and np.isfinite(o[0, 4, 1]).all()
    judge = heed.Validator(q, k, v, causal=True)
    assert judge.check(o)
    assert not judge.check(np.nan_to_num(o))
    got, _ = heed.reference.attention(q, k, v, causal=True)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(judge.expected))


def test_random_words_are_those_of_the_contract():
    q, k, v = Data(7).qkv(b=1, s_q=33, s_k=47, h=3, h_k=1)
    randval = np.zeros((1, 3, 33, 47), np.uint16)
    heed.attention(q, k, v, dropout_p=0.5, seed=99, offset=7, randval=randval)
    for h in range(3):
        np.testing.assert_array_equal(randval[0, h], heed.reference.words(99, 7, h, 33, 47))


@pytest.mark.parametrize(
    "options, words",
    [
        ({"layout": "BHSD"}, "layout = 'BHSD'.*'bhsd'"),
        ({"math": "exact"}, "math = 'exact'.*'accurate'"),
        ({"precision": "Plain"}, "precision = 'Plain'.*'plain'"),
        ({"mask": "t", "causal": True}, "again"),
        ({"window": (1, 3), "causal": True}, "leave out one"),
    ],
)
def test_options_that_the_library_refuses_are_refused(data, options, words):
    """And not taken for others: a judge that computed something else would be wrong without a word."""
    q, k, v = data.qkv()
    with pytest.raises(ValueError, match=words):
        heed.reference.attention(q, k, v, **options)
