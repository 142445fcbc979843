// A tile of query rows against a range of keys: blocks of keys outermost, strips of queries inside, softmax online.
//
//   for each block of 128 keys                                    K as it lies or packed, V packed into panels
//     for each strip of kStrip queries                            S^T [128][kStrip] in the first-level cache
//       scores of this block      + exponentials of the block before it, in the same instruction stream
//       P V of the block before   (its exponentials are complete now)
//       running maximum of this block; O and the sums are rescaled only when it grew by more than 2^8
#pragma once

#include "cpu/kernels/dropout.hpp"
#include "cpu/kernels/finish.hpp"
#include "cpu/kernels/units.hpp"

namespace heed::cpu::HEED_ISA {

// The maximum moves only when a score exceeds it by 2^8: a sum of such terms is far from overflow, and the result is
// the same, because O and the sum are relative to the same maximum.
constexpr float kLazyMaximum = 8.f;

struct StripState {
  StripWindows windows;
  LaneFeatures lanes;
  alignas(64) float maximum[kStrip];     // units of the scores; -inf before the first visible key
  alignas(64) float subtracted[kStrip];  // the same, but 0 for -inf: what the exponentials subtract
  alignas(64) float sum[kStrip];         // of P
  alignas(64) float weights[kStrip];     // of P as it was multiplied with V
  int64_t first_row;
  int rows;
};

/// Scratch memory of a tile, carved from one aligned buffer.
struct TileScratch {
  StripState* strips;  // [strips]
  float* q;            // [strips][words][kStrip]
  float* o;            // [strips][output rows][kStrip]
  float* s[2];         // [kKeyBlock][kStrip]: the block being scored, and the one before it
  float* k;            // [kKeyBlock][words]
  float* v[2];         // panels: of this block of keys, and of the one before it
  float* bias;         // [kKeyBlock][kStrip]
  BlockBits* mask_bits;
  BlockBits* drop_bits;
  float* highest;        // [kStrip]
  float* block_sum;      // [kStrip]: every block sums from zero
  float* block_weights;  // [kStrip]

  /// With base 0 the result of end is the size.
  static size_t carve(TileScratch& scratch, char* base, int words, int output_rows, long value_floats, int strips) {
    size_t offset = 0;
    const auto take = [&](size_t bytes) {
      char* at = base + offset;
      offset += (bytes + 127) / 128 * 128;
      return at;
    };
    const auto floats = [&](long n) { return reinterpret_cast<float*>(take(static_cast<size_t>(n) * 4)); };
    scratch.strips = reinterpret_cast<StripState*>(take(sizeof(StripState) * static_cast<size_t>(strips)));
    scratch.highest = floats(kStrip);
    scratch.block_sum = floats(kStrip);
    scratch.block_weights = floats(kStrip);
    scratch.q = floats(static_cast<long>(strips) * words * kStrip);
    for (float*& s : scratch.s) s = floats(static_cast<long>(kKeyBlock) * kStrip);
    scratch.o = floats(static_cast<long>(strips) * output_rows * kStrip);
    scratch.k = floats(static_cast<long>(kKeyBlock) * words);
    for (float*& v : scratch.v) v = floats(value_floats);
    scratch.bias = floats(static_cast<long>(kKeyBlock) * kStrip);
    scratch.mask_bits = reinterpret_cast<BlockBits*>(take(sizeof(BlockBits)));
    scratch.drop_bits = reinterpret_cast<BlockBits*>(take(sizeof(BlockBits)));
    return offset;
  }
};

template <class Unit>
class Tile {
 public:
  static size_t scratch_bytes(int d, int d_v, int strips) {
    TileScratch unused;
    return TileScratch::carve(unused, nullptr, Unit::words(d), round_up(d_v, Unit::kOutputStep),
                              Unit::value_floats(d_v, kKeyBlock), strips);
  }

  static void run(const ForwardJob& job, const ForwardPart& part, void* memory) {
    Tile tile(job, part, memory);
    Unit::begin_tile();
    tile.compute();
    Unit::end_tile();
  }

 private:
  /// A block of scores between its product with K and its product with V.
  struct Pending {
    StripState* strip = nullptr;
    float *s = nullptr, *o = nullptr;
    const float* v = nullptr;
    int first = 0, keys = 0, padded = 0;
    bool finite = true;
    bool trimmed = false;
    int8_t active[kKeyBlock / kKeyGroup][2];
  };

