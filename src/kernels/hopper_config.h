// How the Hopper forward kernel computes: the knobs, what follows from them, and which of them fit together. Shared by
// the host and by NVRTC. No includes but the features.
#pragma once

#include "forward_features.h"

namespace heed::kernels {

/// Who goes first among the math warpgroups of a block.
enum class Turns : int {
  free,      ///< nobody is kept waiting
  products,  ///< they issue their two products in turn
  softmax,   ///< one of them exponentiates at a time
};

enum class Persistence : int {
  one_tile,  ///< a thread block for every tile
  fixed,     ///< one block per multiprocessor, tiles dealt out in advance
  dynamic,   ///< one block per multiprocessor, tiles drawn from a counter
};

struct HopperConfig {
  Element type = Element::f16;
  int d = 128, d_v = 128;  ///< head dims of the tile: a problem's may be smaller
  int tile_k = 64;         ///< keys of a block
  int warpgroups = 3;      ///< math warpgroups, 64 query rows each
  int k_stages = 4, v_stages = 4;
  int q_buffers = 2;
  Turns turns = Turns::free;
  Persistence persistence = Persistence::dynamic;
  bool lazy_maximum = true;   ///< no row maximum in unmasked blocks unless the row sums ask for one
  int rescale_threshold = 8;  ///< O is rescaled when a maximum grows by more than this, in log2 units; 0: always
  bool q_in_registers = false;
  bool own_o_memory = false;   ///< O leaves through memory of its own instead of its Q tile's
  bool specialised = true;     ///< a warp of its own copies; otherwise a thread of a math warp, while that warp waits
  int cluster = 1;             ///< blocks that share K and V: each loads half of a tile for both
  bool p_in_shared = false;    ///< P of the second product in shared memory instead of registers
  bool scores_in_f16 = false;  ///< the first product accumulates in f16: inaccurate, never chosen by heed itself
  bool sums_in_f16 = false;    ///< likewise the second
  BiasRoute bias_route = BiasRoute::in_step;
  int bias_stages = 2;        ///< of a warpgroup's bias, where it is copied
  bool v_by_columns = false;  ///< V's keys are neighbours in memory: follows from the problem
  /// Query heads of a group may share tiles, where that makes fewer of them: features.packed then follows from the
  /// problem.
  bool pack = true;
  ForwardFeatures features = {};

  constexpr int tile_q() const { return 64 * warpgroups; }        ///< query rows of a block
  constexpr int tile_rows() const { return tile_q() * cluster; }  ///< of all blocks that share K and V
  constexpr bool inaccurate() const { return scores_in_f16 || sums_in_f16; }
  constexpr int threads() const { return 128 * (warpgroups + (specialised ? 1 : 0)); }
  /// The copying warp has more to keep: it searches for tiles of sequences with their own lengths, or computes by
  /// itself which tile is next, or copies for another block, too.
  constexpr bool busy_copies() const {
    return features.own_lengths || persistence == Persistence::fixed || cluster > 1;
  }
  /// Boolean and block masks come a block of keys ahead, as bits: where there are registers for them.
  constexpr bool masks_ahead() const { return !own_o_memory; }
  constexpr bool bias_copied() const { return bias_route == BiasRoute::copied && features.bias == BiasType::as_input; }
  /// Of the features, as their weight() is counted.
  constexpr int weight_of(const ForwardFeatures& f) const { return masks_ahead() ? f.weight_ahead() : f.weight(); }
  // Registers of a thread after the roles have parted; together no more than the launch gave them all.
  constexpr int math_registers() const {
    if (!specialised) return warpgroups <= 2 ? 255 : warpgroups == 3 ? 168 : 128;
    if (warpgroups <= 2) return busy_copies() ? 224 : 232;
    return warpgroups == 3 ? (busy_copies() ? 152 : 160) : 112;
  }
  constexpr int copy_registers() const {
    if (warpgroups <= 2) return busy_copies() ? 56 : 40;
    return warpgroups == 3 && busy_copies() ? 56 : 32;
  }

  // Shared memory, from its beginning. Tiles are stored as panels of 64 columns = 128 bytes.
  constexpr int panels() const { return (d + 63) / 64; }
  constexpr int v_panels() const { return (d_v + 63) / 64; }
  constexpr int larger_panels() const { return panels() > v_panels() ? panels() : v_panels(); }
  /// Of one warpgroup; O leaves through it, too.
  constexpr int q_bytes() const { return 64 * 128 * (own_o_memory ? panels() : larger_panels()); }
  constexpr int k_bytes() const { return tile_k * 128 * panels(); }
  /// By columns a panel has 64 keys and d_v rows, otherwise 64 columns and tile_k rows.
  constexpr int v_bytes() const { return v_by_columns ? d_v * 128 * key_panels() : tile_k * 128 * v_panels(); }
  constexpr int key_panels() const { return (tile_k + 63) / 64; }
  constexpr int k_at() const { return q_buffers * warpgroups * q_bytes(); }
  constexpr int v_at() const { return k_at() + k_stages * k_bytes(); }
  constexpr int o_at() const { return v_at() + v_stages * v_bytes(); }  ///< [warpgroup][2 panels of 64 x 64]
  constexpr int p_at() const { return o_at() + (own_o_memory ? warpgroups * 2 * 64 * 128 : 0); }  ///< [warpgroup]
  constexpr int p_bytes() const { return 64 * 128 * key_panels(); }
  constexpr int bias_at() const { return p_at() + (p_in_shared ? warpgroups * p_bytes() : 0); }  ///< [warpgroup][stage]
  constexpr int bias_bytes() const { return 64 * tile_k * 2; }
  constexpr int bias_tiles() const { return bias_copied() ? warpgroups * bias_stages : 0; }
  constexpr int barriers_at() const { return bias_at() + bias_tiles() * bias_bytes(); }
  constexpr int barriers() const { return 2 * (q_buffers * warpgroups + k_stages + v_stages + bias_tiles()); }
  constexpr int work_at() const { return (barriers_at() + 8 * barriers() + 31) / 32 * 32; }
  constexpr int shared_bytes() const { return work_at() + q_buffers * warpgroups * 32; }

