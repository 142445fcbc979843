// How the Hopper backward kernel computes: the knobs, what follows from them, and which of them fit together. Shared by
// the host and by NVRTC. No includes but the features.
#pragma once

#include "forward_features.h"

namespace heed::kernels {

/// How a math warpgroup goes from one block of queries to the next.
enum class BackwardPipeline : int {
  in_step,  ///< both warpgroups meet at every block: dQ of a block is multiplied as soon as its dS is complete
  ahead,    ///< S of the next block is issued early and dQ one block late: nobody waits for the other's dS
};

/// Threads of the launches around the main one.
constexpr int kRowThreads = 256;
/// Slots for what is known of tiles: one is written again when nobody reads of its tile any more, which may be after K.
constexpr int work_slots(int k_stages) { return 2 * k_stages; }
/// Keys of a thread block that adds up dK or dV of the parts of a group: every tile of keys is a multiple.
constexpr int kSumKeys = 64;

struct HopperBackwardConfig {
  Element type = Element::f16;
  int d = 128;      ///< head dim of all tiles, 64 or 128: a problem's d and d_v may be smaller
  int tile_q = 64;  ///< queries of a block
  BackwardPipeline pipeline = BackwardPipeline::in_step;
  bool ordered = false;        ///< blocks of keys add to a dQ one after the other: the same bits in every run
  bool in_parts = false;       ///< the heads of a group are divided among thread blocks: dK and dV leave as sums in f32
  bool dq_in_16_bits = false;  ///< dQ is summed up in its own type, instead of f32
  BiasRoute bias_route = BiasRoute::in_step;
  bool stores_dbias = false;  ///< no two scores share an entry of the bias: dS is dBias, and leaves with its block
  ForwardFeatures features = {};

  static constexpr int kWarpgroups = 2;  ///< math warpgroups, 64 keys each
  static constexpr int kTileK = 64 * kWarpgroups;
  static constexpr bool owned_dq = false;  ///< as below
  static constexpr int kStages = 2;        ///< of the rings of Q with its LSE, of dO with its D, and of dS
  static constexpr int q_stages() { return kStages; }
  static constexpr int o_stages() { return kStages; }

  /// Tiles of keys add to a block of dQ from the last one that has it to the first, and not the other way round.
  constexpr bool last_tile_first() const { return ordered && features.mask == MaskShape::window; }
  constexpr bool bias_copied() const { return bias_route == BiasRoute::copied && features.bias == BiasType::as_input; }
  /// Where V has not come with K, it comes with a tile's first dO, before which nobody multiplies it. In step the loop
  /// is slower so.
  constexpr bool v_with_o() const { return pipeline == BackwardPipeline::ahead && !v_with_k(); }
  /// The warp that would copy a bias zeroes the sum of dQ, a few heads before tiles add to it: so it is still in the
  /// second-level cache when they do. Tiles in order have turns to wait for, and lengths of their own other heads
  /// ahead.
  constexpr bool zeroes_ahead() const { return !ordered && !features.own_lengths && !bias_copied(); }

  constexpr int threads() const { return 128 * (kWarpgroups + 1); }
  /// Lengths of their own are looked up by copying warps: they have more registers, where the others can spare them.
  constexpr bool busy_copies() const {
    return features.own_lengths && !(tile_q == 128 && pipeline == BackwardPipeline::ahead);
  }
  constexpr int copy_registers() const { return busy_copies() ? 40 : 24; }
  constexpr int math_registers() const { return busy_copies() ? 232 : 240; }

  /// Each warpgroup multiplies half of the rows of dQ (d = 64) or of its columns (d = 128). Where the rows are not 64,
  /// it is dQ^T = K^T dS^T: 64 columns by any number of rows.
  constexpr bool transposed_dq() const { return (d == 64 ? tile_q / 2 : tile_q) != 64; }
  constexpr int dq_registers() const { return tile_q * d / 256; }                 ///< of a thread
  constexpr int dq_chunks() const { return dq_registers() / 4; }                  ///< of 16 bytes, in f32
  constexpr int dq_half() const { return tile_q * d / 2; }                        ///< elements of one warpgroup
  constexpr int sum_bytes() const { return dq_in_16_bits ? 2 : 4; }               ///< of an element of dQ's sum
  constexpr int sum_chunks() const { return dq_registers() * sum_bytes() / 16; }  ///< what a thread adds, in 16 bytes

