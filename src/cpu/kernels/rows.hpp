// Few query rows against many keys (decoding): the cost is reading K and V once. Here the head dimension is in the
// lanes: every K row is loaded once for all query rows that share it, 16 dot products are summed across lanes together,
// and V rows are added straight from the caller's memory. No packing.
#pragma once

#include "cpu/kernels/dropout.hpp"
#include "cpu/kernels/finish.hpp"

namespace heed::cpu::HEED_ISA {

constexpr int kRowsMost = 8;    // query rows per key/value head; more are better off in the lanes of a tile
constexpr int kRowsBlock = 32;  // keys per step, at most
constexpr int kRowsAtOnce = kLanes == 16 ? 4 : 2;     // rows that share one load of K or V
constexpr int kSumsAtOnce = kLanes == 16 ? 16 : 8;    // vectors of O summed in registers
constexpr int kVectorsAtOnce = kLanes == 16 ? 4 : 2;  // of a K row
constexpr int kValueRows = 2;  // rows that share one load of V: few, so that V is read row by row

struct RowsScratch {
  float* q;      // [rows][words rounded up to vectors]
  float* o;      // [rows][columns]; with Dot the columns are in the order of the interleaved pairs
  float* saved;  // O before the block
  float* p;      // [rows][kRowsBlock]: scores, then P (Dot: then bf16 pairs)

  static size_t carve(RowsScratch& scratch, char* base, int d, int d_v) {
    size_t offset = 0;
    const auto floats = [&](long n) {
      char* at = base + offset;
      offset += (static_cast<size_t>(n) * 4 + 127) / 128 * 128;
      return reinterpret_cast<float*>(at);
    };
    scratch.q = floats(static_cast<long>(kRowsMost) * round_up(d, kLanes));
    scratch.o = floats(static_cast<long>(kRowsMost) * columns(d_v));
    scratch.saved = floats(static_cast<long>(kRowsMost) * columns(d_v));
    scratch.p = floats(static_cast<long>(kRowsMost) * kRowsBlock);
    return offset;
  }
  static int columns(int d_v) { return round_up(d_v, 2 * kLanes); }
};

template <bool Dot>
class Rows {
 public:
  static size_t scratch_bytes(int d, int d_v) {
    RowsScratch unused;
    return RowsScratch::carve(unused, nullptr, d, d_v);
  }
  static void run(const ForwardJob& job, const ForwardPart& part, void* memory) { Rows(job, part, memory).compute(); }

 private:
  Rows(const ForwardJob& job, const ForwardPart& part, void* memory)
      : job_(job),
        part_(part),
        words_(Dot ? (job.d + 1) / 2 : job.d),
        q_stride_(round_up(words_, kLanes)),
        columns_(RowsScratch::columns(job.d_v)),
        block_(keys_per_block(job, part.rows)),
        features_(job.has_score_features()) {
    RowsScratch::carve(scratch_, static_cast<char*>(memory), job.d, job.d_v);
  }

  /// Rows that do not share one pass over V read it again: of as many keys as leave room in a first-level cache of 32
  /// KiB.
  static int keys_per_block(const ForwardJob& job, int rows) {
    constexpr long kBytes = 8192;
    const long row = larger(job.d, job.d_v) * size_of(job.k.type);
    return rows <= kValueRows || row * kRowsBlock <= kBytes ? kRowsBlock : kRowsBlock / 2;
  }

  void compute() {
    add_blocks(false);
    if (!finite()) add_blocks(true);
    for (int r = 0; r < part_.rows; ++r) finish_row(r);
  }

