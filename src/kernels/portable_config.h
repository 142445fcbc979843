// How a forward kernel of the portable family computes: shared by the host and by NVRTC.
#pragma once

#include "forward_features.h"

namespace heed::kernels {

inline constexpr int kHeadTiles[] = {32, 64, 96, 128, 192, 256, 512, 576, 768, 1024};

/// The smallest tile that covers a head dim of 1 to 1024.
constexpr int head_tile(int d) {
  for (int tile : kHeadTiles)
    if (d <= tile) return tile;
  return 0;
}

/// One CTA computes tile_q() rows of one head. Each warp owns warp_rows of them: their scores, their softmax, their O.
/// Or two warps own them together.
struct PortableConfig {
  Element type = Element::f16;    ///< of the products and of the tiles in shared memory
  Element input = Element::f16;   ///< of q, k, v: `type`, or a 16-bit type that is widened to f32 on its way
  Element output = Element::f16;  ///< of o
  int d = 128, d_v = 128;         ///< tiles that cover the head dims: one of kHeadTiles each
  int tile_k = 64;                ///< keys per block
  int warps = 4;
  int warp_rows = 32;  ///< 16 or 32; 32 reads K and V from shared memory half as often
  int stages = 1;      ///< 1: K and V take turns in arriving; more: a ring of so many blocks of both
  int ctas = 1;        ///< that share a multiprocessor: each thread has its part of the registers
  int q_held = 0;      ///< 16-bit types: so many columns of Q stay in registers
  int k_pieces = 1;    ///< K arrives in so many pieces of its columns, one after the other
  /// Two warps share their rows: each has the scores of half of a block's keys, and half of the columns of O. The
  /// weights change hands through shared memory.
  bool pairs = false;
  /// Rows of q, k, v begin at multiples of so many bytes, and their elements are neighbours: 16, 8, 4. One element's
  /// bytes: any strides.
  int row_bytes = 16;
  ForwardFeatures features = {};

  constexpr int element_bytes() const { return type == Element::f32 ? 4 : 2; }
  constexpr int input_bytes() const { return input == Element::f32 ? 4 : 2; }
  /// Tiles are copied as they are, sixteen bytes at a time.
  constexpr bool plain_copies() const { return row_bytes == 16 && input == type; }
  constexpr int threads() const { return 32 * warps; }
  constexpr int sharers() const { return pairs ? 2 : 1; }  ///< warps that have the same rows
  constexpr int tile_q() const { return warps / sharers() * warp_rows; }
  /// Where O is wider than the registers it is computed in passes over its columns, each with all the scores.
  constexpr int pass_d_v() const {
    const int most = type == Element::f32 && !plain_copies() ? 128 : 256;
    return d_v < most ? d_v : most;
  }
  constexpr int passes() const { return (d_v + pass_d_v() - 1) / pass_d_v(); }

  constexpr int q_bytes() const { return tile_q() * d * element_bytes(); }
  constexpr int k_bytes() const { return tile_k * (d / k_pieces) * element_bytes(); }
  constexpr int v_bytes() const { return tile_k * pass_d_v() * element_bytes(); }
  /// f32 weights change owners through shared memory; 16-bit ones stay where they are, but for those of pairs.
  constexpr int weight_bytes() const {
    if (pairs) return tile_q() * tile_k * element_bytes() + warps * pair_word_bytes();
    return type == Element::f32 ? tile_q() * tile_k * 4 : 0;
  }
  /// A word for each of its rows that a warp tells the other of its pair.
  constexpr int pair_word_bytes() const { return pairs ? warp_rows * 4 : 0; }
  constexpr int shared_bytes() const { return q_bytes() + stages * (k_bytes() + v_bytes()) + weight_bytes(); }
  /// Thread blocks for which a multiprocessor has memory, where one may have max_shared_bytes. Each costs 1 KiB more
  /// than it asked for, and the multiprocessor has 1 KiB more.
  constexpr int ctas_within(int max_shared_bytes) const {
    constexpr int kReserved = 1024;
    return (max_shared_bytes + kReserved) / (shared_bytes() + kReserved);
  }

  /// Registers for Q, S and O, of 255. The rest is for operands, addresses and features.
  constexpr int tile_registers() const {
    return warp_rows / 16 * ((tile_k / 2 + pass_d_v() / 2) / sharers() + q_held / 4);
  }

  /// The limit this configuration breaks, or null.
  constexpr const char* impossible() const {
    if (head_tile(d) != d || head_tile(d_v) != d_v)
      return "head-dim tiles are 32, 64, 96, 128, 192, 256, 512, 576, 768 or 1024";
    if (input != type && (type != Element::f32 || input == Element::f32))
      return "16-bit inputs are widened to f32 only";
    if (row_bytes > 16 || row_bytes < input_bytes() || (row_bytes & (row_bytes - 1)) != 0)
      return "copies are of 16, 8 or 4 bytes, or of one element";
    if (k_pieces < 1 || d % k_pieces != 0) return "the pieces of K are equal";
    if (k_pieces > 1 && (stages > 1 || q_held > 0 || d / k_pieces * element_bytes() % 128 != 0))
      return "pieces of K want one stage, Q in shared memory, and rows of whole 128 bytes";
    if (tile_k < 16 || tile_k > 128 || tile_k % 16 != 0) return "a block has 16 to 128 keys, in steps of 16";
    if (warp_rows != 16 && warp_rows != 32) return "a warp has 16 or 32 rows";
    if (warps < 1 || warps > 16) return "1 to 16 warps";
    if (stages < 1 || stages > 4) return "1 to 4 stages";
    if (q_held < 0 || q_held > d || q_held % 16 != 0) return "Q is held by 16 columns";
    if (q_held > 0 && type == Element::f32) return "Q stays in registers for 16-bit types only";
    if (tile_registers() > 208) return "Q, S and O of a warp do not fit its registers";
    if (pairs && (type == Element::f32 || warps % 2 != 0 || tile_k % 32 != 0 || pass_d_v() % 128 != 0 || d_v > 256))
      return "pairs of warps have 16-bit types, whole tiles of 16 keys and of 64 columns each, and one pass";
    if (pairs && features.dropout) return "pairs of warps have no dropout";
    if (ctas < 1 || ctas > 4) return "1 to 4 CTAs share a multiprocessor";
    if (ctas * warps > 8 && tile_registers() + 32 > 2048 / (ctas * warps))
      return "more than 8 warps leave fewer than 255 registers each";
    if (shared_bytes() > 227 * 1024) return "more than 227 KiB of shared memory";
    return nullptr;
  }

