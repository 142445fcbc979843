// The memory of a worker in the backward pass, carved from one aligned buffer, and what is packed into it.
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

/// Up to kStrip dense rows as f32 in rows of `pitch` floats; what is behind `dim` and behind the last row is 0. Returns
/// whether all are finite: infinities and NaN must not meet the zeros of hidden pairs.
HEED_NOINLINE bool pack_strip(const Plane& plane, int dim, int64_t first, int count, int pitch, float* to) {
  F zeros[kRows];  // x * 0 is 0 unless x is infinite or NaN
  HEED_UNROLL for (int i = 0; i < kRows; ++i) zeros[i] = zero();
  for (int r = 0; r < kStrip; r += kRows, to += kRows * pitch)
    for (int c = 0; c < pitch; c += kLanes) HEED_UNROLL for (int i = 0; i < kRows; ++i) {
        const F x = r + i < count
                        ? load_elements(address(plane, 0, first + r + i, c), plane.type, smaller(dim - c, kLanes))
                        : zero();
        zeros[i] = fma(x, zero(), zeros[i]);
        store(to + i * pitch + c, x);
      }
  return sum_lanes(add(add(zeros[0], zeros[1]), add(zeros[2], zeros[3]))) == 0.f;
}

/// Rows of pack_strip() as columns [words][kStrip], times `scale`.
HEED_NOINLINE void turn_strip(const float* rows, int pitch, float scale, int words, float* columns) {
  for (int r = 0; r < kStrip; r += kLanes)
    for (int w = 0; w < words; w += kLanes) {
      F x[kLanes];
      HEED_UNROLL for (int i = 0; i < kLanes; ++i) x[i] =
          mul(load(rows + static_cast<long>(r + i) * pitch + w), broadcast(scale));
      transpose(x);
      const int n = smaller(words - w, kLanes);
      for (int i = 0; i < n; ++i) store(columns + static_cast<long>(w + i) * kStrip + r, x[i]);
    }
}

#ifdef __AVX512BF16__
/// Likewise bf16 rows, as pairs of rows [kStrip / 2][pitch]: word c holds column c of rows 2r and 2r + 1.
HEED_NOINLINE bool pack_row_pairs(const Plane& plane, int dim, int64_t first, int count, int pitch, float* to) {
  const I magnitude = broadcast_int(0x7fff7fff);
  I largest = broadcast_int(0);  // as whole numbers the bits of |x| are in the order of |x|, NaN above infinity
  for (int r = 0; r < kStrip; r += 2, to += pitch)
    for (int c = 0; c < pitch; c += kLanes) {
      const int n = larger(0, smaller(dim - c, kLanes));
      const auto bits = [&](int row) {
        return row < count && n > 0 ? _mm512_cvtepu16_epi32(load_halves(address(plane, 0, first + row, c), n))
                                    : broadcast_int(0);
      };
      const I pairs = or_int(bits(r), shift_left<16>(bits(r + 1)));
      largest = _mm512_max_epu16(largest, and_int(pairs, magnitude));
      store(to + c, as_float(pairs));
    }
  constexpr short kInfinity = 0x7f80;
  return _mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(kInfinity)) == 0;
}
#endif

/// Rows of Q and dO of a strip, and where D is made those of O, fetched while the strip before is multiplied: a few at
/// a time, for more would wait for each other.
struct NextStrip {
  struct Rows {
    const char* at = nullptr;
    long step = 0, bytes = 0;

    static Rows of(const Plane& plane, int64_t first, int dim) {
      return {address(plane, 0, first, 0), plane.row * size_of(plane.type), dim * size_of(plane.type)};
    }
    void fetch() {
      fetch_row(at, bytes);
      at += step;
    }
  };
  Rows q, d_o, o;
  int rows = 0, at_a_time = 0;

  /// The strip behind the one that begins with `row`, for about `times` calls of fetch().
  static NextStrip after(const BackwardJob& job, int64_t row, int times, bool with_o) {
    const int64_t first = row + kStrip, left = job.forward.s_q - first;
    if (left <= 0) return {};
    NextStrip next{Rows::of(job.forward.q, first, job.forward.d), Rows::of(job.d_o, first, job.forward.d_v),
                   with_o ? Rows::of(job.forward.o, first, job.forward.d_v) : Rows{}};
    next.rows = left < kStrip ? static_cast<int>(left) : kStrip;
    next.at_a_time = next.rows / larger(1, times) + 1;
    return next;
  }

  void fetch() {
    for (int i = smaller(rows, at_a_time); i > 0; --i, --rows) {
      q.fetch();
      d_o.fetch();
      o.fetch();
    }
  }
};

struct BackwardScratch {
  StripWindows* windows;
  LaneFeatures* lanes;
  StripSums* sums;
  float *q_columns, *do_columns;  // [words of d or d_v][kStrip]
  float *q_rows, *do_rows;        // [kStrip][pitch], pairs: [kStrip / 2][pitch]
  float *s, *dp;                  // [kKeyBlock][kStrip]
  float *p_rows, *ds_rows;        // pairs: [kKeyBlock][kStrip / 2]
  float* ds_pairs;                // pairs: [kKeyBlock / 2][kStrip]
  float *k, *v;                   // [stretch][words]
  float* k_panels;                // per block, as Unit::pack_values lays out values
  float *dk, *dv;                 // [stretch][pitch]
  float* dq;                      // [d, rounded up to Unit::kOutputStep][kStrip], of a chunk
  float *column, *total;          // likewise, of the column's chunks and of the columns so far
  float* bias;                    // [kKeyBlock][kStrip]
  BlockBits *mask_bits, *drop_bits;
  bool* finite;       // of K, for each block
  long panel_floats;  // of a block

  template <class Unit>
  static size_t carve(BackwardScratch& scratch, char* base, int d, int d_v, int stretch) {
    size_t offset = 0;
    const auto take = [&](size_t bytes) {
      char* const at = base + offset;
      offset += (bytes + 127) / 128 * 128;
      return at;
    };
    const auto floats = [&](long n) { return reinterpret_cast<float*>(take(static_cast<size_t>(n) * 4)); };
    const int words = Unit::words(d), words_v = Unit::words(d_v);
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
    scratch.p_rows = floats(Unit::kPairs ? kKeyBlock * kStrip / 2 : 0);
    scratch.ds_rows = floats(Unit::kPairs ? kKeyBlock * kStrip / 2 : 0);
    scratch.ds_pairs = floats(Unit::kPairs ? kKeyBlock * kStrip / 2 : 0);
    scratch.k = floats(static_cast<long>(stretch) * words);
    scratch.v = floats(static_cast<long>(stretch) * words_v);
    scratch.panel_floats = Unit::value_floats(d, kKeyBlock);
    scratch.k_panels = floats(scratch.panel_floats * (stretch / kKeyBlock));
    scratch.dk = floats(static_cast<long>(stretch) * pitch);
    scratch.dv = floats(static_cast<long>(stretch) * pitch_v);
    float** const sums[] = {&scratch.dq, &scratch.column, &scratch.total};
    for (float** sum : sums) *sum = floats(static_cast<long>(round_up(d, Unit::kOutputStep)) * kStrip);
    scratch.bias = floats(kKeyBlock * kStrip);
    scratch.finite = reinterpret_cast<bool*>(take(static_cast<size_t>(stretch / kKeyBlock)));
    scratch.mask_bits = reinterpret_cast<BlockBits*>(take(sizeof(BlockBits)));
    scratch.drop_bits = reinterpret_cast<BlockBits*>(take(sizeof(BlockBits)));
    return offset;
  }
};

}  // namespace heed::cpu::HEED_ISA
