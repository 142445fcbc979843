// The products on AMX tiles: 16 x 16 f32 sums of 32 bf16 products each. The layouts are those of the bf16 dot, because
// a row of words (pairs of bf16) over 16 queries is just what a tile's second operand wants:
//   scores       C [16 keys][16 queries] += A [16 keys][32 of d]    B [16 pairs of d][16 queries]
//   accumulate   C [16 of d_v][16 queries] += A [16 of d_v][32 keys]  B [16 pairs of keys][16 queries]
//   add_outer    C [16 keys][16 of d_v] += A [16 keys][32 queries]  B [16 pairs of queries][16 of d_v]
// Four sums (2 x 2 tiles) share two tiles of each operand. The tile unit works beside the vector units, so that the
// exponentials of the block before are spread between the tile products.
#pragma once

#include "cpu/kernels/units.hpp"

namespace heed::cpu::HEED_ISA {

/// All eight tiles are 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

struct AmxUnit {
  static constexpr bool kPairs = true;
  static constexpr bool kFuseExp = true;
  static constexpr int kKeyStep = 32;     // a tile of P holds 32 keys
  static constexpr int kOutputStep = 16;  // a tile of O holds 16 columns
  static constexpr int kVectorStep = 2;   // gradients are summed over 32 queries at a time
  static constexpr int kTile = 16;
  static constexpr long kRowBytes = kStrip * 4;  // of Q, S, P and O

  static int words(int d) { return round_up(d, 2 * kTile) / 2; }
  static long value_floats(int d_v, int keys) { return static_cast<long>(round_up(d_v, kTile)) * keys / 2; }
  static void begin_tile() {
    static constexpr TileConfig kConfig;  // a constant: gcc tells its optimiser of the first 8 bytes read and no more
    _tile_loadconfig(&kConfig);
  }
  static void end_tile() { _tile_release(); }
  /// What was stored until here is in memory. gcc's tile loads do not tell it that they read any.
  static void before_loads() { asm volatile("" : : : "memory"); }

  static bool reads_in_place(const ForwardJob& job) { return job.d % (2 * kTile) == 0 && job.k.row % 2 == 0; }
  static long in_place_row(const ForwardJob& job) { return job.k.row / 2; }

  /// Tiles [d_v / 16][padded keys / 32] of [16 columns][32 keys]: V transposed, by way of words that hold two keys.
  static bool pack_values(const ForwardJob& job, int first, int keys, int padded, float* v) {
    F zeros = zero();
    for (int c = 0; c < job.d_v; c += kTile) {
      const int n = smaller(job.d_v - c, kTile);
      for (int key = 0; key < padded; key += 2 * kTile, v += kTile * kTile) {
        F x[kTile];
        for (int pair = 0; pair < kTile; ++pair) {
          const int low_key = key + 2 * pair;
          const I none = broadcast_int(0);
          const I low = low_key < keys ? load_value_bits(job, first + low_key, c, n) : none;
          const I high = low_key + 1 < keys ? load_value_bits(job, first + low_key + 1, c, n) : none;
          zeros = fma(as_float(shift_left<16>(low)), zero(), fma(as_float(shift_left<16>(high)), zero(), zeros));
          x[pair] = as_float(or_int(low, shift_left<16>(high)));
        }
        transpose(x);
        for (int i = 0; i < kTile; ++i) store(v + i * kTile, x[i]);
      }
    }
    return sum_lanes(zeros) == 0.f;
  }

  static void scores(int vectors, const LooseWord* k, long k_row, const float* q, float* s, int keys, int words) {
    if (vectors % 2 == 0 && keys % (2 * kTile) == 0) return products(vectors, k, k_row, q, s, keys, words, [](int) {});
    before_loads();
    for (int key = 0; key < keys; key += kTile)
      for (int lane = 0; lane < vectors; ++lane) {
        _tile_zero(0);
        for (int w = 0; w < words; w += kTile) {
          _tile_loadd(4, k + key * k_row + w, k_row * 4);
          _tile_loadd(6, q + static_cast<long>(w) * kStrip + lane * kLanes, kRowBytes);
          _tile_dpbf16ps(0, 4, 6);
        }
        _tile_stored(0, s + static_cast<long>(key) * kStrip + lane * kLanes, kRowBytes);
      }
  }

