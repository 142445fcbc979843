// What a forward kernel is compiled for, apart from how it computes: shared by the host and by NVRTC. No includes.
#pragma once

namespace heed::kernels {

enum class Element : int { f32, f16, bf16 };

/// How far masks reach. What a kernel need not look at is compiled out.
enum class MaskShape : int {
  none,    ///< every key is visible
  right,   ///< row i sees keys [0, i + x): causal, wherever its diagonal is
  window,  ///< row i sees keys [i - y + 1, i + x) and the first `sink` of those before
};

enum class BiasType : int { none, f32, as_input };

/// How a bias of 16 bits reaches the math warps of a Hopper kernel. One of f32 is always loaded where it is used.
enum class BiasRoute : int {
  in_step,  ///< loaded while its block's scores are computed
  copied,   ///< copied into shared memory by warps that have nothing else to do
};

struct ForwardFeatures {
  MaskShape mask = MaskShape::none;
  bool own_lengths = false;  ///< group mode or logical lengths: rows behind a sequence's end belong to somebody else
  bool keep = false;         ///< boolean mask
  bool blocks = false;       ///< block mask
  bool negative_scale = false;
  bool soft_cap = false;
  BiasType bias = BiasType::none;
  bool alibi = false;
  bool sink = false;
  bool dropout = false;
  /// Rows of a tile are those of all query heads of a group: row r is query r / group of head r % group. Not of the
  /// problem, but of how it is computed.
  bool packed = false;

  /// Scores are turned into log2 units before the softmax sees them; otherwise one factor is all that is between.
  constexpr bool changes_scores() const { return negative_scale || soft_cap || bias != BiasType::none || alibi; }
  /// About how many registers they ask for, in handfuls.
  constexpr int weight() const {
    return (mask == MaskShape::window) + own_lengths + keep + blocks + alibi + 2 * soft_cap +
           2 * (bias != BiasType::none) + 2 * dropout + packed;
  }
  /// The same where a boolean mask comes a block of keys ahead.
  constexpr int weight_ahead() const { return weight() + keep; }
  constexpr bool bit_masks() const { return keep || blocks; }
  /// Some row may not see some key that another row of the same tile sees.
  constexpr bool hides() const { return mask != MaskShape::none || own_lengths || bit_masks(); }

  /// Nothing but masks by coordinates and lengths comes between scores and weights.
  constexpr bool only_positions() const {
    return !bit_masks() && !soft_cap && bias == BiasType::none && !alibi && !dropout;
  }

  /// Nothing but masks by coordinates and sinks tells the heads of a group apart.
  constexpr bool can_pack() const { return !bit_masks() && bias == BiasType::none && !alibi && !dropout; }

  friend constexpr bool operator==(const ForwardFeatures&, const ForwardFeatures&) = default;
};

}  // namespace heed::kernels
