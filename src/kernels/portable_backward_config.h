// How the kernels of the portable family's backward pass compute: shared by the host and by NVRTC.
#pragma once

#include "portable_config.h"

namespace heed::kernels {

/// What a kernel of the backward pass computes. Every gradient has one owner, who sums it in a fixed order, so that the
/// same bits come out of every run; except dQ where `together` computes it.
enum class BackwardPart : int {
  rows,         ///< row_lse and row_dot, and each row's part of dSink; zeros for `together` to add to
  together,     ///< dK, dV, and dQ added to a sum in memory: the five products of attention's gradients
  gather,       ///< dQ from that sum
  keys_values,  ///< dK and dV together: four products of attention
  values,       ///< dV alone, where both are wider than the registers: two products
  keys,         ///< dK alone: three
  queries,      ///< dQ and each row's part of dSlopes: three
  bias,         ///< dBias, or parts of its sums: two
  bias_sum,     ///< dBias from those parts
  sums,         ///< dSink and dSlopes from the rows' parts
};

/// What `together` keeps of its tile of keys in shared memory, to have its registers for sums.
constexpr int kTileStateBytes = 128;

/// Of the ring of `bias`.
constexpr int kMostDBiasStages = 5;

/// What each warp of `bias` keeps of its copies there.
constexpr int kDBiasCopiesBytes = 80;

/// Features beside which hopper_backward_bias.cuh computes dBias.
constexpr bool bias_fits_wgmma(const ForwardFeatures& f) {
  return !f.bit_masks() && !f.soft_cap && !f.alibi && !f.dropout;
}

/// One CTA owns tile() rows of a gradient (keys of dK and dV, queries of dQ and dBias), each warp warp_rows of them
/// (`together`: all warps all of them), and goes over the rows of the other side in blocks. Whole rows of the operands
/// are in shared memory, or, `piece` > 0, pieces of them come one after the other and the gradient is computed in
/// passes over its columns: for any head dim.
struct PortableBackwardConfig {
  BackwardPart part = BackwardPart::keys_values;
  Element type = Element::f16;    ///< of the products and of the tiles in shared memory
  Element input = Element::f16;   ///< of q, k, v and their gradients: `type`, or a 16-bit type widened to f32
  Element output = Element::f16;  ///< of o and dO
  Element d_bias = Element::f32;  ///< of dBias: `bias`
  int d = 128, d_v = 128;         ///< tiles that cover the head dims; 0: any (`rows`: d of the sum of dQ; 0: none)
  int warps = 8;
  int warp_rows = 16;     ///< 16 or 32
  int block = 64;         ///< rows of the other side that are in shared memory together
  int step = 32;          ///< of these, rows whose products a warp has in registers together
  int across = 1;         ///< dBias: warps side by side over the keys of a block
  bool by_wgmma = false;  ///< dBias: by hopper_backward_bias.cuh
  int stages = 2;         ///< blocks in shared memory
  int piece = 0;          ///< columns of a piece; 0: whole rows
  int pass = 0;           ///< columns of a gradient in one pass, with pieces
  /// Rows of q, k, v and dO (of o and dO: `rows`) begin at multiples of so many bytes, and their elements are
  /// neighbours: 16, 8, 4. One element's bytes: any strides.
  int row_bytes = 16;
  /// `together`: columns of V that a warp has in registers beside all of K, by portable_backward_narrow.cuh; 0: both
  /// operands come from shared memory, by portable_backward_together.cuh.
  int held_v = 0;
  /// `together`: half of the warps compute dQ of a block while the others compute all else of the one behind it.
  bool in_turns = false;
  ForwardFeatures features = {};