  static void scores_and_highest(const LooseWord* k, long k_row, const float* q, float* s, int keys, int words,
                                 float* highest) {
    products(kVectors, k, k_row, q, s, keys, words, [](int) {});
    raise(s, keys, highest);
  }

  static void scores_with_exp(const LooseWord* k, long k_row, const float* q, float* s, int keys, int words,
                              float* highest, const ExpBlock& e, const Ahead* ahead) {
    // Rows of P in the order of the keys, as many after each step of the products as make them end together.
    const int rows = keys / 2, steps = keys / (2 * kTile) * (kVectors / 2) * (words / kTile),
              share = (rows + steps - 1) / steps;
    int row = 0;
    const auto some = [&](int count) __attribute__((always_inline)) {
      for (const int end = smaller(row + count, rows); row < end; ++row) {
        const float* from = e.s + static_cast<long>(2 * row) * kStrip;
        float* to = e.s + static_cast<long>(row) * kStrip;
        if (ahead != nullptr && row % 2 == 0) ahead->fetch(2 * row);
        HEED_UNROLL for (int j = 0; j < kVectors; ++j)
            exp_unit<true>(from + kLanes * j, to + kLanes * j, e.maximum + kLanes * j, e.sum + kLanes * j,
                           e.weights + kLanes * j, kExp2Coefficients, &e.factor);
      }
    };
    products(
        kVectors, k, k_row, q, s, keys, words, [&](int) __attribute__((always_inline)) { some(share); });
    some(rows);
    raise(s, keys, highest);
  }

  static void accumulate(int vectors, int low, const float* v, int padded, const float* p, float* o, int first,
                         int keys, int d_v) {
    before_loads();
    const int columns = round_up(d_v, kTile), steps = keys / (2 * kTile);
    const float* weights = p + static_cast<long>(first / 2) * kStrip + low * kLanes;
    const long column_floats = static_cast<long>(padded) / 2 * kTile;  // of one row of V tiles
    const float* values = v + static_cast<long>(first) / 2 * kTile;
    float* to = o + low * kLanes;
    for (int c = 0; c < columns; c += 2 * kTile) {
      const bool two_columns = c + kTile < columns;
      const float* a = values + c / kTile * column_floats;
      for (int lane = 0; lane < vectors; lane += 2) {
        const bool two_lanes = lane + 1 < vectors;
        float* sum = to + static_cast<long>(c) * kStrip + lane * kLanes;
        const float* b = weights + lane * kLanes;
        if (two_columns && two_lanes)
          accumulate_2x2(a, column_floats, b, sum, steps);
        else {
          accumulate_1x1(a, b, sum, steps);
          if (two_lanes) accumulate_1x1(a, b + kLanes, sum + kLanes, steps);
          if (two_columns) accumulate_1x1(a + column_floats, b, sum + kTile * kStrip, steps);
        }
      }
    }
  }

