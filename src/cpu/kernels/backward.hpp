// The backward pass: five products with "queries in the lanes", for chunks of keys outermost and strips of queries
// inside. docs/kernels/cpu-backward.md has the schedule.
//
//   for each chunk of keys                                  K and V as rows, K as panels; dK and dV start at 0
//     for each query head that shares them
//       for each strip of kStrip queries                    Q and dO as rows and as columns
//         for each block of 128 keys of the chunk
//           S^T  [keys][queries] = K Q^T                    scores()
//           dP^T [keys][queries] = V dO^T                   scores()
//           P = exp2(S - LSE), dS = P (dP - D)              backward_pass.hpp
//           dQ^T [d][queries] += K^T dS^T                   accumulate()
//           dV   [keys][d_v]  += P^T dO                     add_outer()
//           dK   [keys][d]    += dS^T Q                     add_outer()
#pragma once

#include "cpu/kernels/backward_pass.hpp"
#include "cpu/kernels/units.hpp"

namespace heed::cpu::HEED_ISA {

/// Rows [first, first + count) of a plane as f32 (Dot: as bf16 pairs) in rows of `pitch` words; what is behind `dim`
/// and behind the last row, up to `padded`, is 0.
template <bool Dot>
HEED_NOINLINE void pack_rows(const Plane& plane, int dim, int64_t first, int count, int padded, int pitch, float* to) {
  for (int r = 0; r < padded; ++r, to += pitch) {
    for (int w = 0; w < pitch; w += kLanes) {
      F x = zero();
      if (r < count && plane.column == 1) {
        x = load_words<Dot>(address(plane, 0, first + r, 0), plane.type, dim, w);
      } else if (r < count) {
        alignas(64) float t[kLanes] = {};
        for (int i = 0; i < kLanes; ++i) {
          if constexpr (Dot) {
            uint16_t pair[2] = {0, 0};
            for (int half = 0; half < 2; ++half)
              if (2 * (w + i) + half < dim)
                __builtin_memcpy(&pair[half], address(plane, 0, first + r, 2 * (w + i) + half), 2);
            __builtin_memcpy(&t[i], pair, 4);
          } else if (w + i < dim) {
            t[i] = load_element(address(plane, 0, first + r, w + i), plane.type);
          }
        }
        x = load(t);
      }
      store_f32(to + w, x, smaller(pitch - w, kLanes));
    }
  }
}

#ifdef __AVX512BF16__
/// kStrip rows as pairs of rows, [kStrip / 2][pitch] words: word c holds column c of rows 2r and 2r + 1.
HEED_NOINLINE void pack_row_pairs(const Plane& plane, int dim, int64_t first, int count, int pitch, float* to) {
  for (int r = 0; r < kStrip; r += 2, to += pitch)
    for (int c = 0; c < pitch; c += kLanes) {
      const int n = larger(0, smaller(dim - c, kLanes));
      const auto bits = [&](int row) {
        return row < count && n > 0 ? _mm512_cvtepu16_epi32(load_halves(address(plane, 0, first + row, c), n))
                                    : broadcast_int(0);
      };
      store(to + c, as_float(or_int(bits(r), shift_left<16>(bits(r + 1)))));
    }
}
#endif

/// c [keys][pitch] += a [keys][terms] b [terms][pitch], in words; keys is a multiple of 4. Every call sums from zero
/// and adds once.
template <int N, bool Dot>
HEED_NOINLINE void add_outer(const float* a, long a_row, const float* b, float* c, long pitch, int keys, int terms) {
  for (int key = 0; key < keys; key += kRows, a += kRows * a_row, c += kRows * pitch) {
    F sum[kRows][N];
    HEED_UNROLL for (int i = 0; i < kRows; ++i) HEED_UNROLL for (int j = 0; j < N; ++j) sum[i][j] = zero();
    const float* at = b;
    for (int t = 0; t < terms; ++t, at += pitch) product_step<N, Dot>(sum, a + t, a_row, at);
    HEED_UNROLL for (int i = 0; i < kRows; ++i) HEED_UNROLL for (int j = 0; j < N; ++j) {
      float* const to = c + i * pitch + kLanes * j;
      store(to, add(load(to), sum[i][j]));
    }
  }
}

/// add_outer() over all columns, as many vectors of them at a time as there are registers for.
template <bool Dot>
HEED_NOINLINE void add_outer_product(const float* a, long a_row, const float* b, float* c, long pitch, int keys,
                                     int terms) {
  for (int column = 0; column < pitch; column += kStrip)
    with_vectors(smaller(static_cast<int>(pitch) - column, kStrip) / kLanes,
                 [&]<int N>() { add_outer<N, Dot>(a, a_row, b + column, c + column, pitch, keys, terms); });
}

/// Whether all elements of these rows are finite: infinities and NaN must not meet the zeros of hidden pairs.
HEED_NOINLINE bool all_finite(const Plane& plane, int dim, int64_t first, int count) {
  F zeros = zero();  // x * 0 is 0 unless x is infinite or NaN
  for (int64_t row = first; row < first + count; ++row)
    for (int c = 0; c < dim; c += kLanes)
      zeros = fma(load_elements(address(plane, 0, row, c), plane.type, smaller(dim - c, kLanes)), zero(), zeros);
  return sum_lanes(zeros) == 0.f;
}

/// add_outer_product() with f32 weights [keys][kStrip], pair by pair: hidden pairs touch nothing.
HEED_NOINLINE void add_outer_carefully(const float* weights, const Plane& plane, int dim, int64_t row, int rows,
                                       const VisiblePairs& visible, float* c, int pitch, int keys) {
  for (int key = 0; key < keys; ++key, weights += kStrip, c += pitch)
    for (int r = 0; r < rows; ++r) {
      if (!visible.row(key, r)) continue;
      const F weight = broadcast(weights[r]);
      for (int column = 0; column < dim; column += kLanes) {
        const F x = load_elements(address(plane, 0, row + r, column), plane.type, smaller(dim - column, kLanes));
        store(c + column, fma(weight, x, load(c + column)));
      }
    }
}

/// Likewise dq [d][kStrip] += K^T dS^T, for keys of the caller's K.
HEED_NOINLINE void add_dq_carefully(const ForwardJob& job, const float* ds, const VisiblePairs& visible, int keys,
                                    float* dq) {
  for (int key = 0; key < keys; ++key, ds += kStrip)
    for (int c = 0; c < job.d; ++c) {
      const F k = broadcast(load_element(address(job.k, 0, visible.first + key, c), job.k.type));
      for (int v = 0; v < kVectors; ++v) {
        float* const to = dq + static_cast<long>(c) * kStrip + v * kLanes;
        store(to, select(visible.lanes(key, v), fma(k, load(ds + v * kLanes), load(to)), load(to)));
      }
    }
}

struct BackwardScratch {
  StripWindows* windows;
  LaneFeatures* lanes;
  StripSums* sums;
  float *q_columns, *do_columns;  // [words of d or d_v][kStrip]
  float *q_rows, *do_rows;        // [kStrip][pitch], Dot: [kStrip / 2][pitch]
  float *s, *dp;                  // [kKeyBlock][kStrip]
  float *p_rows, *ds_rows;        // Dot: [kKeyBlock][kStrip / 2]
  float* ds_pairs;                // Dot: [kKeyBlock / 2][kStrip]
  float *k, *v;                   // [kBackwardChunk][words]
  float* k_panels;                // per block: panels [d / 4][keys][4]
  float *dk, *dv;                 // [kBackwardChunk][pitch]
  float* dq;                      // [round4(d)][kStrip]
  float* bias;                    // [kKeyBlock][kStrip]
  BlockBits *mask_bits, *drop_bits;
  bool* finite;       // of K, for each block
  long panel_floats;  // of a block

