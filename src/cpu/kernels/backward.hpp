// The backward pass: five products with "queries in the lanes", for stretches of keys outermost and strips of queries
// inside. docs/kernels/cpu-backward.md has the schedule.
//
//   for each stretch of keys                                K and V as rows, K as panels; dK and dV start at 0
//     for each query head that shares them
//       for each strip of kStrip queries                    Q and dO as rows and as columns
//         for each chunk of the stretch                     dQ starts at 0, and is added to that of chunks before
//           for each block of 128 keys of the chunk         in runs of keys that the same vectors of queries see
//             S^T  [keys][queries] = K Q^T                  Unit::scores()
//             dP^T [keys][queries] = V dO^T                 Unit::scores()
//             P = exp2(S - LSE), dS = P (dP - D)            backward_pass.hpp
//             dQ^T [d][queries] += K^T dS^T                 Unit::accumulate()
//             dV   [keys][d_v]  += P^T dO                   Unit::add_outer()
//             dK   [keys][d]    += dS^T Q                   Unit::add_outer()
#pragma once

#include "cpu/kernels/backward_careful.hpp"
#include "cpu/kernels/backward_scratch.hpp"

namespace heed::cpu::HEED_ISA {

/// See BackwardKernels.
HEED_NOINLINE void delta(const BackwardJob& job, int64_t first_row, int32_t rows) {
  for (int64_t row = first_row; row < first_row + rows; ++row) {
    F sum = zero();
    for (int c = 0; c < job.forward.d_v; c += kLanes) {
      const int n = smaller(job.forward.d_v - c, kLanes);
      sum = fma(load_elements(address(job.d_o, 0, row, c), job.d_o.type, n),
                load_elements(address(job.forward.o, 0, row, c), job.forward.o.type, n), sum);
    }
    const float d_lse = job.d_lse == nullptr ? 0.f : job.d_lse[row * job.d_lse_row];
    job.delta[row] = sum_lanes(sum) - d_lse;
  }
}

/// Rows of a gradient that nothing adds to.
HEED_NOINLINE void store_zeros(const Plane& plane, int dim, int64_t first, int64_t rows) {
  for (int64_t row = first; row < first + rows; ++row)
    for (int c = 0; c < dim; c += kLanes)
      store_elements(const_cast<char*>(address(plane, 0, row, c)), plane.type, zero(), smaller(dim - c, kLanes));
}

/// dQ of a strip from its sum [round4(d)][kStrip].
HEED_NOINLINE void write_dq(const BackwardJob& job, int64_t first_row, int rows, const float* sum) {
  ForwardJob dq_as_output = job.forward;
  dq_as_output.o = job.dq;
  dq_as_output.d_v = job.forward.d;
  alignas(64) float factor[kStrip];
  const float scale = job.dq_in_16_bits ? 1.f : job.forward.scale;
  for (float& each : factor) each = scale;
  unpack_output(dq_as_output, first_row, rows, sum, factor, nullptr);
}

template <class Unit>
class Backward {
  static constexpr bool kPairs = Unit::kPairs;
  static constexpr int kKeysPerWord = kPairs ? 2 : 1;  // and queries
  static constexpr int kKeyStep = Unit::kKeyStep;
  static constexpr int kMostRuns = kKeyBlock / kKeyStep;

 public:
  static constexpr BackwardUnit functions() { return {scratch_bytes, begin, add, end, take_keys, add_scores}; }

 private:
  static size_t scratch_bytes(int32_t d, int32_t d_v, int32_t stretch) {
    BackwardScratch unused;
    return BackwardScratch::carve<Unit>(unused, nullptr, d, d_v, stretch);
  }