  constexpr bool owns_keys() const {
    return part == BackwardPart::keys_values || part == BackwardPart::values || part == BackwardPart::keys;
  }
  constexpr bool has_values() const { return part == BackwardPart::keys_values || part == BackwardPart::values; }
  constexpr bool has_keys() const { return part == BackwardPart::keys_values || part == BackwardPart::keys; }
  constexpr bool is_together() const { return part == BackwardPart::together; }
  constexpr bool is_narrow() const { return held_v > 0; }
  /// Has dS, and so dP = dO V^T.
  constexpr bool has_scores() const { return part != BackwardPart::values; }
  /// Its tiles are matrix products; the others go over rows.
  constexpr bool has_products() const {
    return owns_keys() || is_together() || part == BackwardPart::queries || part == BackwardPart::bias;
  }
  constexpr bool in_pieces() const { return piece > 0; }

  constexpr int element_bytes() const { return type == Element::f32 ? 4 : 2; }
  constexpr int input_bytes() const { return input == Element::f32 ? 4 : 2; }
  constexpr int output_bytes() const { return output == Element::f32 ? 4 : 2; }
  constexpr int threads() const { return 32 * warps; }  ///< that compute
  constexpr int launched_threads() const { return threads() + (by_wgmma ? 128 : 0); }
  /// Lanes that share a row of o and dO, each with chunks of 16 bytes where the memory allows: `rows`.
  constexpr int row_lanes() const {
    const int chunks = row_bytes < 16 ? 32 : d_v * output_bytes() / 16;
    return chunks <= 4 ? 4 : chunks <= 8 ? 8 : chunks <= 16 ? 16 : 32;
  }
  /// Rows of them that a lane has a part of, so that enough of their copies are under way: `rows`.
  static constexpr int kLaneRows = 2;
  constexpr int tile() const {
    return warps / across * (part == BackwardPart::rows ? 32 / row_lanes() * kLaneRows : warp_rows);
  }
  /// Columns of dQ and dK, and of dV, that a CTA computes.
  constexpr int pass_d() const { return in_pieces() ? pass : d; }
  constexpr int pass_d_v() const { return in_pieces() ? pass : d_v; }

  // `together`: how the warps share a product's result, as warps over its rows x warps over its columns.
  constexpr int key_warps() const { return tile() / 32; }  ///< dK and dV: 32 keys each
  constexpr int column_warps() const { return warps / key_warps(); }
  constexpr int dq_column_warps() const { return d % 64 == 0 && block <= 64 ? 4 : 2; }
  constexpr int row_warps() const { return warps / dq_column_warps(); }
  /// With three stages a block's P and dS are stored while others read those of the block before.
  constexpr int weight_buffers() const { return stages == 3 ? 2 : 1; }

  /// `together` has P and dS in shared memory; in turns P and dS of two blocks, where K is held the latter alone. In
  /// the others f32 weights change owners there, 16-bit ones through the warp's registers.
  constexpr int weight_bytes() const {
    if (in_turns) return 3 * block * tile() * element_bytes();
    if (is_together()) return weight_buffers() * 2 * block * tile() * element_bytes();
    return type == Element::f32 ? tile() * step * 4 : 0;
  }
  /// row_lse and row_dot of the rows that come block by block.
  constexpr int stats_bytes() const {
    if (part == BackwardPart::bias) return 2 * tile() * 4;
    return owns_keys() || is_together() ? 2 * block * 4 : 0;
  }
  /// The operand of the owned rows: K and V, or Q and dO. By wgmma: one of them.
  constexpr int owned_bytes() const {
    if (by_wgmma) return tile() * d * element_bytes();
    return in_pieces() ? tile() * piece * element_bytes() : tile() * (d + (has_scores() ? d_v : 0)) * element_bytes();
  }
  /// The operand of the other side's rows; in pieces first the one of the scores, then the one of the gradient.
  constexpr int block_bytes() const {
    if (by_wgmma) return block * d * element_bytes();
    return (in_pieces() ? block * (piece > pass ? piece : pass) : block * (d + d_v)) * element_bytes();
  }
  /// dBias: the keys of a warp; `step` of them at a time where a piece has all columns of V, otherwise all.
  constexpr int warp_keys() const { return block / across; }
  /// dBias: the bias of a tile; a row of sums for each row of warps, which fits in its place.
  constexpr int kept_bytes() const { return tile() * block * (features.bias == BiasType::f32 ? 4 : input_bytes()); }
  constexpr int over_rows_bytes() const { return warps / across * block * 4; }
  constexpr int shared_bytes() const {
    if (part == BackwardPart::rows || part == BackwardPart::gather) return 0;
    if (part == BackwardPart::sums) return warps * 4;
    if (part == BackwardPart::bias_sum) return over_rows_bytes();
    if (by_wgmma)  // and a barrier for who fills a stage, one for who frees it
      return stages * (owned_bytes() + block_bytes() + 16) + kept_bytes();
    if (part == BackwardPart::bias)
      return stages * (owned_bytes() + block_bytes() + stats_bytes()) + kept_bytes() + warps * kDBiasCopiesBytes;
    return owned_bytes() + stages * (block_bytes() + stats_bytes()) + weight_bytes() +
           (is_together() ? kTileStateBytes : 0);
  }