  template <bool Dot>
  static size_t carve(BackwardScratch& scratch, char* base, int d, int d_v) {
    size_t offset = 0;
    const auto take = [&](size_t bytes) {
      char* const at = base + offset;
      offset += (bytes + 127) / 128 * 128;
      return at;
    };
    const auto floats = [&](long n) { return reinterpret_cast<float*>(take(static_cast<size_t>(n) * 4)); };
    const int words = VectorUnit<Dot>::words(d), words_v = VectorUnit<Dot>::words(d_v);
    const int pitch = round_up(d, kLanes), pitch_v = round_up(d_v, kLanes);
    scratch.windows = reinterpret_cast<StripWindows*>(take(sizeof(StripWindows)));
    scratch.lanes = reinterpret_cast<LaneFeatures*>(take(sizeof(LaneFeatures)));
    scratch.sums = reinterpret_cast<StripSums*>(take(sizeof(StripSums)));
    scratch.q_columns = floats(static_cast<long>(words) * kStrip);
    scratch.do_columns = floats(static_cast<long>(words_v) * kStrip);
    scratch.q_rows = floats(static_cast<long>(kStrip) * pitch);
    scratch.do_rows = floats(static_cast<long>(kStrip) * pitch_v);
    scratch.s = floats(kKeyBlock * kStrip);
    scratch.dp = floats(kKeyBlock * kStrip);
    scratch.p_rows = floats(Dot ? kKeyBlock * kStrip / 2 : 0);
    scratch.ds_rows = floats(Dot ? kKeyBlock * kStrip / 2 : 0);
    scratch.ds_pairs = floats(Dot ? kKeyBlock * kStrip / 2 : 0);
    scratch.k = floats(static_cast<long>(kBackwardChunk) * words);
    scratch.v = floats(static_cast<long>(kBackwardChunk) * words_v);
    scratch.panel_floats = VectorUnit<Dot>::value_floats(d, kKeyBlock);
    scratch.k_panels = floats(scratch.panel_floats * (kBackwardChunk / kKeyBlock));
    scratch.dk = floats(static_cast<long>(kBackwardChunk) * pitch);
    scratch.dv = floats(static_cast<long>(kBackwardChunk) * pitch_v);
    scratch.dq = floats(static_cast<long>(round_up(d, kRows)) * kStrip);
    scratch.bias = floats(kKeyBlock * kStrip);
    scratch.finite = reinterpret_cast<bool*>(take(kBackwardChunk / kKeyBlock));
    scratch.mask_bits = reinterpret_cast<BlockBits*>(take(sizeof(BlockBits)));
    scratch.drop_bits = reinterpret_cast<BlockBits*>(take(sizeof(BlockBits)));
    return offset;
  }
};

template <bool Dot>
class Backward {
  using Unit = VectorUnit<Dot>;