  static void begin(const BackwardJob& job, int32_t first, int32_t keys, void* memory) {
    Backward(job, memory).begin_stretch(first, keys);
  }
  static void add(const BackwardJob& job, const KeyPiece& piece, int32_t first, int32_t keys, float* dq, float* total,
                  void* memory) {
    Unit::begin_tile();
    Backward(job, memory).add_head(piece, first, keys, dq, total);
    Unit::end_tile();
  }
  static void end(const BackwardJob& job, int32_t first, int32_t keys, void* memory) {
    Backward(job, memory).end_stretch(first, keys);
  }
  static void take_keys(const BackwardJob& job, int32_t first, int32_t keys, void* memory) {
    Backward(job, memory).load_keys(first, keys);
  }
  static void add_scores(const BackwardJob& job, int64_t row, int32_t rows, int32_t first, int32_t keys,
                         const ScoreSums& to, void* memory) {
    Unit::begin_tile();
    Backward(job, memory).add_score_gradients(row, rows, first, keys, to);
    Unit::end_tile();
  }

  Backward(const BackwardJob& job, void* memory)
      : job_(job),
        words_(Unit::words(job.forward.d)),
        words_v_(Unit::words(job.forward.d_v)),
        pitch_(round_up(job.forward.d, kLanes)),
        pitch_v_(round_up(job.forward.d_v, kLanes)),
        features_(job.forward.has_score_features()) {
    BackwardScratch::carve<Unit>(scratch_, static_cast<char*>(memory), job.forward.d, job.forward.d_v, job.stretch);
    // As in the forward tiles: f32 queries carry scale and log2(e), raw products get them in the exponential.
    query_scale_ = features_ ? 1.f : job.forward.scale * kLog2e;
    factor_ = kPairs && !features_ ? (job.forward.scale < 0 ? -job.forward.scale : job.forward.scale) * kLog2e : 1.f;
  }

  void load_keys(int first, int keys) {
    const ForwardJob& job = job_.forward;
    const int padded = round_up(keys, kKeyStep);
    pack_rows<kPairs>(job.k, job.d, first, keys, padded, words_, scratch_.k);
    pack_rows<kPairs>(job.v, job.d_v, first, keys, padded, words_v_, scratch_.v);
  }

  void begin_stretch(int first, int keys) {
    load_keys(first, keys);
    const ForwardJob& job = job_.forward;
    const int padded = round_up(keys, kKeyStep);
    ForwardJob k_as_values = job;
    k_as_values.v = job.k;
    k_as_values.d_v = job.d;
    for (int block = 0; block * kKeyBlock < keys; ++block) {
      const int count = smaller(kKeyBlock, keys - block * kKeyBlock);
      scratch_.finite[block] =
          Unit::pack_values(k_as_values, first + block * kKeyBlock, count, round_up(count, kKeyStep),
                            scratch_.k_panels + block * scratch_.panel_floats);
    }
    __builtin_memset(scratch_.dk, 0, sizeof(float) * static_cast<size_t>(padded) * static_cast<size_t>(pitch_));
    __builtin_memset(scratch_.dv, 0, sizeof(float) * static_cast<size_t>(padded) * static_cast<size_t>(pitch_v_));
  }

  /// Whether the strip whose windows are set sees anything of the keys [first, end).
  bool sees(int first, int end) const { return first < end && scratch_.windows->sees(first, end - first); }

  void add_head(const KeyPiece& piece, int first, int keys, float* dq, float* total) {
    const ForwardJob& job = job_.forward;
    const int end = first + keys;
    const long strip_floats = static_cast<long>(round_up(job.d, kRows)) * kStrip;
    for (int64_t row = 0; row < job.s_q; row += kStrip, dq += strip_floats, total += strip_floats) {
      const int rows = smaller(kStrip, static_cast<int>(job.s_q - row));
      scratch_.windows->set(job, row, rows);
      const bool makes_delta = piece.whole_head && first == 0;
      if (makes_delta) delta(job_, row, rows);
      if (sees(first, end)) {
        load_rows(row, rows);
        next_ = NextStrip::after(job_, row, scratch_.windows->keys_seen(first, keys) / kKeyStep, makes_delta);
        add_strip(piece, row, rows, first, end, dq, total);
      } else if (piece.whole_head && end == job.s_k && !sees(0, first)) {
        store_zeros(job_.dq, job.d, row, rows);
      }
    }
  }