  // Shared memory, from its beginning. Tiles are stored as panels of 64 columns = 128 bytes.
  constexpr int panels() const { return d / 64; }
  constexpr int k_bytes() const { return kTileK * d * 2; }
  constexpr int q_bytes() const { return tile_q * d * 2; }
  constexpr int ds_bytes() const { return tile_q * kTileK * 2; }
  /// K is what a tile needs first and gives back last: where there is room the next tile's comes meanwhile.
  constexpr int k_stages() const {
    constexpr int kOthers = 3072;  // LSE, D, barriers, slots, zeros
    const int bytes = 3 * k_bytes() + kStages * (2 * q_bytes() + ds_bytes()) + tile_q * d * 4 + kOthers;
    return !bias_copied() && bytes <= 227 * 1024 ? 2 : 1;
  }
  /// And with it V, where there is room for that, too; parts with lengths of their own have no registers for it.
  constexpr bool v_with_k() const {
    constexpr int kOthers = 1024;  // barriers, slots, zeros
    const int bytes =
        4 * k_bytes() + kStages * (2 * q_bytes() + ds_bytes() + 2 * 4 * tile_q) + tile_q * d * 4 + kOthers;
    return k_stages() == 2 && !(in_parts && features.own_lengths) && bytes <= 227 * 1024;
  }
  static constexpr bool swaps_k_and_v() { return false; }  ///< as below
  constexpr int v_at() const { return k_stages() * k_bytes(); }
  constexpr int q_at() const { return v_at() + k_bytes() * (v_with_k() ? 2 : 1); }
  constexpr int o_at() const { return q_at() + kStages * q_bytes(); }
  constexpr int ds_at() const { return o_at() + kStages * q_bytes(); }    ///< [buffer][warpgroup's 64 keys][query]
  constexpr int dq_at() const { return ds_at() + kStages * ds_bytes(); }  ///< [warp][chunk][lane][16 bytes]
  constexpr int bias_at() const { return dq_at() + tile_q * d * 4; }      ///< [stage][query][key]
  constexpr int bias_bytes() const { return tile_q * kTileK * 2; }
  constexpr int lse_at() const { return bias_at() + (bias_copied() ? kStages * bias_bytes() : 0); }
  constexpr int dot_at() const { return lse_at() + kStages * tile_q * 4; }
  constexpr int barriers_at() const { return dot_at() + kStages * tile_q * 4; }
  constexpr int barriers() const { return 12 + 6 * kStages + (bias_copied() ? 1 + 2 * kStages : 0); }
  constexpr int work_at() const { return (barriers_at() + 8 * barriers() + 63) / 64 * 64; }
  constexpr int zeros_at() const { return work_at() + work_slots(k_stages()) * 64; }
  constexpr int zero_bytes() const { return zeroes_ahead() ? 512 : 0; }  ///< of which dQ's sum is zeroed
  constexpr int shared_bytes() const { return zeros_at() + zero_bytes(); }

  /// Which limit this combination breaks; null: it can be compiled.
  constexpr const char* impossible() const {
    if (type == Element::f32) return "wgmma multiplies f16 and bf16";
    if (d != 64 && d != 128) return "d is 64 or 128";
    if (tile_q != 32 && tile_q != 48 && tile_q != 64 && tile_q != 96 && tile_q != 128)
      return "a block has 32, 48, 64, 96 or 128 queries";
    if (d == 64 && tile_q != 64 && tile_q != 96 && tile_q != 128) return "for d = 64 a block has 64, 96 or 128 queries";
    if (stores_dbias && (!bias_copied() || features.own_lengths || features.bit_masks() || features.soft_cap))
      return "dBias leaves with its block where the bias is copied, beside neither lengths nor bit masks nor a soft "
             "cap";
    if (shared_bytes() > 227 * 1024) return "shared memory: more than the 227 KB of a multiprocessor";
    return nullptr;
  }