  friend constexpr bool operator==(const PortableConfig&, const PortableConfig&) = default;
};

/// What of a GPU decides how kernels compute.
struct PortableDevice {
  int sm;                ///< compute capability: 90 is 9.0
  int max_shared_bytes;  ///< of a CTA

  /// The compiler takes up to ten registers more for the same kernel. The fullest have none left, and so they have
  /// fewer products at a time.
  constexpr bool takes_more_registers() const { return sm >= 100; }
};

/// The configuration that is shipped for a problem on a GPU. None of them spills.
constexpr PortableConfig portable_config(Element type, Element input, Element output, int d, int d_v, int row_bytes,
                                         const ForwardFeatures& features, const PortableDevice& device) {
  const int max_shared_bytes = device.max_shared_bytes;
  PortableConfig c{.type = type,
                   .input = input,
                   .output = output,
                   .d = head_tile(d),
                   .d_v = head_tile(d_v),
                   .row_bytes = row_bytes,
                   .features = features};
  // What features need of the registers: masks little, lengths and two-sided windows some, a bias with dropout the
  // most.
  const bool bias = features.bias != BiasType::none;
  const bool heavy = features.changes_scores() || features.bit_masks() || features.dropout;
  const bool heaviest = bias && features.dropout;
  const bool light = !heavy && !features.own_lengths && features.mask != MaskShape::window;
  const int width = c.pass_d_v();
  c.warp_rows = width <= 128 ? 32 : 16;
  c.warps = 4;
  c.stages = 1;
  if (type == Element::f32) {
    const bool window_of_lengths = features.own_lengths && features.mask == MaskShape::window;
    const bool narrow = width <= 128 && (heavy || window_of_lengths || c.passes() > 1 || (!c.plain_copies() && !light));
    if (heavy && c.passes() > 1) c.warp_rows = 16;
    c.tile_k = width <= 64 ? (heaviest ? 32 : 64) : narrow ? 16 : 32;
  } else if (width <= 64) {
    c.tile_k = features.dropout || (heavy && c.d > 256) ? 32 : 64;
    c.stages = 2;
    if (light && c.d <= 64) {
      if (row_bytes == 16 && c.ctas_within(max_shared_bytes) >= 3) {
        c.ctas = 3;  // worth more than Q in registers
      } else {
        c.q_held = c.d;
      }
    }
  } else if (width <= 128) {
    const bool wide = light && row_bytes > 2;  // element by element, loads take registers
    c.tile_k = wide ? 64 : 32;
    c.stages = 2;
    if (wide && c.ctas_within(max_shared_bytes) < 2) c.stages = 1;
    if (wide && c.ctas_within(max_shared_bytes) < 2) {
      c.tile_k = 32;
      if (c.ctas_within(max_shared_bytes) < 2) c.tile_k = 64;
    }
    if (c.d == 128 && c.tile_k == 64 && c.stages == 1) c.q_held = 32;
    if (bias || features.dropout) c.warps = 8, c.warp_rows = 16;
  } else {
    const bool fullest = device.takes_more_registers() && device.sm < 120 && width > 192;  // not these on sm_120
    const bool narrow = heaviest || c.passes() > 1 || (fullest && features.dropout && features.hides());
    c.tile_k = heavy ? (narrow ? 16 : 32) : light || c.passes() == 1 ? 64 : 32;
    c.warps = 8;
    if (light && row_bytes == 16 && c.passes() == 1) {
      c.tile_k = 128;
      if (c.shared_bytes() > max_shared_bytes || (fullest && output == Element::f32)) c.tile_k = 64;
      PortableConfig pairs = c;  // two thread blocks of four warps
      pairs.pairs = true;
      pairs.tile_k = 64;
      pairs.warps = 4;
      pairs.warp_rows = 32;
      pairs.q_held = 32;
      pairs.ctas = 2;
      const bool fits = pairs.impossible() == nullptr && pairs.ctas_within(max_shared_bytes) >= pairs.ctas;
      if (c.d == 256 && c.d_v == 256 && fits && !device.takes_more_registers()) return pairs;
    }
  }
  if (c.d > 512) {  // Q fills the shared memory
    c.warp_rows = 16;
    c.stages = 1;
    if (c.tile_k > 32) c.tile_k = 32;
  }
  while (c.shared_bytes() > max_shared_bytes) {
    if (c.stages > 1) {
      --c.stages;
    } else if (c.tile_k > 32) {
      c.tile_k = 32;
    } else if (c.warps > 4) {
      c.warps /= 2;
    } else if (c.tile_k > 16) {
      c.tile_k = 16;
    } else if (c.warps > 1) {
      c.warps /= 2;
    } else if (c.warp_rows > 16) {
      c.warp_rows = 16;
    } else if (c.d / c.k_pieces > 256) {
      c.k_pieces *= 2;
    } else {
      break;
    }
  }
  return c;
}

}  // namespace heed::kernels