  /// A stretch of keys, column by column and chunk by chunk. Sums that keys outside of it have begun or will go on with
  /// are in `dq` and `total`, all others in the scratch.
  void add_strip(const KeyPiece& piece, int64_t row, int rows, int first, int end, float* dq, float* total) {
    if (!sees(0, first) && !sees(end, job_.forward.s_k)) total = scratch_.total;
    for (int c = 0; c < piece.columns; ++c) {
      const KeyColumn column = piece.column(c);
      const int from = larger(first, column.first), to = smaller(end, column.end);
      const bool here = piece.whole_head && !sees(column.first, from) && !sees(to, column.end);
      float* const of_column = here ? scratch_.column : dq;
      for (int chunk = from; chunk < to; chunk += kBackwardChunk) {
        const int chunk_end = smaller(chunk + kBackwardChunk, to);
        if (!sees(chunk, chunk_end)) continue;
        add_chunk(row, rows, first, chunk, chunk_end);
        const bool seen_before = sees(column.first, chunk), seen_behind = sees(chunk_end, column.end);
        const bool whole = piece.whole_head && !seen_behind;
        sum_dq(seen_before ? of_column : nullptr, whole ? scratch_.dq : of_column);
        if (whole) end_column(column, row, rows, total);
      }
    }
  }

  /// The strip's dQ of a column, which is done, and those of the columns before it: left in `total` for the columns
  /// behind it, or written. As finish_dq() adds them, bit for bit.
  void end_column(const KeyColumn& column, int64_t row, int rows, float* total) {
    const bool seen_before = sees(0, column.first), seen_behind = sees(column.end, job_.forward.s_k);
    float* const to = seen_behind ? total : scratch_.dq;
    if (seen_before || seen_behind) {
      const long floats = static_cast<long>(round_up(job_.forward.d, kRows)) * kStrip;
      for (long n = 0; n < floats; n += kLanes) {
        const F x = load(scratch_.dq + n);
        store(to + n, seen_before ? HEED_ISA::add(load(total + n), x) : x);
      }
    }
    if (!seen_behind) write_dq(job_, row, rows, to);
  }

  /// What the products with K and V need of a strip whose windows are set.
  void load_strip(int64_t row, int rows) {
    const ForwardJob& job = job_.forward;
    scratch_.sums->set(job_, row, rows);
    if (features_) scratch_.lanes->set(job, row, rows);
    if constexpr (kPairs) {
      ForwardJob d_o_as_queries = job;
      d_o_as_queries.q = job_.d_o;
      d_o_as_queries.d = job.d_v;
      pack_queries<true>(job, row, rows, query_scale_, words_, scratch_.q_columns);
      pack_queries<true>(d_o_as_queries, row, rows, 1.f, words_v_, scratch_.do_columns);
    } else {
      const bool q_finite = pack_strip(job.q, job.d, row, rows, pitch_, scratch_.q_rows);
      const bool d_o_finite = pack_strip(job_.d_o, job.d_v, row, rows, pitch_v_, scratch_.do_rows);
      rows_finite_ = q_finite && d_o_finite;
      turn_strip(scratch_.q_rows, pitch_, query_scale_, words_, scratch_.q_columns);
      turn_strip(scratch_.do_rows, pitch_v_, 1.f, words_v_, scratch_.do_columns);
    }
  }

  /// What all five products need of a strip whose windows are set.
  void load_rows(int64_t row, int rows) {
    load_strip(row, rows);
#ifdef __AVX512BF16__
    if constexpr (kPairs) {
      const ForwardJob& job = job_.forward;
      const bool q_finite = pack_row_pairs(job.q, job.d, row, rows, pitch_, scratch_.q_rows);
      const bool d_o_finite = pack_row_pairs(job_.d_o, job.d_v, row, rows, pitch_v_, scratch_.do_rows);
      rows_finite_ = q_finite && d_o_finite;
    }
#endif
  }

  /// Keys [chunk, end) of the stretch that begins with key `first`; their dQ is in scratch_.dq then.
  void add_chunk(int64_t row, int rows, int first, int chunk, int end) {
    __builtin_memset(scratch_.dq, 0,
                     sizeof(float) * static_cast<size_t>(round_up(job_.forward.d, Unit::kOutputStep)) * kStrip);
    for (int key = chunk; key < end; key += kKeyBlock)
      add_block(row, rows, first, (key - first) / kKeyBlock, smaller(kKeyBlock, end - key));
  }