  Tile(const ForwardJob& job, const ForwardPart& part, void* memory)
      : job_(job),
        part_(part),
        words_(Unit::words(job.d)),
        output_rows_(round_up(job.d_v, Unit::kOutputStep)),
        strips_((part.rows + kStrip - 1) / kStrip),
        features_(job.has_score_features()) {
    TileScratch::carve(scratch_, static_cast<char*>(memory), words_, output_rows_,
                       Unit::value_floats(job.d_v, kKeyBlock), strips_);
    // f32 queries carry scale and log2(e) already; raw products get them in the exponential; features apply them
    // themselves.
    query_scale_ = features_ ? 1.f : job.scale * kLog2e;
    // A scale too small for a normal number leaves no two scores apart; as 0 it would leave no maximum, either.
    if (Unit::kPairs && !features_) factor_ = at_least(__FLT_MIN__, (job.scale < 0 ? -job.scale : job.scale) * kLog2e);
  }

  void compute() {
    start_strips();
    const bool in_place = Unit::reads_in_place(job_) && (strips_ == 1 || Unit::in_place_row(job_) == words_);
    int buffer = 0, value_buffer = 0;
    for (int first = part_.key_begin; first < part_.key_end; first += kKeyBlock) {
      const int keys = smaller(kKeyBlock, part_.key_end - first), padded = round_up(keys, Unit::kKeyStep);
      const LooseWord* k = nullptr;  // packed when the first strip needs the block
      long k_row = words_;
      bool finite = true;
      const bool fetches = first + kKeyBlock < part_.key_end && job_.v.column == 1;
      for (int t = 0; t < strips_; ++t) {
        StripState& strip = scratch_.strips[t];
        if (!strip.windows.sees(first, keys)) continue;
        if (job_.has_bit_masks() &&
            !gather_mask_bits(job_, strip.first_row, strip.rows, first, keys, *scratch_.mask_bits))
          continue;
        if (k == nullptr) {
          value_buffer ^= 1;
          if (in_place && keys == padded) {
            k = reinterpret_cast<const LooseWord*>(address(job_.k, 0, first, 0));
            k_row = Unit::in_place_row(job_);
          } else {
            pack_keys<Unit::kPairs>(job_, first, keys, padded, words_, scratch_.k);
            k = scratch_.k;
          }
          finite = Unit::pack_values(job_, first, keys, padded, scratch_.v[value_buffer]);
        }
        const Ahead ahead = rows_from(first + kKeyBlock, t);
        Pending block;
        block.strip = &strip;
        block.s = scratch_.s[buffer];
        block.o = scratch_.o + static_cast<long>(t) * output_rows_ * kStrip;
        block.v = scratch_.v[value_buffer];
        block.first = first;
        block.keys = keys;
        block.padded = padded;
        block.finite = finite;
        score(block, k, k_row, scratch_.q + static_cast<long>(t) * words_ * kStrip, fetches ? &ahead : nullptr);
        finish_pending();
        raise_maximum(strip, block.o);
        pending_ = block;
        buffer ^= 1;
      }
    }
    exponentiated_ = 0;
    finish_pending();
    for (int t = 0; t < strips_; ++t)
      end_strip(scratch_.strips[t], scratch_.o + static_cast<long>(t) * output_rows_ * kStrip);
  }

  Ahead rows_from(int key, int strip) const {
    return {.k = address(job_.k, 0, key, 0),
            .v = address(job_.v, 0, key, 0),
            .k_step = job_.k.row * size_of(job_.k.type),
            .v_step = job_.v.row * size_of(job_.v.type),
            .k_bytes = job_.d * size_of(job_.k.type),
            .v_bytes = job_.d_v * size_of(job_.v.type),
            .strip = strip,
            .strips = strips_};
  }

  void start_strips() {
    for (int t = 0; t < strips_; ++t) {
      StripState& strip = scratch_.strips[t];
      strip.first_row = part_.first_row + static_cast<long>(t) * kStrip;
      strip.rows = smaller(kStrip, part_.rows - t * kStrip);
      strip.windows.set(job_, strip.first_row, strip.rows);
      if (features_) strip.lanes.set(job_, strip.first_row, strip.rows);
      for (int r = 0; r < kStrip; ++r) {
        strip.maximum[r] = kMinusInfinity;
        strip.subtracted[r] = strip.sum[r] = strip.weights[r] = 0.f;
      }
      pack_queries<Unit::kPairs>(job_, strip.first_row, strip.rows, query_scale_, words_,
                                 scratch_.q + static_cast<long>(t) * words_ * kStrip);
    }
    for (int r = 0; r < kStrip; ++r) scratch_.block_sum[r] = scratch_.block_weights[r] = 0.f;
    __builtin_memset(scratch_.o, 0,
                     sizeof(float) * static_cast<size_t>(strips_) * static_cast<size_t>(output_rows_) * kStrip);
  }

