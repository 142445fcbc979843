"""heed.attention on NumPy arrays: types, layouts, strides, what is written and what is not."""

import numpy as np
import pytest
from conftest import NUMPY_TYPES, Data, guarded

import heed


@pytest.mark.parametrize("type_name", NUMPY_TYPES)
@pytest.mark.parametrize("d", [1, 40, 64, 128, 200])
def test_every_type_and_head_dim_is_judged_right(type_name, d):
    q, k, v = Data(d).qkv(s_q=37, s_k=70, h=6, h_k=3, d=d, dtype=NUMPY_TYPES[type_name])
    o, lse = heed.attention(q, k, v, causal=True, return_lse=True)
    assert o.dtype == q.dtype and o.shape == q.shape
    assert lse.dtype == np.float32 and lse.shape == (2, 6, 37)
    judge = heed.Validator(q, k, v, causal=True)
    assert judge.check(o), judge.check(o)
    assert judge.check_lse(lse), judge.check_lse(lse)


def test_the_two_layouts_are_the_same_numbers(data):
    q, k, v = data.qkv()
    straight = heed.attention(q, k, v, causal=True)
    turned = heed.attention(*(each.swapaxes(1, 2) for each in (q, k, v)), causal=True, layout="bhsd")
    np.testing.assert_array_equal(turned.swapaxes(1, 2), straight)
    dense = heed.attention(*(each.swapaxes(1, 2).copy() for each in (q, k, v)), causal=True, layout="bhsd")
    np.testing.assert_array_equal(dense.swapaxes(1, 2), straight)


def test_packed_qkv_is_read_in_place(data):
    qkv = data.normal(2, 11, 3, 4, 16)
    q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    expected = heed.attention(q.copy(), k.copy(), v.copy())
    np.testing.assert_array_equal(heed.attention(q, k, v), expected)


def test_a_stride_of_zero_repeats_an_entry(data):
    q, k, v = data.qkv(b=3)
    wide_k, wide_v = (np.broadcast_to(each[:1], each.shape) for each in (k, v))
    expected = heed.attention(q, wide_k.copy(), wide_v.copy())
    np.testing.assert_array_equal(heed.attention(q, wide_k, wide_v), expected)


def test_out_is_written_and_nothing_around_it(data):
    q, k, v = data.qkv(d_v=24)
    out, untouched = guarded((2, 9, 4, 24), np.float32)
    lse, lse_untouched = guarded((2, 4, 9), np.float32)
    result, result_lse = heed.attention(q, k, v, out=out, lse_out=lse, return_lse=True)
    assert result is out and result_lse is lse
    assert untouched() and lse_untouched()
    np.testing.assert_array_equal(out, heed.attention(q, k, v))


def test_gaps_between_the_rows_of_out_stay_as_they_were(data):
    q, k, v = data.qkv()
    wide = np.full((2, 9, 4, 20), np.nan, np.float32)
    heed.attention(q, k, v, out=wide[..., :16])
    assert np.isnan(wide[..., 16:]).all() and np.isfinite(wide[..., :16]).all()


def test_out_may_have_another_type(data):
    q, k, v = data.qkv(dtype=np.float16)
    out = np.empty(q.shape, np.float32)
    heed.attention(q, k, v, out=out)
    np.testing.assert_allclose(out, heed.oracle(q, k, v), atol=2e-3)


def test_rows_behind_a_length_are_neither_read_nor_written(data):
    q, k, v = data.qkv()
    q[1, 4:], k[1, 6:], v[1, 6:] = np.nan, np.nan, np.nan
    out = np.full(q.shape, 7, np.float32)
    heed.attention(q, k, v, out=out, seqlens_q=np.array([9, 4], np.int32), seqlens_k=np.array([13, 6], np.int32))
    assert (out[1, 4:] == 7).all() and np.isfinite(out).all()
    np.testing.assert_allclose(out[1:, :4], heed.oracle(q[1:, :4], k[1:, :6], v[1:, :6]), atol=1e-5)


@pytest.mark.parametrize("shape", [{"s_k": 0}, {"s_q": 0}, {"b": 0}])
def test_empty_problems_are_ordinary(shape, data):
    q, k, v = data.qkv(**shape)
    o, lse = heed.attention(q, k, v, return_lse=True)
    assert (o == 0).all() and (lse == -np.inf).all()


def test_packed_sequences_may_be_empty_or_leave_rows_out(data):
    q, k, v = data.normal(12, 4, 16), data.normal(20, 2, 16), data.normal(20, 2, 16)
    out = np.full(q.shape, 5, np.float32)
    starts_q, starts_k = np.array([0, 4, 4, 9]), np.array([0, 6, 6, 20])
    heed.attention_varlen(q, k, v, starts_q, starts_k, causal=True, out=out)
    assert (out[9:] == 5).all()
    for b in (0, 2):
        rows, keys = slice(starts_q[b], starts_q[b + 1]), slice(starts_k[b], starts_k[b + 1])
        expected = heed.oracle(q[None, rows], k[None, keys], v[None, keys], causal=True)[0]
        np.testing.assert_allclose(out[rows], expected, atol=1e-5)


def test_a_plan_of_the_longest_length_serves_shorter_lists(data):
    q, k, v = data.normal(12, 4, 16), data.normal(20, 2, 16), data.normal(20, 2, 16)
    lists = {"cu_seqlens_q": np.array([0, 4, 12]), "cu_seqlens_k": np.array([0, 6, 20])}
    longest = {"max_seqlen_q": 12, "max_seqlen_k": 20}
    plan = heed.plan(q, k, v, **lists, **longest)
    for lists["cu_seqlens_q"] in (np.array([0, 4, 12]), np.array([0, 11, 12])):
        o = plan.run(q, k, v, **lists, **longest)
        np.testing.assert_allclose(o, heed.oracle(q, k, v, **lists), atol=1e-5)


def test_the_same_bits_every_time(data):
    q, k, v = data.qkv(s_q=100, s_k=300)
    first = heed.attention(q, k, v, causal=True)
    for _ in range(20):
        np.testing.assert_array_equal(heed.attention(q, k, v, causal=True), first)


def test_dropout_is_replayed_by_its_seed(data):
    q, k, v = data.qkv()
    draw = lambda **options: heed.attention(q, k, v, dropout_p=0.5, **options)
    np.testing.assert_array_equal(draw(seed=1), draw(seed=1))
    assert (draw(seed=1) != draw(seed=2)).any()
    assert (draw(seed=1) != draw(seed=1, offset=1)).any()
    state = np.array([1, 0])
    np.testing.assert_array_equal(draw(dropout_state=state), draw(seed=1))
    twice = [draw(generator=np.random.default_rng(9)) for _ in range(2)]
    np.testing.assert_array_equal(*twice)


def test_threads_compute_side_by_side(data):
    from concurrent.futures import ThreadPoolExecutor

    problems = [Data(seed).qkv(s_q=20 + seed) for seed in range(8)]
    expected = [heed.attention(*each) for each in problems]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(10):
            for got, want in zip(pool.map(lambda each: heed.attention(*each), problems), expected):
                np.testing.assert_array_equal(got, want)