  /// Cuts a block of keys into runs, in their order; keys that no query of the strip sees are in none. Returns how
  /// many.
  int find_runs(int first, int keys, KeyRun (&runs)[kMostRuns]) const {
    const StripWindows& windows = *scratch_.windows;
    int count = 0;
    for (int key = 0; key < keys; key += kKeyStep) {
      int low, high;
      windows.active_vectors(first + key, kKeyStep, low, high);
      if (low >= high) continue;
      KeyRun run{key, kKeyStep, low / Unit::kVectorStep * Unit::kVectorStep, round_up(high, Unit::kVectorStep)};
      run.whole = windows.sees_all(first + key, kKeyStep);
      KeyRun* const last = count > 0 ? &runs[count - 1] : nullptr;
      if (last != nullptr && last->key + last->keys == key && last->low == run.low && last->high == run.high &&
          last->whole == run.whole)
        last->keys += kKeyStep;
      else
        runs[count++] = run;
    }
    return count;
  }

  /// What the pairs of a block need beside its products, for `count` runs of it. Returns whether any pair is kept.
  bool gather_block(int64_t row, int rows, int first, int keys, const KeyRun* runs, int count) {
    const ForwardJob& job = job_.forward;
    if (job.has_bit_masks() && !gather_mask_bits(job, row, rows, first, keys, *scratch_.mask_bits)) return false;
    const int begin = runs[0].key, end = runs[count - 1].key + runs[count - 1].keys;
    if (job.bias.data != nullptr)
      gather_bias(job, row, rows, first + begin, smaller(end, keys) - begin, scratch_.bias + begin * kStrip);
    if (job.drop) gather_dropout_bits(job, row, rows, first, end, *scratch_.drop_bits);
    return true;
  }

  /// S of a run into s, dP into dp. S comes a few keys at a time: between them the next strip is fetched.
  void multiply_scores(int stretch_key, const KeyRun& run) {
    const long lanes = run.low * kLanes;
    const int vectors = run.high - run.low;
    for (int key = run.key; key < run.key + run.keys; key += kKeyStep) {
      next_.fetch();
      Unit::scores(vectors, scratch_.k + static_cast<long>(stretch_key + key) * words_, words_,
                   scratch_.q_columns + lanes, scratch_.s + static_cast<long>(key) * kStrip + lanes, kKeyStep, words_);
    }
    Unit::scores(vectors, scratch_.v + static_cast<long>(stretch_key + run.key) * words_v_, words_v_,
                 scratch_.do_columns + lanes, scratch_.dp + static_cast<long>(run.key) * kStrip + lanes, run.keys,
                 words_v_);
  }

  /// Whether P is S less the LSE, exponentiated, for all pairs of a run.
  bool is_plain(const KeyRun& run) const {
    return run.whole && !features_ && !job_.forward.has_bit_masks() && !job_.forward.drop;
  }

  /// S of a run of the block that begins with key `first` becomes P, dP becomes dS.
  void make_gradients(int first, const KeyRun& run, bool before_cap) {
    const ForwardJob& job = job_.forward;
    const long at = static_cast<long>(run.key) * kStrip;
    if (is_plain(run)) return plain_gradients(scratch_.s + at, scratch_.dp + at, *scratch_.sums, factor_, run.keys);
    gradients({.job = &job,
               .windows = run.whole ? nullptr : scratch_.windows,
               .visible = job.has_bit_masks() ? scratch_.mask_bits : nullptr,
               .kept = job.drop ? scratch_.drop_bits : nullptr,
               .lanes = features_ ? scratch_.lanes : nullptr,
               .bias = job.bias.data != nullptr ? scratch_.bias : nullptr,
               .sums = scratch_.sums,
               .factor = factor_,
               .before_cap = before_cap},
              first, run, scratch_.s, scratch_.dp);
  }