  /// All keys of the part. `carefully`: with a look at every block of V for infinities and NaN.
  void add_blocks(bool carefully) {
    for (int r = 0; r < part_.rows; ++r) {
      const int64_t n = part_.first_row + r, i = n / job_.heads;
      const char* row = address(job_.q, n % job_.heads, i, 0);
      for (int w = 0; w < words_; w += kLanes)
        store(scratch_.q + r * q_stride_ + w, load_words<Dot>(row, job_.q.type, job_.d, w));
      begin_[r] = clamp_key(i - job_.mask_y + 1, job_.s_k);
      end_[r] = clamp_key(i + job_.mask_x, job_.s_k);
      sink_[r] = smaller(clamp_key(job_.mask_sink, job_.s_k), end_[r]);
      maximum_[r] = kMinusInfinity;
      sum_[r] = 0.f;
    }
    __builtin_memset(scratch_.o, 0, static_cast<size_t>(part_.rows) * static_cast<size_t>(columns_) * 4);
    for (int first = part_.key_begin; first < part_.key_end; first += block_) {
      const int keys = smaller(block_, part_.key_end - first);
      if (!any_visible(first, keys)) continue;
      for (int r = 0; r < part_.rows; r += kRowsAtOnce)
        with_rows<kRowsAtOnce>(part_.rows - r, [&]<int R>() { dot_products<R>(r, first, keys); });
      for (int r = 0; r < part_.rows; ++r) softmax(r, first, keys);
      if (carefully)
        __builtin_memcpy(scratch_.saved, scratch_.o,
                         static_cast<size_t>(part_.rows) * static_cast<size_t>(columns_) * 4);
      for (int r = 0; r < part_.rows; r += kValueRows)
        with_rows<kValueRows>(part_.rows - r, [&]<int R>() { add_values<R>(r, first, keys); });
      if (carefully && !finite()) add_values_carefully(first, keys);
    }
  }

  /// Calls f with the smaller of n and Most as a constant.
  template <int Most, class Function>
  static void with_rows(int n, Function f) {
    if constexpr (Most == 4) {
      if (n >= 4) return f.template operator()<4>();
      if (n == 3) return f.template operator()<3>();
    }
    if (n >= 2)
      f.template operator()<2>();
    else
      f.template operator()<1>();
  }

  bool any_visible(int first, int keys) const {
    for (int r = 0; r < part_.rows; ++r)
      if ((first < end_[r] && first + keys > begin_[r]) || first < sink_[r]) return true;
    return false;
  }

  /// Raw products of rows [row, row + R) with the keys of the block into p; keys past the last are left as they are.
  /// Four K rows at a time, each loaded from its first byte to its last, and V of the same keys is asked for.
  template <int R>
  HEED_NOINLINE_MEMBER void dot_products(int row, int first, int keys) {
    const long step = job_.k.row * size_of(job_.k.type);
    const char* k = address(job_.k, 0, first, 0);
    const float* q = scratch_.q + row * q_stride_;
    const int whole = (Dot ? job_.d / 2 : job_.d) / kLanes;  // whole vectors of a row
    const char* values = address(job_.v, 0, first, 0);
    const long value_step = job_.v.row * size_of(job_.v.type), value_bytes = job_.d_v * size_of(job_.v.type);
    for (int key = 0; key < keys; key += kLanes) {
      F fours[R][kQuads];  // of each row: the products with four keys, not yet summed to the end
      for (int quad = 0; quad < kQuads; ++quad) {
        F sum[4][R];
        HEED_UNROLL for (int a = 0; a < 4; ++a) HEED_UNROLL for (int b = 0; b < R; ++b) sum[a][b] = zero();
        const char* from[4];  // the last key stands in for those past it
        HEED_UNROLL for (int a = 0; a < 4; ++a) {
          const int n = key + 4 * quad + a;
          from[a] = k + smaller(n, keys - 1) * step;
          if (row == 0) fetch_row(values + n * value_step, value_bytes);
        }
        with_key_type([&]<int Type>() __attribute__((always_inline)) {
          HEED_UNROLL for (int a = 0; a < 4; a += 2) {
            int w = 0;
            const auto multiply_all = [&]<int N>() __attribute__((always_inline)) {
              for (; w + N <= whole; w += N)
                multiply<R, N>(
                    sum, a, q + w * kLanes, [&](int i, int v) __attribute__((always_inline)) {
                      return load_whole<Type>(from[i], (w + v) * kLanes);
                    });
            };
            if constexpr (R <= 2) multiply_all.template operator()<2 * kVectorsAtOnce>();
            multiply_all.template operator()<kVectorsAtOnce>();
            multiply_all.template operator()<1>();
          }
        });
        if (whole * kLanes < words_)
          HEED_UNROLL for (int a = 0; a < 4; a += 2) multiply<R, 1>(sum, a, q + whole * kLanes, [&](int i, int) {
            return load_words<Dot>(from[i], job_.k.type, job_.d, whole * kLanes);
          });
        HEED_UNROLL for (int b = 0; b < R; ++b) fours[b][quad] = sum_four(sum[0][b], sum[1][b], sum[2][b], sum[3][b]);
      }
      for (int b = 0; b < R; ++b) store(scratch_.p + (row + b) * kRowsBlock + key, sum_groups(fours[b]));
    }
  }
  /// N vectors of the K rows a and a + 1 with the same vectors of R queries. One row is loaded after the other: the
  /// hardware's prefetching follows that.
  template <int R, int N, class Load>
  HEED_INLINE_MEMBER void multiply(F (&sum)[4][R], int a, const float* q, Load load_keys) const {
    F y[2][N];
    HEED_UNROLL for (int i = 0; i < 2; ++i) HEED_UNROLL for (int v = 0; v < N; ++v) y[i][v] = load_keys(a + i, v);
    HEED_UNROLL for (int b = 0; b < R; ++b) HEED_UNROLL for (int v = 0; v < N; ++v) {
      const F x = load_kept(q + b * q_stride_ + v * kLanes);
      HEED_UNROLL for (int i = 0; i < 2; ++i) sum[a + i][b] = multiply_add<Dot>(y[i][v], x, sum[a + i][b]);
    }
  }