 public:
  static size_t scratch_bytes(int32_t d, int32_t d_v) {
    BackwardScratch unused;
    return BackwardScratch::carve<Dot>(unused, nullptr, d, d_v);
  }

  static void begin(const BackwardJob& job, int32_t first, int32_t keys, void* memory) {
    Backward(job, memory).begin_chunk(first, keys);
  }
  static void add(const BackwardJob& job, int32_t first, int32_t keys, float* dq, bool fresh, void* memory) {
    Backward(job, memory).add_head(first, keys, dq, fresh);
  }
  static void end(const BackwardJob& job, int32_t first, int32_t keys, void* memory) {
    Backward(job, memory).end_chunk(first, keys);
  }
  static void take_keys(const BackwardJob& job, int32_t first, int32_t keys, void* memory) {
    Backward(job, memory).load_chunk(first, keys);
  }
  static void add_scores(const BackwardJob& job, int64_t row, int32_t rows, int32_t first, int32_t keys,
                         const ScoreSums& to, void* memory) {
    Backward(job, memory).add_score_gradients(row, rows, first, keys, to);
  }

 private:
  Backward(const BackwardJob& job, void* memory)
      : job_(job),
        words_(Unit::words(job.forward.d)),
        words_v_(Unit::words(job.forward.d_v)),
        pitch_(round_up(job.forward.d, kLanes)),
        pitch_v_(round_up(job.forward.d_v, kLanes)),
        features_(job.forward.has_score_features()) {
    BackwardScratch::carve<Dot>(scratch_, static_cast<char*>(memory), job.forward.d, job.forward.d_v);
    // As in the forward tiles: f32 queries carry scale and log2(e), raw products get them in the exponential.
    query_scale_ = features_ ? 1.f : job.forward.scale * kLog2e;
    factor_ = Dot && !features_ ? (job.forward.scale < 0 ? -job.forward.scale : job.forward.scale) * kLog2e : 1.f;
  }