  ExpBlock exp_block(const Pending& p) const {
    return {p.s, p.strip->subtracted, scratch_.block_sum, scratch_.block_weights, factor_};
  }

  /// S of the block, masked and changed; scratch highest = its largest score per lane. exponentiated_ = how many keys
  /// of the pending block were exponentiated on the way.
  void score(Pending& block, const LooseWord* k, long k_row, const float* q, const Ahead* ahead) {
    const bool windowed = !block.strip->windows.sees_all(block.first, block.padded);
    block.trimmed = false;
    for (int group = 0; group < block.padded / kKeyGroup; ++group) {
      int low = 0, high = kVectors;
      if (windowed) block.strip->windows.active_vectors(block.first + group * kKeyGroup, kKeyGroup, low, high);
      block.active[group][0] = static_cast<int8_t>(low);
      block.active[group][1] = static_cast<int8_t>(high);
      block.trimmed |= low != 0 || high != kVectors;
    }
    exponentiated_ = 0;
    if (block.trimmed) {
      for (int group = 0; group < block.padded / kKeyGroup; ++group) {
        const int low = block.active[group][0], vectors = block.active[group][1] - low, key = group * kKeyGroup;
        if (vectors > 0)
          Unit::scores(vectors, k + key * k_row, k_row, q + low * kLanes,
                       block.s + static_cast<long>(key) * kStrip + low * kLanes, kKeyGroup, words_);
      }
    } else {
      for (int r = 0; r < kStrip; ++r) scratch_.highest[r] = kMinusInfinity;
      if (Unit::kFuseExp && pending_.strip != nullptr) {
        exponentiated_ = smaller(block.padded, pending_.padded);
        Unit::scores_with_exp(k, k_row, q, block.s, exponentiated_, words_, scratch_.highest, exp_block(pending_),
                              ahead);
      }
      if (block.padded > exponentiated_)
        Unit::scores_and_highest(k + exponentiated_ * k_row, k_row, q,
                                 block.s + static_cast<long>(exponentiated_) * kStrip, block.padded - exponentiated_,
                                 words_, scratch_.highest);
    }
    if (!windowed && !features_ && !job_.has_bit_masks()) return;
    if (features_ && job_.bias.data != nullptr)
      gather_bias(job_, block.strip->first_row, block.strip->rows, block.first, block.keys, scratch_.bias);
    const ScorePass pass{.job = &job_,
                         .windows = windowed ? &block.strip->windows : nullptr,
                         .bits = job_.has_bit_masks() ? scratch_.mask_bits : nullptr,
                         .lanes = features_ ? &block.strip->lanes : nullptr,
                         .bias = job_.bias.data != nullptr ? scratch_.bias : nullptr,
                         .active = block.active};
    change_scores(pass, block.first, block.padded, block.s, scratch_.highest);
  }

  /// The rest of the pending block's exponentials, its sums, dropout, and its product with V.
  void finish_pending() {
    if (pending_.strip == nullptr) return;
    StripState& strip = *pending_.strip;
    if (pending_.padded > exponentiated_)
      exp_pass<Unit::kPairs>(exp_block(pending_), exponentiated_, pending_.padded - exponentiated_);
    for (int r = 0; r < kStrip; ++r) {
      strip.sum[r] += scratch_.block_sum[r];
      strip.weights[r] += Unit::kPairs ? scratch_.block_weights[r] : scratch_.block_sum[r];
      scratch_.block_sum[r] = scratch_.block_weights[r] = 0.f;
    }
    if (job_.drop) {
      gather_dropout_bits(job_, strip.first_row, strip.rows, pending_.first, pending_.padded, *scratch_.drop_bits);
      drop<Unit::kPairs>(pending_.s, pending_.padded, *scratch_.drop_bits);
    }
    if (!pending_.finite)
      accumulate_carefully();
    else if (pending_.trimmed)
      accumulate_trimmed();
    else
      Unit::accumulate(kVectors, 0, pending_.v, pending_.padded, pending_.s, pending_.o, 0, pending_.padded, job_.d_v);
    pending_.strip = nullptr;
  }