  /// Calls f with the element type of K and V as a constant: 0 raw words (f32, or pairs for Dot), 1 f16, 2 bf16.
  template <class Function>
  HEED_INLINE_MEMBER void with_key_type(Function f) const {
    if (Dot || job_.k.type == Element::f32)
      f.template operator()<0>();
    else if (job_.k.type == Element::f16)
      f.template operator()<1>();
    else
      f.template operator()<2>();
  }
  template <int Type>
  HEED_INLINE_MEMBER static F load_whole(const char* row, int word) {
    if constexpr (Type == 0)
      return load_unaligned(row + 4l * word);
    else if constexpr (Type == 1)
      return load_f16(row + 2l * word, kLanes);
    else
      return load_bf16(row + 2l * word, kLanes);
  }

  /// Products of row r become P; its maximum, sum and O follow.
  HEED_NOINLINE_MEMBER void softmax(int r, int first, int keys) {
    const int64_t n = part_.first_row + r, i = n / job_.heads, g = n % job_.heads;
    float* p = scratch_.p + r * kRowsBlock;
    float slope = 0.f;
    if (job_.slopes != nullptr)
      __builtin_memcpy(&slope, static_cast<const char*>(job_.slopes) + g * job_.slope_head * 4, 4);
    const I diagonal = broadcast_int(static_cast<int32_t>(i + job_.s_k - job_.s_q));
    const float cap = job_.soft_cap, inverse_cap = cap > 0 ? 1.f / cap : 0.f;
    const F minus_infinity = broadcast(kMinusInfinity);
    F high = minus_infinity;
    for (int key = 0; key < block_; key += kLanes) {
      F x = minus_infinity;
      const int count = smaller(keys - key, kLanes);
      if (count > 0) {
        const I j = add_int(broadcast_int(first + key), lane_numbers());
        x = mul(load(p + key), broadcast(features_ ? job_.scale : job_.scale * kLog2e));
        if (cap > 0) x = mul(tanh(mul(x, broadcast(inverse_cap))), broadcast(cap));
        if (job_.bias.data != nullptr) x = add(x, load_bias(g, i, first + key, count));
        if (job_.slopes != nullptr) x = sub(x, mul(broadcast(slope), abs(to_float(sub_int(diagonal, j)))));
        if (features_) x = mul(x, broadcast(kLog2e));
        const M window = both(less_equal(broadcast_int(begin_[r]), j), less(j, broadcast_int(end_[r])));
        M visible = both(either(window, less(j, broadcast_int(sink_[r]))), less(lane_numbers(), broadcast_int(count)));
        if (job_.has_bit_masks()) visible = both(visible, lanes_of_bits(mask_bits(g, i, first + key, count)));
        x = select(visible, x, minus_infinity);
      }
      high = max(high, x);
      store(p + key, x);
    }
    raise_maximum(r, max_lanes(high));
    const F top = broadcast(maximum_[r] == kMinusInfinity ? 0.f : maximum_[r]);
    F sum = zero();
    for (int key = 0; key < block_; key += kLanes) {
      F x = exp2(sub(load(p + key), top));
      sum = add(sum, x);
      if (job_.drop) x = select(kept_lanes(g, i, first + key), x, zero());
      store(p + key, x);
    }
    sum_[r] += sum_lanes(sum);
#ifdef __AVX512BF16__
    if constexpr (Dot) {  // neighbouring keys as pairs: round, then keep the upper halves side by side
      for (int key = 0; key < block_; key += kLanes)
        store_bf16(reinterpret_cast<uint16_t*>(p) + key, load(p + key), kLanes);
    }
#endif
  }