  /// Blocks that a warpgroup may hand on while its last P V still holds a V stage.
  constexpr int most_skipped() const {
    return cluster > 1 ? v_stages - 1 : (64 * (warpgroups - 1) + tile_k - 1) / tile_k;
  }

  /// Registers of a thread that hold O, S, P (and Q).
  constexpr int operand_registers() const {
    return (sums_in_f16 ? d_v / 4 : d_v / 2) + tile_k / 2 + tile_k / 4 + (scores_in_f16 ? tile_k / 4 : 0) +
           (q_in_registers ? d / 4 : 0);
  }

  /// Which limit this combination breaks; null: it can be compiled.
  constexpr const char* impossible() const {
    if (type == Element::f32) return "wgmma multiplies f16 and bf16";
    if (warpgroups < 1 || warpgroups > 4) return "there are 1 to 4 math warpgroups";
    if (d % 16 != 0 || d < 16 || d > 256) return "d is a multiple of 16, at most 256";
    if (!(d_v == 64 || d_v == 80 || d_v == 96 || d_v == 112 || d_v == 128 || d_v == 160 || d_v == 192 || d_v == 256))
      return "d_v is 64, 80, 96, 112, 128, 160, 192 or 256";
    if (tile_k != 32 && (tile_k % 16 != 0 || tile_k < 64 || tile_k > 176))
      return "a block has 32 keys, or 64 to 176, a multiple of 16";
    if (k_stages < 1 || v_stages < 1) return "a ring has one stage or more";
    if (q_buffers < 1 || q_buffers > 2) return "Q has one buffer or two";
    if (rescale_threshold < 0 || rescale_threshold > 12) return "the rescale threshold is 0 to 12";
    if (lazy_maximum && rescale_threshold == 0) return "the lazy maximum needs a rescale threshold above 0";
    if (turns != Turns::free && warpgroups == 1) return "turns need two warpgroups or more";
    if (!specialised && features.own_lengths) return "without a copying warp nobody searches for tiles of own lengths";
    if (!specialised && turns != Turns::free) return "without a copying warp turns would make the copies wait";
    if (!specialised && cluster > 1) return "the blocks of a cluster have copying warps";
    if (cluster < 1 || cluster > 2) return "a cluster has one block or two";
    if (cluster > 1 && persistence == Persistence::dynamic)
      return "the blocks of a cluster take the same tiles by a plan: persistence is static or off";
    if (cluster > 1 && features.own_lengths) return "the blocks of a cluster need sequences of one length";
    if (cluster > 1 && v_by_columns) return "the blocks of a cluster load V by rows";
    if (v_by_columns && features.own_lengths) return "V by columns needs sequences that fill their tensor";
    if (features.packed && !features.can_pack())
      return "heads of a group share tiles where only masks by coordinates, sinks and soft caps are between";
    if (bias_stages < 1) return "a ring has one stage or more";
    if (bias_copied() && (!specialised || cluster > 1))
      return "a bias is copied by warps of the copying warpgroup, for the math warpgroups of one block";
    if (bias_copied() && tile_k % 32 != 0) return "a bias is copied in blocks of 32 keys and multiples of that";
    if (inaccurate() && type != Element::f16) return "accumulation in f16 takes f16 inputs";
    if (scores_in_f16 && tile_k % 32 != 0) return "scores in f16 come in blocks of 32 keys and multiples of that";
    if (sums_in_f16 && d_v % 32 != 0) return "sums in f16 need a d_v that is a multiple of 32";
    if (sums_in_f16 && (lazy_maximum || rescale_threshold > 0))
      return "sums in f16 overflow unless weights are at most 1: lazy_maximum:0 and rescale_threshold:0";
    if ((features.mask != MaskShape::none) && v_stages <= most_skipped())
      return "a pending P V holds one V stage while blocks are handed on: more V stages, or fewer warpgroups";
    if (warpgroups == 4 && (persistence == Persistence::fixed || cluster > 1) && specialised)
      return "registers: four warpgroups leave too few for copies by a static plan or in a cluster";
    if (operand_registers() + (specialised ? 24 : 80) > math_registers())
      return "registers: O, S and P of a warpgroup exceed its share";
    if (shared_bytes() > 227 * 1024) return "shared memory: more than the 227 KB of a multiprocessor";
    return nullptr;
  }

  friend constexpr bool operator==(const HopperConfig&, const HopperConfig&) = default;
};

}  // namespace heed::kernels