  void load_chunk(int first, int keys) {
    const ForwardJob& job = job_.forward;
    const int padded = round_up(keys, Unit::kKeyStep);
    pack_rows<Dot>(job.k, job.d, first, keys, padded, words_, scratch_.k);
    pack_rows<Dot>(job.v, job.d_v, first, keys, padded, words_v_, scratch_.v);
  }

  void begin_chunk(int first, int keys) {
    load_chunk(first, keys);
    const ForwardJob& job = job_.forward;
    const int padded = round_up(keys, Unit::kKeyStep);
    ForwardJob k_as_values = job;
    k_as_values.v = job.k;
    k_as_values.d_v = job.d;
    for (int block = 0; block * kKeyBlock < keys; ++block) {
      const int count = smaller(kKeyBlock, keys - block * kKeyBlock);
      scratch_.finite[block] =
          Unit::pack_values(k_as_values, first + block * kKeyBlock, count, round_up(count, Unit::kKeyStep),
                            scratch_.k_panels + block * scratch_.panel_floats);
    }
    __builtin_memset(scratch_.dk, 0, sizeof(float) * static_cast<size_t>(padded) * static_cast<size_t>(pitch_));
    __builtin_memset(scratch_.dv, 0, sizeof(float) * static_cast<size_t>(padded) * static_cast<size_t>(pitch_v_));
  }

  void add_head(int first, int keys, float* dq, bool fresh) {
    const ForwardJob& job = job_.forward;
    const long strip_floats = static_cast<long>(round_up(job.d, kRows)) * kStrip;
    for (int64_t row = 0; row < job.s_q; row += kStrip, dq += strip_floats) {
      const int rows = smaller(kStrip, static_cast<int>(job.s_q - row));
      scratch_.windows->set(job, row, rows);
      const bool sees = scratch_.windows->sees(first, keys);
      if (sees) add_strip(row, rows, first, keys);
      if (sees || fresh) store_dq(dq, sees, fresh);
    }
  }

  /// What the products with K and V need of a strip whose windows are set.
  void load_strip(int64_t row, int rows) {
    const ForwardJob& job = job_.forward;
    scratch_.sums->set(job_, row, rows);
    if (features_) scratch_.lanes->set(job, row, rows);
    ForwardJob d_o_as_queries = job;
    d_o_as_queries.q = job_.d_o;
    d_o_as_queries.d = job.d_v;
    pack_queries<Dot>(job, row, rows, query_scale_, words_, scratch_.q_columns);
    pack_queries<Dot>(d_o_as_queries, row, rows, 1.f, words_v_, scratch_.do_columns);
  }

  void add_strip(int64_t row, int rows, int first, int keys) {
    load_strip(row, rows);
    const ForwardJob& job = job_.forward;
#ifdef __AVX512BF16__
    if constexpr (Dot) {
      pack_row_pairs(job.q, job.d, row, rows, pitch_, scratch_.q_rows);
      pack_row_pairs(job_.d_o, job.d_v, row, rows, pitch_v_, scratch_.do_rows);
    }
#endif
    if constexpr (!Dot) {
      pack_rows<false>(job.q, job.d, row, rows, kStrip, pitch_, scratch_.q_rows);
      pack_rows<false>(job_.d_o, job.d_v, row, rows, kStrip, pitch_v_, scratch_.do_rows);
    }
    rows_finite_ = all_finite(job.q, job.d, row, rows) && all_finite(job_.d_o, job.d_v, row, rows);
    __builtin_memset(scratch_.dq, 0, sizeof(float) * static_cast<size_t>(round_up(job.d, kRows)) * kStrip);
    for (int block = 0; block * kKeyBlock < keys; ++block)
      add_block(row, rows, first, block, smaller(kKeyBlock, keys - block * kKeyBlock));
  }