  /// Thread blocks of a multiprocessor whose registers there must be: `gather` waits for memory.
  constexpr int least_blocks() const { return part == BackwardPart::gather ? 2 : 1; }
  /// dBias: thread blocks that a multiprocessor has at a time; f32 ones are small.
  constexpr int resident_blocks() const { return type == Element::f32 ? 3 : 1; }

  /// Registers for the products and the sums, of 255. The rest is for operands, addresses and features.
  constexpr int tile_registers() const {
    if (is_narrow()) return d + d_v + (d + held_v) / 2 + 2 * step;  // two warps for 32 keys
    if (is_together()) {
      const int products = 2 * (step * tile() / threads()), dq = block * d / threads();
      return tile() * (d + d_v) / threads() + (products > dq ? products : dq);
    }
    if (part == BackwardPart::bias) return warp_rows / 16 * (2 * warp_keys() + step) / 2;
    const int products = warp_rows / 16 * (step / 2) * (has_scores() ? 2 : 1);
    const int sums = (has_values() ? pass_d_v() / 2 : 0) + (part == BackwardPart::values ? 0 : pass_d() / 2);
    return products + warp_rows / 16 * sums;
  }

  /// The limit this configuration breaks, or null.
  constexpr const char* impossible() const {
    if (input != type && (type != Element::f32 || input == Element::f32))
      return "16-bit inputs are widened to f32 only";
    if (row_bytes > 16 || row_bytes < 2 || (row_bytes & (row_bytes - 1)) != 0)
      return "copies are of 16, 8 or 4 bytes, or of one element";
    if (warps < 1 || warps > 8) return "1 to 8 warps";
    if (!has_products()) return nullptr;
    if (by_wgmma) {
      if (part != BackwardPart::bias || type == Element::f32 || input != type || output != type || row_bytes != 16)
        return "by wgmma: dBias of one 16-bit type";
      if ((d != 64 && d != 128) || d_v != d || in_pieces()) return "by wgmma: whole rows of 64 or 128 columns";
      if (stages < 2) return "by wgmma: dO and V come behind Q and K";
      if (warps != 8 || warp_rows != 16 || across != 1 || block != 128) return "by wgmma: tiles of 128 by 128";
      if (!bias_fits_wgmma(features)) return "by wgmma: no feature but masks by position and lengths";
      return shared_bytes() > 227 * 1024 ? "more than 227 KiB of shared memory" : nullptr;
    }
    if (in_pieces() ? d != 0 || d_v != 0 : d > 256 || d_v > 256 || head_tile(d) != d || head_tile(d_v) != d_v)
      return "whole rows have tiles of 32, 64, 96, 128, 192 or 256 columns, pieces any number";
    if (in_pieces() && (piece % 32 != 0 || pass % 32 != 0 || (part != BackwardPart::bias && step != block) ||
                        part == BackwardPart::keys_values))
      return "pieces have multiples of 32 columns, whole blocks and one gradient";
    if (part == BackwardPart::bias ? !in_pieces() || stages < 2 || warps % across != 0 || warp_keys() % step != 0
                                   : across != 1)
      return "dBias is computed in pieces, which come through a ring, by rows of as many warps each";
    if (in_pieces() && part != BackwardPart::bias && stages != 1) return "pieces have one stage";
    if (is_together()) {
      if (type == Element::f32 || input != type || output != type) return "one 16-bit type for all";
      if (in_pieces() || warps != 8 || tile() % 32 != 0 || tile() > 128) return "eight warps share whole rows";
      if (warps % key_warps() != 0 || d % (16 * column_warps()) != 0 || d_v % (16 * column_warps()) != 0 ||
          d % (16 * dq_column_warps()) != 0 || block % (16 * row_warps()) != 0 || block / row_warps() > 32)
        return "warps have whole tiles of 16 by 16, and two of them at most one below the other";
      if (is_narrow()) {
        if (d > 64 || d_v > 64 || tile() != 128 || stages != 2 || step != 16 || block % 32 != 0)
          return "two warps take turns with the queries of 32 keys, whose sums they hold";
        if (held_v % 16 != 0 || held_v > d_v) return "a warp holds steps of 16 columns of V";
        if (!features.only_positions()) return "where K is held there are no registers for features";
      } else if (step % 32 != 0 || tile() % 64 != 0) {
        return "two by four warps share the scores";
      }
      if (in_turns && (is_narrow() || stages != 2 || !features.only_positions()))
        return "warps take turns with two stages, and without features";
    } else if (warp_rows != 16 && warp_rows != 32) {
      return "a warp has 16 or 32 rows";
    }
    if (block < 16 || block > 128 || block % 16 != 0) return "a block has 16 to 128 rows, in steps of 16";
    if (step < 16 || step > (is_together() ? 128 : 64) || block % step != 0)
      return "a step is 16 to 64 rows, and a part of a block";
    if (stages < 1 || stages > (part == BackwardPart::bias ? kMostDBiasStages : 4))
      return "1 to 4 stages, of dBias to 5";
    if (tile_registers() > 208) return "the products and sums of a warp do not fit its registers";
    if (shared_bytes() > 227 * 1024) return "more than 227 KiB of shared memory";
    return nullptr;
  }