  HEED_INLINE_MEMBER void raise_maximum(int r, float highest) {
    if (!(highest > maximum_[r])) return;
    const float correction = maximum_[r] == kMinusInfinity ? 0.f : exp2f(maximum_[r] - highest);
    maximum_[r] = highest;
    sum_[r] *= correction;
    for (int c = 0; c < columns_; c += kLanes) {
      float* o = scratch_.o + r * columns_ + c;
      store(o, mul(load(o), broadcast(correction)));
    }
  }

  F load_bias(int64_t g, int64_t i, int key, int count) const {
    const char* from = address(job_.bias, g, i, key);
    if (job_.bias.column == 1) return load_elements(from, job_.bias.type, count);
    alignas(64) float t[kLanes] = {};
    for (int c = 0; c < count; ++c)
      t[c] = load_element(from + c * job_.bias.column * size_of(job_.bias.type), job_.bias.type);
    return load(t);
  }

  static M lanes_of_bits(uint32_t bits) {
    alignas(64) int32_t lane_bit[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) lane_bit[lane] = static_cast<int32_t>(1u << lane);
    return bit_set(broadcast_int(static_cast<int>(bits)), load_int(lane_bit));
  }
  uint32_t mask_bits(int64_t g, int64_t i, int key, int count) const {
    uint32_t bits = ~0u;
    if (job_.keep != nullptr)
      bits &= keep_bits(job_.keep + g * job_.keep_head + i * job_.keep_row, job_.keep_column, key, count);
    if (job_.blocks != nullptr)
      bits &= block_bits(job_.blocks + g * job_.blocks_head + i / job_.block_q * job_.blocks_row, job_.blocks_column,
                         job_.block_k, key, count);
    return bits;
  }
  /// Dropout of keys [key, key + kLanes): one key per lane, each with its own Philox call.
  M kept_lanes(int64_t g, int64_t i, int key) const {
    alignas(64) int32_t column_group[kLanes], right[kLanes], odd[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      const int j = key + lane;
      column_group[lane] = j / 16 * 4 + j % 8 / 2;
      right[lane] = j / 8 % 2;
      odd[lane] = j % 2;
    }
    I x[4] = {load_int(column_group), broadcast_int(static_cast<int>(i / 16 * 8 + i % 8)),
              broadcast_int(static_cast<int>(job_.drop_head + static_cast<uint32_t>(g))),
              broadcast_int(static_cast<int>(job_.drop_offset))};
    philox(x, job_.drop_key[0], job_.drop_key[1]);
    const bool lower = i / 8 % 2 != 0;
    const I one = broadcast_int(1);
    const I word = select_int(bit_set(load_int(right), one), lower ? x[3] : x[1], lower ? x[2] : x[0]);
    const I half = select_int(bit_set(load_int(odd), one), shift_right<16>(word), and_int(word, broadcast_int(0xffff)));
    return less(broadcast_int(static_cast<int>(job_.drop_threshold) - 1), half);
  }