  /// A block of the stretch that begins with key `stretch`.
  void add_block(int64_t row, int rows, int stretch, int block, int keys) {
    const int stretch_key = block * kKeyBlock, first = stretch + stretch_key;
    KeyRun runs[kMostRuns];
    const int count = find_runs(first, keys, runs);
    if (count == 0 || !gather_block(row, rows, first, keys, runs, count)) return;
    for (int i = 0; i < count; ++i) {
      multiply_scores(stretch_key, runs[i]);
      if (scratch_.finite[block] && rows_finite_) {
        make_words(first, runs[i]);
        add_products(block, round_up(keys, kKeyStep), runs[i]);
      } else {
        make_gradients(first, runs[i], /*before_cap=*/false);
        add_carefully(row, rows, stretch, stretch_key, keys, runs[i]);
      }
    }
  }

  /// P and dS of a run as words of the products.
  void make_words(int first, const KeyRun& run) {
#ifdef __AVX512BF16__
    if constexpr (kPairs) {
      const long at = static_cast<long>(run.key) * kStrip;
      const PairedGradients to{scratch_.p_rows + at / 2, scratch_.ds_rows + at / 2, scratch_.ds_pairs + at / 2};
      if (is_plain(run))
        return plain_gradients_paired(scratch_.s + at, scratch_.dp + at, *scratch_.sums, factor_, run.keys, to);
      make_gradients(first, run, /*before_cap=*/false);
      return pair_up(scratch_.s + at, scratch_.dp + at, run.keys, to);
    }
#endif
    make_gradients(first, run, /*before_cap=*/false);
  }

  /// The three sums of a run where K, Q or dO hold what is no number.
  void add_carefully(int64_t row, int rows, int stretch, int stretch_key, int keys, const KeyRun& run) {
    const ForwardJob& job = job_.forward;
    const VisiblePairs visible{*scratch_.windows, job.has_bit_masks() ? scratch_.mask_bits : nullptr,
                               stretch + stretch_key};
    const int end = smaller(run.key + run.keys, keys);
    add_dq_carefully(job, scratch_.dp, visible, run, end, scratch_.dq);
    add_outer_carefully(scratch_.s, job_.d_o, job.d_v, row, rows, visible, run, end,
                        scratch_.dv + static_cast<long>(stretch_key) * pitch_v_, pitch_v_);
    add_outer_carefully(scratch_.dp, job.q, job.d, row, rows, visible, run, end,
                        scratch_.dk + static_cast<long>(stretch_key) * pitch_, pitch_);
  }

  void add_score_gradients(int64_t row, int rows, int chunk, int keys, const ScoreSums& to) {
    scratch_.windows->set(job_.forward, row, rows);
    if (!scratch_.windows->sees(chunk, keys)) return;
    load_strip(row, rows);
    for (int chunk_key = 0; chunk_key < keys; chunk_key += kKeyBlock) {
      const int first = chunk + chunk_key, there = smaller(kKeyBlock, keys - chunk_key);
      KeyRun runs[kMostRuns];
      const int count = find_runs(first, there, runs);
      if (count == 0 || !gather_block(row, rows, first, there, runs, count)) continue;
      for (int i = 0; i < count; ++i) {
        multiply_scores(chunk_key, runs[i]);
        make_gradients(first, runs[i], /*before_cap=*/true);
        add_run_to(to, runs[i], rows, chunk, chunk_key, there);
      }
    }
  }

  void add_run_to(const ScoreSums& to, const KeyRun& run, int rows, int chunk, int chunk_key, int keys) const {
    // Lanes behind the last row are 0 times whatever a key holds.
    const int end = smaller(run.high * kLanes, rows);
    for (int key = run.key; key < smaller(run.key + run.keys, keys); ++key) {
      const float* const ds = scratch_.dp + static_cast<long>(key) * kStrip;
      double* const sums = to.sums + static_cast<long>(chunk_key + key) * kStrip;
      if (!to.by_distance) {
        for (int r = run.low * kLanes; r < end; ++r) sums[r] += static_cast<double>(ds[r]);
        continue;
      }
      const int j = chunk + chunk_key + key;
      for (int r = run.low * kLanes; r < end; ++r) {
        const int distance = scratch_.lanes->diagonal[r] - j;
        sums[r] += static_cast<double>(ds[r]) * static_cast<double>(distance < 0 ? -distance : distance);
      }
    }
  }