  friend constexpr bool operator==(const PortableBackwardConfig&, const PortableBackwardConfig&) = default;
};

/// What is common to all kernels of a problem.
struct BackwardTypes {
  Element type, input, output;
  int d, d_v;
  int row_bytes;
};

/// So many features that the registers of the widest sums are not enough for them.
constexpr bool crowded(const ForwardFeatures& features) { return features.weight() >= 5; }

/// dK and dV in one kernel, or in two.
constexpr bool keys_and_values_together(const BackwardTypes& t, const ForwardFeatures& features) {
  const int most = crowded(features) ? 64 : 128;
  return t.d <= most && t.d_v <= most;
}

/// `together` for these head dims and features, with the largest blocks and rings that a GPU has memory for.
constexpr PortableBackwardConfig together_config(PortableBackwardConfig c, const PortableDevice& device) {
  struct Choice {
    int block, stages;
    bool in_turns = false;
  };
  // What is read from shared memory serves more products in larger blocks; in turns, or with three stages, nobody waits
  // twice a block.
  constexpr Choice kChoices[] = {{128, 2}, {64, 2, true}, {64, 3}, {64, 2}, {64, 1}, {32, 2}, {32, 1}};
  const bool narrow = c.d <= 64 && c.d_v <= 64;
  c.warps = 8;
  c.warp_rows = c.d > 128 || c.d_v > 128 ? 8 : 16;          // 64 or 128 keys
  const bool tight = device.max_shared_bytes < 200 * 1024;  // before sm_90 addresses take some more registers
  const bool full = c.row_bytes < 16 || (tight && c.features.mask != MaskShape::none);
  const bool holds = narrow && c.features.only_positions();
  const bool widest = c.tile() == 128 && c.d + c.d_v > 192;
  const bool many = crowded(c.features) || (device.takes_more_registers() && widest && c.features.hides() &&
                                            (c.features.soft_cap || c.features.dropout));
  for (const Choice& choice : kChoices) {
    if (choice.block == 128 && !holds) continue;
    if (choice.in_turns && (narrow || !c.features.only_positions() || (device.takes_more_registers() && widest)))
      continue;
    c.block = c.step = choice.block;
    c.stages = choice.stages;
    c.in_turns = choice.in_turns;
    c.held_v = !holds || c.stages != 2 ? 0 : full || (tight && c.block == 128) ? 16 : 32;
    if (c.is_narrow()) c.step = 16;
    if (c.block == 64 && !narrow && many) c.step = 32;
    if (c.impossible() == nullptr && c.shared_bytes() <= device.max_shared_bytes) break;
  }
  return c;
}

/// dBias: tiles as large as registers allow, for every step of a sum brings all of its operands anew; and a ring as
/// long as memory allows. d, d_v: of the problem.
constexpr PortableBackwardConfig bias_config(PortableBackwardConfig c, int d, int d_v, int max_shared_bytes) {
  const bool wide = c.type == Element::f32;
  c.d = c.d_v = 0;
  c.warps = wide ? 4 : 8;
  c.warp_rows = wide ? 16 : 32;
  c.across = wide ? 1 : 2;
  c.step = 32;
  c.stages = 2;
  c.piece = !wide && (d > 64 || d_v > 64) ? 128 : 64;
  c.block = c.across * (!wide && d_v <= c.piece ? 64 : 32);
  if (wide) return c;  // so that other thread blocks fit beside it
  if (c.shared_bytes() > max_shared_bytes) c.block = c.across * 32;
  if (c.shared_bytes() > max_shared_bytes) c.piece = 64;
  for (c.stages = kMostDBiasStages; c.stages > 2 && c.shared_bytes() > max_shared_bytes;) --c.stages;
  return c;
}

/// The same for sm_90, where TMA can address the operands.
constexpr PortableBackwardConfig bias_config_by_wgmma(PortableBackwardConfig c, int d, int d_v) {
  c.by_wgmma = true;
  c.d = c.d_v = d > 64 || d_v > 64 ? 128 : 64;
  c.piece = 0;
  c.warps = 8;
  c.warp_rows = 16;
  c.across = 1;
  c.block = 128;
  for (c.stages = 6; c.stages > 2 && c.shared_bytes() > 227 * 1024;) --c.stages;
  return c;
}
constexpr bool can_be_by_wgmma(const PortableBackwardConfig& c, int d, int d_v) {
  return d <= 128 && d_v <= 128 && bias_config_by_wgmma(c, d, d_v).impossible() == nullptr;
}

/// dBias from the parts that a kernel leaves of it: with the same threads.
constexpr PortableBackwardConfig bias_sum_config(PortableBackwardConfig bias) {
  bias.part = BackwardPart::bias_sum;
  bias.by_wgmma = false;
  bias.d = bias.d_v = 0;
  bias.row_bytes = 16;
  bias.stages = 1;
  bias.type = bias.input = bias.output = bias.d_bias;
  bias.features = {};
  return bias;
}

/// The configuration that is shipped for a part of a problem on a GPU. None spills.
constexpr PortableBackwardConfig portable_backward_config(BackwardPart part, const BackwardTypes& t,
                                                          const ForwardFeatures& features,
                                                          const PortableDevice& device) {
  PortableBackwardConfig c{.part = part,
                           .type = t.type,
                           .input = t.input,
                           .output = t.output,
                           .d = head_tile(t.d),
                           .d_v = head_tile(t.d_v),
                           .row_bytes = t.row_bytes,
                           .features = features};
  if (!c.has_products()) {               // features that change nothing there are not compiled for
    if (part == BackwardPart::gather) {  // hidden pairs are computed again as they were
      c.features = features.hides() ? features : ForwardFeatures{};
      c.d_v = 0;
      c.row_bytes = 16;
      return c;
    }
    c.features = {.own_lengths = features.own_lengths, .sink = features.sink && part == BackwardPart::rows};
    c.type = c.input = t.output;
    c.d = 0;
    if (part == BackwardPart::sums) {
      c.d_v = 0;
      c.row_bytes = 16;
      c.type = c.input = c.output = Element::f32;
    }
    return c;
  }
  if (part == BackwardPart::together) return together_config(c, device);
  if (part == BackwardPart::bias) return bias_config(c, t.d, t.d_v, device.max_shared_bytes);
  const bool wide = t.type == Element::f32;
  const bool heavy = features.changes_scores() || features.bit_masks() || features.dropout;
  const bool light = !heavy && !features.own_lengths && features.mask != MaskShape::window;
  const bool tight = device.max_shared_bytes < 200 * 1024;  // before sm_90 addresses take some more registers
  const int width = c.d > c.d_v ? c.d : c.d_v;
  const bool tightest = part == BackwardPart::keys || (part == BackwardPart::queries && t.row_bytes < 16);
  const bool many = crowded(features) || (tight && features.own_lengths && features.bias != BiasType::none);
  const bool too_wide = wide ? width > 128 : width > 256 || (tightest && many && c.d > 192);
  if (too_wide) {
    c.d = c.d_v = 0;
    c.piece = wide ? 64 : 128;
    c.pass = 128;
    c.stages = 1;
    c.warps = 4;
    c.warp_rows = 16;
    c.step = c.block = wide || crowded(features) ? 32 : 64;
    return c;
  }
  c.warps = 8;
  c.warp_rows = 16;
  c.block = width <= 128 ? 64 : 32;
  if (wide) {
    c.warps = 4;
    c.stages = 1;
    c.block = 32;
    c.step = heavy || (tight && features.own_lengths && part == BackwardPart::keys_values && width > 64) ? 16 : 32;
  } else if (part == BackwardPart::queries) {
    c.step = width <= 64 ? 32 : width <= 128 ? 64 : c.d <= 192 && !(tight && crowded(features)) ? 32 : 16;
    if (width <= 64 && !crowded(features)) c.warps = 4, c.warp_rows = 32;
  } else if (part == BackwardPart::keys_values && width <= 64) {
    c.step = crowded(features) ? 32 : 64;
    if (light) c.warps = 4, c.warp_rows = 32, c.step = tight || device.takes_more_registers() ? 16 : 32;
  } else {
    const bool dear = features.soft_cap || features.bias == BiasType::f32;
    const bool narrow = part == BackwardPart::keys_values ? (tight && !light) || (device.takes_more_registers() && dear)
                                                          : part == BackwardPart::keys && c.d > 192;
    c.step = narrow ? 16 : 32;
  }
  while (c.shared_bytes() > device.max_shared_bytes) {
    if (c.stages > 1) {
      --c.stages;
    } else if (c.block > 32) {
      c.block /= 2;
      if (c.step > c.block) c.step = c.block;
    } else if (c.warps > 4) {
      c.warps /= 2;
    } else if (c.block > 16) {
      c.block = c.step = 16;
    } else if (c.warps > 1) {
      c.warps /= 2;
    } else {
      break;
    }
  }
  // With one stage a loop over a block's steps takes a few registers too many beside a bias and lengths.
  if (part == BackwardPart::keys_values && !wide && width > 64 && many && c.stages == 1) c.block = c.step = 16;
  return c;
}

/// dK, dV and dQ together: one 16-bit type, and a configuration that fits.
constexpr bool computed_together(const BackwardTypes& t, const ForwardFeatures& features,
                                 const PortableDevice& device) {
  if (t.type == Element::f32 || t.input != t.type || t.output != t.type) return false;
  const PortableBackwardConfig c = portable_backward_config(BackwardPart::together, t, features, device);
  return c.impossible() == nullptr && c.shared_bytes() <= device.max_shared_bytes;
}

}  // namespace heed::kernels