  friend constexpr bool operator==(const HopperBackwardConfig&, const HopperBackwardConfig&) = default;
};

/// dQ for head dims of 192 and 256 by thread blocks that own 128 rows of it.
struct HopperQueriesConfig {
  Element type = Element::f16;
  int d = 256;
  ForwardFeatures features = {};

  static constexpr int kWarpgroups = 2;                                     ///< math warpgroups, 64 rows each
  static constexpr int kRows = 64 * kWarpgroups, kKeys = 64;                ///< of a tile, and of a block
  static constexpr int tile_q = 64;                                         ///< rows of a block in the workspace
  static constexpr int kRowsPanel = kRows * 128, kKeysPanel = kKeys * 128;  ///< bytes

  static constexpr int threads() { return 128 * (kWarpgroups + 1); }
  static constexpr int copy_registers() { return 24; }
  static constexpr int math_registers() { return 240; }
  constexpr int panels() const { return d / 64; }
  constexpr int k_stages() const { return d == 256 ? 2 : 3; }
  constexpr int v_stages() const { return d == 256 ? 1 : 2; }

  // Shared memory, from its beginning. Q, dO, then the rings of K and V.
  constexpr int rows_bytes() const { return panels() * kRowsPanel; }
  constexpr int block_bytes() const { return panels() * kKeysPanel; }
  constexpr int o_at() const { return rows_bytes(); }
  constexpr int k_at() const { return 2 * rows_bytes(); }
  constexpr int v_at() const { return k_at() + k_stages() * block_bytes(); }
  constexpr int barriers_at() const { return v_at() + v_stages() * block_bytes(); }
  constexpr int shared_bytes() const { return barriers_at() + 8 * (1 + 2 * (k_stages() + v_stages())); }
};

/// For head dims of 192 and 256, whose dK and dV do not both fit a warpgroup's registers: one math warpgroup makes P
/// and dV, the other dS and dK, each of the same 64 keys.
struct HopperWideBackwardConfig {
  Element type = Element::f16;
  int d = 256;                    ///< head dim of all tiles, 192 or 256
  int q_ring = 2;                 ///< stages of the ring of Q with its LSE
  int o_ring = d == 256 ? 1 : 2;  ///< and of dO with its D
  bool owned_dq = false;          ///< dQ comes from owners of its rows, as queries() tells: the same bits in every run
  bool in_parts = false;          ///< as above
  bool dq_in_16_bits = false;     ///< as above; owned rows have no such sum
  ForwardFeatures features = {};

  static constexpr int tile_q = 64, kTileK = 64, kPanel = 64 * 128;  ///< bytes of 64 rows of a panel
  static constexpr bool v_with_o() { return false; }                 ///< as above; who copies has no registers for it
  static constexpr bool v_with_k() { return false; }                 ///< as above
  static constexpr bool ordered = false;                             ///< as above
  static constexpr bool last_tile_first() { return false; }          ///< as above
  constexpr bool zeroes_ahead() const { return !owned_dq && !features.own_lengths; }  ///< as above

  constexpr int threads() const { return 384; }
  constexpr int copy_registers() const { return features.own_lengths ? 40 : 24; }
  constexpr int math_registers() const { return features.own_lengths ? 232 : 240; }
  constexpr int panels() const { return d / 64; }
  /// Panels of dQ that a warpgroup multiplies, one after the other.
  constexpr int dq_panels(int warpgroup) const { return warpgroup == 0 ? 2 : panels() - 2; }
  static constexpr bool transposed_dq() { return false; }
  static constexpr int kPanelChunks = 8;  ///< of 16 bytes: a thread's part of a panel in f32
  constexpr int dq_chunks() const { return owned_dq ? 0 : kPanelChunks; }      ///< of a thread's staging memory
  constexpr int sum_bytes() const { return dq_in_16_bits ? 2 : 4; }            ///< as above
  constexpr int sum_chunks() const { return kPanelChunks * sum_bytes() / 4; }  ///< of a panel
  constexpr int adders() const { return owned_dq ? 0 : 2; }  ///< threads that add dQ, one for each warpgroup
  static constexpr bool bias_copied() { return false; }      ///< there is none
  constexpr int q_stages() const { return q_ring; }
  constexpr int o_stages() const { return o_ring; }