  /// The three sums of a run of a block of `padded` keys.
  void add_products(int block, int padded, const KeyRun& run) {
    constexpr int kRowWords = kStrip / kKeysPerWord;
    const float* const p = kPairs ? scratch_.p_rows : scratch_.s;
    const float* const ds = kPairs ? scratch_.ds_rows : scratch_.dp;
    const float* const ds_columns = kPairs ? scratch_.ds_pairs : scratch_.dp;
    const int vectors = run.high - run.low, word = run.low * kLanes / kKeysPerWord,
              terms = vectors * kLanes / kKeysPerWord;
    Unit::accumulate(vectors, run.low, scratch_.k_panels + block * scratch_.panel_floats, padded, ds_columns,
                     scratch_.dq, run.key, run.keys, job_.forward.d);
    const long at = static_cast<long>(run.key) * kRowWords + word, key = static_cast<long>(block) * kKeyBlock + run.key;
    Unit::add_outer(p + at, kRowWords, scratch_.do_rows + static_cast<long>(word) * pitch_v_,
                    scratch_.dv + key * pitch_v_, pitch_v_, run.keys, terms);
    Unit::add_outer(ds + at, kRowWords, scratch_.q_rows + static_cast<long>(word) * pitch_, scratch_.dk + key * pitch_,
                    pitch_, run.keys, terms);
  }

  /// The strip's dQ of a chunk and of those `before`, if there are any.
  void sum_dq(const float* before, float* to) const {
    const long floats = static_cast<long>(round_up(job_.forward.d, kRows)) * kStrip;
    // The factor of the end is known here already: what is rounded is what will be written.
    const F scale = broadcast(job_.forward.scale);
    for (long n = 0; n < floats; n += kLanes) {
      F x = load(scratch_.dq + n);
      if (job_.dq_in_16_bits) {
        x = mul(x, scale);
        if (before != nullptr) x = HEED_ISA::add(x, load(before + n));
        alignas(64) char rounded[kLanes * 4];
        store_elements(rounded, job_.dq.type, x, kLanes);
        x = load_elements(rounded, job_.dq.type, kLanes);
      } else if (before != nullptr) {
        x = HEED_ISA::add(x, load(before + n));
      }
      store(to + n, x);
    }
  }

  void end_stretch(int first, int keys) {
    store_rows(job_.dk, job_.forward.d, first, keys, scratch_.dk, pitch_, job_.forward.scale);
    store_rows(job_.dv, job_.forward.d_v, first, keys, scratch_.dv, pitch_v_, 1.f);
  }

  static void store_rows(const Plane& plane, int dim, int first, int keys, const float* from, int pitch, float factor) {
    for (int key = 0; key < keys; ++key, from += pitch)
      for (int c = 0; c < dim; c += kLanes)
        store_elements(const_cast<char*>(address(plane, 0, first + key, c)), plane.type,
                       mul(load(from + c), broadcast(factor)), smaller(dim - c, kLanes));
  }

  const BackwardJob& job_;
  const int words_, words_v_, pitch_, pitch_v_;
  const bool features_;
  float query_scale_ = 1.f, factor_ = 1.f;
  bool rows_finite_ = true;  // of Q and dO, for the strip
  NextStrip next_;
  BackwardScratch scratch_;
};

/// See BackwardKernels.
HEED_NOINLINE void finish_dq(const BackwardJob& job, int64_t first_row, int32_t rows, float* dq, int64_t column_stride,
                             const int32_t* column_keys, int32_t columns) {
  const long floats = static_cast<long>(round_up(job.forward.d, kRows)) * kStrip;
  StripWindows windows;
  windows.set(job.forward, first_row, rows);
  float* sum = nullptr;  // the first column that the strip sees anything of; the others are added to it
  for (int c = 0; c < columns; ++c, dq += column_stride) {
    if (!windows.sees(column_keys[c], column_keys[c + 1] - column_keys[c])) continue;
    if (sum == nullptr)
      sum = dq;
    else
      for (long n = 0; n < floats; n += kLanes) store(sum + n, add(load(sum + n), load(dq + n)));
  }
  if (sum == nullptr) return store_zeros(job.dq, job.forward.d, first_row, rows);
  write_dq(job, first_row, rows, sum);
}

}  // namespace heed::cpu::HEED_ISA