  /// Pairs of key groups, each over the vectors in which either has a visible key.
  void accumulate_trimmed() {
    constexpr int kStep = 2;
    const int groups = pending_.padded / kKeyGroup;
    for (int group = 0; group < groups;) {
      const auto range = [&](int g, int& low, int& high) {
        low = kVectors, high = 0;
        for (int i = g; i < smaller(g + kStep, groups); ++i) {
          low = smaller(low, pending_.active[i][0]);
          high = larger(high, pending_.active[i][1]);
        }
      };
      int low, high, end = group + kStep;
      range(group, low, high);
      for (int next_low, next_high; end < groups; end += kStep) {
        range(end, next_low, next_high);
        if (next_low != low || next_high != high) break;
      }
      end = smaller(end, groups);
      if (high > low)
        Unit::accumulate(high - low, low, pending_.v, pending_.padded, pending_.s, pending_.o, group * kKeyGroup,
                         (end - group) * kKeyGroup, job_.d_v);
      group = end;
    }
  }

  /// A block with infinities or NaN in V, which hidden keys must not touch.
  HEED_NOINLINE_MEMBER void accumulate_carefully() {
    const StripState& strip = *pending_.strip;
    BlockBits bits;  // those of the scratch are the next block's by now
    if (job_.has_bit_masks()) gather_mask_bits(job_, strip.first_row, strip.rows, pending_.first, pending_.keys, bits);
    const VisiblePairs visible{strip.windows, job_.has_bit_masks() ? &bits : nullptr, pending_.first};
    for (int key = 0; key < pending_.keys; ++key) {
      for (int c = 0; c < job_.d_v; ++c) {
        const F value = broadcast(load_element(address(job_.v, 0, pending_.first + key, c), job_.v.type));
        for (int v = 0; v < kVectors; ++v) {
          F p;
          if constexpr (Unit::kPairs) {
            const I words = as_int(load(pending_.s + static_cast<long>(key / 2) * kStrip + v * kLanes));
            p = as_float(key % 2 == 0 ? shift_left<16>(words)
                                      : and_int(words, broadcast_int(static_cast<int>(0xffff0000u))));
          } else {
            p = load(pending_.s + static_cast<long>(key) * kStrip + v * kLanes);
          }
          float* to = pending_.o + static_cast<long>(c) * kStrip + v * kLanes;
          store(to, select(visible.lanes(key, v), fma(value, p, load(to)), load(to)));
        }
      }
    }
  }

  void raise_maximum(StripState& strip, float* o) {
    const F limit = broadcast(at_most(__FLT_MAX__, kLazyMaximum / factor_)), factor = broadcast(factor_);
    alignas(64) float correction[kStrip];
    bool rescale = false;
    for (int r = 0; r < kStrip; r += kLanes) {
      const F before = load(strip.maximum + r), highest = load(scratch_.highest + r);
      const M grew = greater(highest, add(before, limit));
      const F now = select(grew, highest, before);
      // Lanes that did not grow keep exactly what they had: a row's bits must not depend on its neighbours.
      store(correction + r, select(grew, exp2(mul(sub(before, now), factor)), broadcast(1.f)));
      rescale |= any(both(grew, greater(before, broadcast(kMinusInfinity))));
      store(strip.maximum + r, now);
      store(strip.subtracted + r, select(greater(now, broadcast(kMinusInfinity)), now, zero()));
    }
    if (!rescale) return;
    for (int r = 0; r < kStrip; r += kLanes) {
      store(strip.sum + r, mul(load(strip.sum + r), load(correction + r)));
      store(strip.weights + r, mul(load(strip.weights + r), load(correction + r)));
    }
    for (long row = 0; row < output_rows_; ++row)
      for (int r = 0; r < kStrip; r += kLanes)
        store(o + row * kStrip + r, mul(load(o + row * kStrip + r), load(correction + r)));
  }

  void end_strip(const StripState& strip, const float* o) {
    alignas(64) float factor[kStrip];
    float* partial =
        part_.partial == nullptr ? nullptr : partial_row(part_.partial, job_, strip.first_row - part_.first_row);
    for (int r = 0; r < kStrip; ++r) factor[r] = 1.f;
    for (int r = 0; r < strip.rows; ++r) {
      const RowSums sums{strip.maximum[r] * factor_, strip.sum[r], strip.weights[r]};
      if (partial != nullptr)
        store_sums(partial_row(partial, job_, r), job_, sums);
      else
        factor[r] = end_row(job_, strip.first_row + r, sums);
    }
    unpack_output(job_, strip.first_row, strip.rows, o, factor, partial);
  }

  const ForwardJob& job_;
  const ForwardPart& part_;
  const int words_, output_rows_, strips_;
  const bool features_;
  float query_scale_ = 1.f, factor_ = 1.f;
  TileScratch scratch_;
  Pending pending_;
  int exponentiated_ = 0;  // keys of the pending block that are already exponentiated
};

}  // namespace heed::cpu::HEED_ISA