  /// O of rows [row, row + R) += P times the V rows of the block.
  template <int R>
  HEED_NOINLINE_MEMBER void add_values(int row, int first, int keys) {
    const long step = job_.v.row * size_of(job_.v.type);
    const char* v = address(job_.v, 0, first, 0);
    const float* p = scratch_.p + row * kRowsBlock;
    const char* next_keys = address(job_.k, 0, first + block_, 0);  // may lie past the end: it is only asked for
    const long key_step = job_.k.row * size_of(job_.k.type), key_bytes = job_.d * size_of(job_.k.type);
    const int columns_per_vector = Dot ? 2 * kLanes : kLanes;  // Dot: two vectors of pairs hold 2 * kLanes columns
    int c = 0;
    if (job_.v.column == 1) {
      with_key_type([&]<int Type>() __attribute__((always_inline)) {
        const auto add_spans = [&]<int N>() __attribute__((always_inline)) {
          for (; c + N * kLanes <= job_.d_v; c += N * kLanes)
            add_columns<R, N>(
                row, c, keys, p, [&](int key, F(&x)[N]) __attribute__((always_inline)) {
                  const char* at = v + key * step;
                  if constexpr (Dot) {
                    load_value_pairs(at, key + 1 < keys ? at + step : nullptr, c, x);
                  } else {
                    HEED_UNROLL for (int i = 0; i < N; ++i) x[i] = load_whole<Type>(at, c + i * kLanes);
                  }
                  if (row == 0 && c == 0) {
                    fetch_row(next_keys + key * key_step, key_bytes);
                    if constexpr (Dot) fetch_row(next_keys + (key + 1) * key_step, key_bytes);
                  }
                });
        };
        constexpr int kMost = kSumsAtOnce / kValueRows;
        add_spans.template operator()<kMost>();
        add_spans.template operator()<kMost / 2>();
        if constexpr (Dot) add_spans.template operator()<2>();
      });
    }
    for (; c < job_.d_v; c += columns_per_vector) {
      const int n = smaller(job_.d_v - c, columns_per_vector);
      add_columns<R, Dot ? 2 : 1>(row, c, keys, p, [&](int key, F(&x)[Dot ? 2 : 1]) {
        if constexpr (Dot) {
          gather_value_pairs(first, key, keys, c, n, x);
        } else {
          x[0] = job_.v.column == 1 ? load_elements(v + key * step + c * size_of(job_.v.type), job_.v.type, n)
                                    : gather_values(job_, first + key, c, n);
        }
      });
    }
  }

  /// N vectors of columns from c on: sums over the keys (Dot: pairs of keys) of the block.
  template <int R, int N, class Load>
  HEED_INLINE_MEMBER void add_columns(int row, int c, int keys, const float* p, Load load_values) {
    F sum[R][N];
    HEED_UNROLL for (int b = 0; b < R; ++b) HEED_UNROLL for (int i = 0; i < N; ++i) sum[b][i] = zero();
    for (int key = 0, word = 0; key < keys; key += Dot ? 2 : 1, ++word) {
      F x[N];
      load_values(key, x);
      HEED_UNROLL for (int b = 0; b < R; ++b) {
        const F weight = broadcast(static_cast<const LooseWord*>(p + b * kRowsBlock)[word]);
        HEED_UNROLL for (int i = 0; i < N; ++i) sum[b][i] = multiply_add<Dot>(weight, x[i], sum[b][i]);
      }
    }
    HEED_UNROLL for (int b = 0; b < R; ++b) HEED_UNROLL for (int i = 0; i < N; ++i) {
      float* o = scratch_.o + (row + b) * columns_ + c + i * kLanes;
      store(o, add(load(o), sum[b][i]));
    }
  }

#ifdef __AVX512BF16__
  /// Columns from c on of two keys (the second may be missing), interleaved: within each 128 bits the low four columns,
  /// then the high four.
  template <int N>
  HEED_INLINE_MEMBER static void load_value_pairs(const char* first, const char* second, int c, F (&x)[N]) {
    HEED_UNROLL for (int i = 0; i < N / 2; ++i) {
      const I low = _mm512_loadu_si512(first + 2l * (c + 32 * i));
      const I high = second != nullptr ? _mm512_loadu_si512(second + 2l * (c + 32 * i)) : broadcast_int(0);
      x[2 * i] = as_float(_mm512_unpacklo_epi16(low, high));
      x[2 * i + 1] = as_float(_mm512_unpackhi_epi16(low, high));
    }
  }
  void gather_value_pairs(int first, int key, int keys, int c, int n, F (&x)[2]) const {
    alignas(64) uint16_t t[2][32] = {};
    for (int a = 0; a < smaller(2, keys - key); ++a)
      for (int i = 0; i < n; ++i) __builtin_memcpy(&t[a][i], address(job_.v, 0, first + key + a, c + i), 2);
    const I low = load_int(t[0]), high = load_int(t[1]);
    x[0] = as_float(_mm512_unpacklo_epi16(low, high));
    x[1] = as_float(_mm512_unpackhi_epi16(low, high));
  }
#else
  template <int N>
  static void load_value_pairs(const char*, const char*, int, F (&)[N]) {}
  void gather_value_pairs(int, int, int, int, int, F (&)[2]) const {}
#endif