  /// c [keys][pitch] += a [keys][terms] b [terms][pitch], in words; keys is a multiple of 32, pitch and terms of 16.
  static void add_outer(const float* a, long a_row, const float* b, float* c, int pitch, int keys, int terms) {
    before_loads();
    const long row_bytes = static_cast<long>(pitch) * 4;
    for (int key = 0; key < keys; key += 2 * kTile, a += 2 * kTile * a_row, c += 2 * kTile * static_cast<long>(pitch)) {
      const float* const lower_a = a + kTile * a_row;
      float* const lower_c = c + kTile * static_cast<long>(pitch);
      int column = 0;
      for (; column + kTile < pitch; column += 2 * kTile) {
        load_sums(c + column, lower_c + column, row_bytes);
        for (int t = 0; t < terms; t += kTile)
          multiply_2x2(a + t, lower_a + t, a_row * 4, b + static_cast<long>(t) * pitch + column, row_bytes);
        store_sums(c + column, lower_c + column, row_bytes);
      }
      if (column == pitch) continue;
      _tile_loadd(0, c + column, row_bytes);
      _tile_loadd(2, lower_c + column, row_bytes);
      for (int t = 0; t < terms; t += kTile) {
        _tile_loadd(4, a + t, a_row * 4);
        _tile_loadd(5, lower_a + t, a_row * 4);
        _tile_loadd(6, b + static_cast<long>(t) * pitch + column, row_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(2, 5, 6);
      }
      _tile_stored(0, c + column, row_bytes);
      _tile_stored(2, lower_c + column, row_bytes);
    }
  }

 private:
  /// Four sums, tiles 0 to 3: the rows at `upper` and at `lower`, 32 columns of both.
  static void load_sums(const float* upper, const float* lower, long row_bytes) {
    _tile_loadd(0, upper, row_bytes);
    _tile_loadd(1, upper + kLanes, row_bytes);
    _tile_loadd(2, lower, row_bytes);
    _tile_loadd(3, lower + kLanes, row_bytes);
  }
  static void store_sums(float* upper, float* lower, long row_bytes) {
    _tile_stored(0, upper, row_bytes);
    _tile_stored(1, upper + kLanes, row_bytes);
    _tile_stored(2, lower, row_bytes);
    _tile_stored(3, lower + kLanes, row_bytes);
  }
  /// The four sums += a tile of A at `upper` and one at `lower`, times two tiles of B side by side.
  static void multiply_2x2(const LooseWord* upper, const LooseWord* lower, long a_bytes, const float* b, long b_bytes) {
    _tile_loadd(4, upper, a_bytes);
    _tile_loadd(5, lower, a_bytes);
    _tile_loadd(6, b, b_bytes);
    _tile_loadd(7, b + kLanes, b_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }

  /// 2 x 2 tiles of S at a time; after each step along d, `beside` may use the vector units.
  template <class Beside>
  static void products(int vectors, const LooseWord* k, long k_row, const float* q, float* s, int keys, int words,
                       Beside beside) {
    static_assert(kVectors % 2 == 0);
    before_loads();
    for (int key = 0; key < keys; key += 2 * kTile) {
      for (int lane = 0; lane < vectors; lane += 2) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int w = 0; w < words; w += kTile) {
          const LooseWord* a = k + key * k_row + w;
          multiply_2x2(a, a + kTile * k_row, k_row * 4, q + static_cast<long>(w) * kStrip + lane * kLanes, kRowBytes);
          beside(w);
        }
        float* to = s + static_cast<long>(key) * kStrip + lane * kLanes;
        store_sums(to, to + kTile * kStrip, kRowBytes);
      }
    }
  }

  static void raise(const float* s, int keys, float* highest) {
    F m[kVectors];
    HEED_UNROLL for (int j = 0; j < kVectors; ++j) m[j] = load(highest + kLanes * j);
    for (int key = 0; key < keys; ++key, s += kStrip)
      HEED_UNROLL for (int j = 0; j < kVectors; ++j) m[j] = max(m[j], load(s + kLanes * j));
    HEED_UNROLL for (int j = 0; j < kVectors; ++j) store(highest + kLanes * j, m[j]);
  }

  static void accumulate_2x2(const float* a, long column_floats, const float* b, float* o, int steps) {
    load_sums(o, o + kTile * kStrip, kRowBytes);
    for (int step = 0; step < steps; ++step, a += kTile * kTile, b += kTile * kStrip)
      multiply_2x2(a, a + column_floats, kTile * 4, b, kRowBytes);
    store_sums(o, o + kTile * kStrip, kRowBytes);
  }

  static void accumulate_1x1(const float* a, const float* b, float* o, int steps) {
    _tile_loadd(0, o, kRowBytes);
    for (int step = 0; step < steps; ++step, a += kTile * kTile, b += kTile * kStrip) {
      _tile_loadd(4, a, 64);
      _tile_loadd(6, b, kRowBytes);
      _tile_dpbf16ps(0, 4, 6);
    }
    _tile_stored(0, o, kRowBytes);
  }
};

}  // namespace heed::cpu::HEED_ISA