  /// Of a block the keys that some query of the strip sees, in whole groups.
  struct Seen {
    int low, count, there;  // counted from the block's first key; padded and real keys
    long at;                // counted from the chunk's first key
  };

  /// P of the keys that are seen into s, dS into dp; none are: false.
  bool score_block(int64_t row, int rows, int chunk, int block, int keys, bool before_cap, Seen& seen) {
    const ForwardJob& job = job_.forward;
    const StripWindows& windows = *scratch_.windows;
    const int first = chunk + block * kKeyBlock, padded = round_up(keys, Unit::kKeyStep);
    if (!windows.sees(first, keys)) return false;
    int low = 0, high = padded;
    if (windows.last_sink <= first) {
      low = larger(0, windows.first - first) / Unit::kKeyStep * Unit::kKeyStep;
      high = smaller(padded, round_up(windows.last - first, Unit::kKeyStep));
    }
    const int begin = first + low, count = high - low, there = smaller(keys, high) - low;
    if (there <= 0) return false;
    if (job.has_bit_masks() && !gather_mask_bits(job, row, rows, begin, there, *scratch_.mask_bits)) return false;

    const long at = static_cast<long>(block) * kKeyBlock + low;
    seen = {low, count, there, at};
    Unit::scores(kVectors, scratch_.k + at * words_, words_, scratch_.q_columns, scratch_.s, count, words_);
    Unit::scores(kVectors, scratch_.v + at * words_v_, words_v_, scratch_.do_columns, scratch_.dp, count, words_v_);
    const bool all_visible = windows.sees_all(begin, count) && there == count;
    if (all_visible && !features_ && !job.has_bit_masks() && !job.drop) {
      plain_gradients(scratch_.s, scratch_.dp, *scratch_.sums, factor_, count);
    } else {
      if (job.bias.data != nullptr) gather_bias(job, row, rows, begin, there, scratch_.bias);
      if (job.drop) gather_dropout_bits(job, row, rows, begin, count, *scratch_.drop_bits);
      gradients({.job = &job,
                 .windows = all_visible ? nullptr : &windows,
                 .visible = job.has_bit_masks() ? scratch_.mask_bits : nullptr,
                 .kept = job.drop ? scratch_.drop_bits : nullptr,
                 .lanes = features_ ? scratch_.lanes : nullptr,
                 .bias = job.bias.data != nullptr ? scratch_.bias : nullptr,
                 .sums = scratch_.sums,
                 .factor = factor_,
                 .before_cap = before_cap},
                begin, count, scratch_.s, scratch_.dp);
    }
    return true;
  }

  void add_block(int64_t row, int rows, int chunk, int block, int keys) {
    Seen seen;
    if (!score_block(row, rows, chunk, block, keys, /*before_cap=*/false, seen)) return;
    if (scratch_.finite[block] && rows_finite_)
      return add_products(block, seen.low, seen.count, round_up(keys, Unit::kKeyStep), seen.at);
    const ForwardJob& job = job_.forward;
    const VisiblePairs visible{*scratch_.windows, job.has_bit_masks() ? scratch_.mask_bits : nullptr,
                               chunk + static_cast<int>(seen.at)};
    add_dq_carefully(job, scratch_.dp, visible, seen.there, scratch_.dq);
    add_outer_carefully(scratch_.s, job_.d_o, job.d_v, row, rows, visible, scratch_.dv + seen.at * pitch_v_, pitch_v_,
                        seen.there);
    add_outer_carefully(scratch_.dp, job.q, job.d, row, rows, visible, scratch_.dk + seen.at * pitch_, pitch_,
                        seen.there);
  }