  // Shared memory, from its beginning.
  constexpr int q_bytes() const { return panels() * kPanel; }
  constexpr int k_bytes() const { return q_bytes(); }
  /// A tile's V lies where the next one's K will be, which is needed first and comes as soon as nobody multiplies that
  /// V any more; the next V comes where this tile's K was.
  static constexpr bool swaps_k_and_v() { return true; }
  static constexpr int k_stages() { return 2; }
  constexpr int q_at() const { return 2 * q_bytes(); }
  constexpr int o_at() const { return q_at() + q_stages() * q_bytes(); }
  constexpr int p_at() const { return o_at() + o_stages() * q_bytes(); }  ///< f32, [warp][chunk][lane][16 bytes]
  constexpr int ds_at() const { return p_at() + 64 * 64 * 4; }            ///< two buffers
  /// A panel of dQ for each warpgroup.
  constexpr int dq_at() const { return ds_at() + (owned_dq ? 0 : 2 * kPanel); }
  constexpr int lse_at() const { return dq_at() + 8 * 512 * dq_chunks(); }
  constexpr int dot_at() const { return lse_at() + q_stages() * tile_q * 4; }
  constexpr int barriers_at() const { return dot_at() + o_stages() * tile_q * 4; }
  constexpr int barriers() const { return 16 + 2 * q_stages() + 2 * o_stages(); }
  constexpr int work_at() const { return (barriers_at() + 8 * barriers() + 63) / 64 * 64; }
  constexpr int zeros_at() const { return work_at() + work_slots(k_stages()) * 64; }
  constexpr int zero_bytes() const { return zeroes_ahead() ? 1024 : 0; }  ///< as above
  constexpr int shared_bytes() const { return zeros_at() + zero_bytes(); }

  constexpr HopperQueriesConfig queries() const { return {type, d, features}; }

  /// Which limit this combination breaks; null: it can be compiled.
  constexpr const char* impossible() const {
    if (type == Element::f32) return "wgmma multiplies f16 and bf16";
    if (d != 192 && d != 256) return "d is 192 or 256";
    if (q_ring < 1 || q_ring > 2 || o_ring < 1 || o_ring > 2) return "rings of Q and dO have one stage or two";
    if (owned_dq && dq_in_16_bits) return "rows of dQ that have owners are not summed up in memory";
    if (shared_bytes() > 227 * 1024) return "shared memory: more than the 227 KB of a multiprocessor";
    return nullptr;
  }

  friend constexpr bool operator==(const HopperWideBackwardConfig&, const HopperWideBackwardConfig&) = default;
};

/// Whether the pass writes dBias by itself.
constexpr bool stores_dbias(const HopperBackwardConfig& c) { return c.stores_dbias; }
constexpr bool stores_dbias(const HopperWideBackwardConfig&) { return false; }

/// What the kernel before the main one is told: the lengths, and a mask where that says which tile adds to a dQ first
/// or which entries of dBias nobody else writes. Of many configurations it is the same.
constexpr HopperBackwardConfig config_before(HopperBackwardConfig c) {
  c.stores_dbias = c.stores_dbias && c.features.mask != MaskShape::none;
  const MaskShape mask = c.stores_dbias || c.last_tile_first() ? c.features.mask : MaskShape::none;
  c.features = {.mask = mask, .own_lengths = c.features.own_lengths};
  c.bias_route = BiasRoute::in_step;
  return c;
}
constexpr HopperWideBackwardConfig config_before(HopperWideBackwardConfig c) {
  c.features = {.own_lengths = c.features.own_lengths};
  return c;
}
/// What the kernels after the main one are told: all features where pairs are hidden.
constexpr HopperBackwardConfig config_after(HopperBackwardConfig c) {
  if (!c.features.hides()) c.features = {};
  c.bias_route = BiasRoute::in_step, c.stores_dbias = false;
  return c;
}
constexpr HopperWideBackwardConfig config_after(HopperWideBackwardConfig c) {
  if (!c.features.hides()) c.features = {};
  return c;
}

}  // namespace heed::kernels