  /// Where column c of O is kept: Dot leaves the order of the interleaved pairs.
  static int place(int c) {
    if constexpr (!Dot) return c;
    const int in = c % 32;
    return c - in + in / 8 * 4 + in % 4 + (in % 8 < 4 ? 0 : 16);
  }

  bool finite() const {
    F zeros = zero();
    for (int i = 0; i < part_.rows * columns_; i += kLanes) zeros = fma(load(scratch_.o + i), zero(), zeros);
    return sum_lanes(zeros) == 0.f;
  }

  /// Whether row r sees key j.
  bool sees(int r, int j) const {
    if (!((begin_[r] <= j && j < end_[r]) || j < sink_[r])) return false;
    const int64_t n = part_.first_row + r, i = n / job_.heads, g = n % job_.heads;
    return (mask_bits(g, i, j, 1) & 1u) != 0;
  }

  /// A block with infinities or NaN in V, which hidden keys must not touch.
  HEED_NOINLINE_MEMBER void add_values_carefully(int first, int keys) {
    __builtin_memcpy(scratch_.o, scratch_.saved, static_cast<size_t>(part_.rows) * static_cast<size_t>(columns_) * 4);
    for (int r = 0; r < part_.rows; ++r) {
      for (int key = 0; key < keys; ++key) {
        const float* p = scratch_.p + r * kRowsBlock;
        const float weight = Dot ? load_element(reinterpret_cast<const uint16_t*>(p) + key, Element::bf16) : p[key];
        if (!sees(r, first + key)) continue;
        for (int c = 0; c < job_.d_v; ++c)
          scratch_.o[r * columns_ + place(c)] += weight * load_element(address(job_.v, 0, first + key, c), job_.v.type);
      }
    }
  }

  void finish_row(int r) {
    const int64_t n = part_.first_row + r;
    // The maximum is always the largest score so far: a dominant key has the weight 1, which rounding leaves alone.
    const RowSums sums{maximum_[r], sum_[r], sum_[r]};
    float* to = part_.partial == nullptr ? nullptr : partial_row(part_.partial, job_, r);
    float factor = 1.f;
    if (to != nullptr)
      store_sums(to, job_, sums);
    else
      factor = end_row(job_, n, sums);
    for (int c = 0; c < job_.d_v; c += kLanes) {
      alignas(64) float t[kLanes] = {};
      const int count = smaller(job_.d_v - c, kLanes);
      for (int i = 0; i < count; ++i) t[i] = scratch_.o[r * columns_ + place(c + i)];
      const F x = mul(load(t), broadcast(factor));
      if (to != nullptr)
        store_f32(to + c, x, count);
      else
        store_elements(const_cast<char*>(address(job_.o, n % job_.heads, n / job_.heads, c)), job_.o.type, x, count);
    }
  }

  const ForwardJob& job_;
  const ForwardPart& part_;
  const int words_, q_stride_, columns_, block_;
  const bool features_;
  RowsScratch scratch_;
  int begin_[kRowsMost], end_[kRowsMost], sink_[kRowsMost];
  float maximum_[kRowsMost], sum_[kRowsMost];
};

}  // namespace heed::cpu::HEED_ISA