  void add_score_gradients(int64_t row, int rows, int first, int keys, const ScoreSums& to) {
    scratch_.windows->set(job_.forward, row, rows);
    if (!scratch_.windows->sees(first, keys)) return;
    load_strip(row, rows);
    for (int block = 0; block * kKeyBlock < keys; ++block) {
      Seen seen;
      if (!score_block(row, rows, first, block, smaller(kKeyBlock, keys - block * kKeyBlock), /*before_cap=*/true,
                       seen))
        continue;
      for (int key = 0; key < seen.there; ++key) {
        const float* const ds = scratch_.dp + static_cast<long>(key) * kStrip;
        double* const sums = to.sums + (seen.at + key) * kStrip;
        // Lanes behind the last row are 0 times whatever a key holds.
        if (!to.by_distance) {
          for (int r = 0; r < rows; ++r) sums[r] += static_cast<double>(ds[r]);
          continue;
        }
        const int j = first + static_cast<int>(seen.at) + key;
        for (int r = 0; r < rows; ++r) {
          const int distance = scratch_.lanes->diagonal[r] - j;
          sums[r] += static_cast<double>(ds[r]) * static_cast<double>(distance < 0 ? -distance : distance);
        }
      }
    }
  }

  void add_products(int block, int low, int count, int padded, long at) {
    const float *p = scratch_.s, *ds = scratch_.dp, *ds_columns = scratch_.dp;
    long row_words = kStrip;
#ifdef __AVX512BF16__
    if constexpr (Dot) {
      rows_to_bf16(scratch_.s, scratch_.p_rows, count);
      rows_to_bf16(scratch_.dp, scratch_.ds_rows, count);
      key_pairs_to_bf16(scratch_.dp, scratch_.ds_pairs, count);
      p = scratch_.p_rows, ds = scratch_.ds_rows, ds_columns = scratch_.ds_pairs;
      row_words = kStrip / 2;
    }
#endif
    constexpr int kKeysPerWord = Dot ? 2 : 1;
    const int word = low / kKeysPerWord;
    accumulate<kVectors, Dot>(scratch_.k_panels + block * scratch_.panel_floats + word * kRows, padded / kKeysPerWord,
                              ds_columns, scratch_.dq, count / kKeysPerWord, (job_.forward.d + kRows - 1) / kRows);
    const int terms = static_cast<int>(row_words);
    add_outer_product<Dot>(p, row_words, scratch_.do_rows, scratch_.dv + at * pitch_v_, pitch_v_, count, terms);
    add_outer_product<Dot>(ds, row_words, scratch_.q_rows, scratch_.dk + at * pitch_, pitch_, count, terms);
  }

  void store_dq(float* dq, bool any, bool fresh) const {
    const long floats = static_cast<long>(round_up(job_.forward.d, kRows)) * kStrip;
    // The factor of the end is known here already: what is rounded is what will be written.
    const F scale = broadcast(job_.forward.scale);
    for (long n = 0; n < floats; n += kLanes) {
      F x = any ? load(scratch_.dq + n) : zero();
      if (job_.dq_in_16_bits) {
        x = mul(x, scale);
        if (!fresh) x = HEED_ISA::add(x, load(dq + n));
        alignas(64) char rounded[kLanes * 4];
        store_elements(rounded, job_.dq.type, x, kLanes);
        x = load_elements(rounded, job_.dq.type, kLanes);
      } else if (!fresh) {
        x = HEED_ISA::add(x, load(dq + n));
      }
      store(dq + n, x);
    }
  }

  void end_chunk(int first, int keys) {
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
  BackwardScratch scratch_;
};

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

/// See BackwardKernels.
HEED_NOINLINE void finish_dq(const BackwardJob& job, int64_t first_row, int32_t rows, float* dq, int64_t part_stride,
                             int32_t parts) {
  const long floats = static_cast<long>(round_up(job.forward.d, kRows)) * kStrip;
  if (parts == 0) __builtin_memset(dq, 0, sizeof(float) * static_cast<size_t>(floats));  // there are no keys
  for (int part = 1; part < parts; ++part)
    for (long n = 0; n < floats; n += kLanes) store(dq + n, add(load(dq + n), load(dq + part * part_stride + n)));
  ForwardJob dq_as_output = job.forward;
  dq_as_output.o = job.dq;
  dq_as_output.d_v = job.forward.d;
  alignas(64) float factor[kStrip];
  const float scale = job.dq_in_16_bits ? 1.f : job.forward.scale;
  for (float& each : factor) each = scale;
  unpack_output(dq_as_output, first_row, rows, dq, factor, nullptr);
}

}  // namespace heed::cpu::HEED_ISA
