// One kind of problem in many sizes: those at which tiles, blocks and sequences end.
#pragma once

#include "test_scale.hpp"
#include "verify/case.hpp"
#include "verify/random.hpp"

#include <array>
#include <cstdint>

namespace heed::emulated {

/// How many of each kind: HEED_TEST_SCALE=full many.
inline int varied_cases() { return test_scale() == "full" ? 60 : 1; }

/// Case number n of the kind of `c`: its features, its group of heads and head dims up to its own; everything else is
/// new.
inline verify::Case varied(verify::Case c, int n) {
  constexpr std::array<std::int64_t, 14> kRows{1, 2, 17, 50, 63, 64, 65, 100, 127, 129, 192, 193, 257, 300};
  constexpr std::array<std::int64_t, 14> kKeys{1, 2, 31, 64, 65, 70, 100, 128, 129, 192, 200, 256, 257, 330};
  verify::Random random(c.seed, static_cast<std::uint64_t>(n));
  const auto one_of = [&](const auto& list) {
    return list[static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(list.size()) - 1))];
  };
  const auto layout = [&] { return random.chance(0.5) ? Layout::bhsd : Layout::bshd; };
  c.b = random.integer(1, c.group() ? 4 : 2);
  const std::int64_t group = c.h / c.h_k;
  c.h_k = random.integer(1, 2), c.h = group * c.h_k;
  c.s_q.assign(c.group() ? static_cast<std::size_t>(c.b) : 1, 0);
  c.s_k.assign(c.s_q.size(), 0);
  for (std::size_t i = 0; i < c.s_q.size(); ++i) {
    c.s_q[i] = c.group() && random.chance(0.1) ? 0 : one_of(kRows);
    c.s_k[i] = random.chance(0.1) ? 0 : one_of(kKeys);
  }
  const auto lengths = [&](std::vector<std::int64_t>& list, std::int64_t most) {
    if (list.empty()) return;
    list.assign(static_cast<std::size_t>(c.b), 0);
    for (std::int64_t& each : list) each = random.integer(0, most);
  };
  lengths(c.q_eff_lens, c.s_q[0]);
  lengths(c.kv_eff_lens, c.s_k[0]);
  const bool equal_dims = random.chance(0.5);
  c.d -= 8 * random.integer(0, 2);
  c.d_v = equal_dims ? c.d : c.d_v - 8 * random.integer(0, 2);
  c.q_layout = layout(), c.k_layout = layout(), c.v_layout = c.k_layout, c.o_layout = layout();
  c.row_gap = random.chance(0.5) ? 8 : 0;
  if (c.mask.kind() != Mask::Kind::none) {
    const std::int64_t left = c.mask.left() == Mask::kUnlimited ? Mask::kUnlimited : random.integer(0, 200);
    const std::int64_t right = random.chance(0.5) ? 0 : random.integer(0, 60);
    const std::int64_t sink = left == Mask::kUnlimited || random.chance(0.5) ? 0 : random.integer(1, 5);
    c.mask = random.chance(0.5) ? Mask::window(left, right, sink) : Mask::window_top_left(left, right, sink);
  }
  if (c.block_mask) {
    constexpr std::array<std::int64_t, 8> kBlocks{1, 16, 24, 48, 64, 100, 128, 256};
    c.block_mask->block_q = one_of(kBlocks), c.block_mask->block_k = one_of(kBlocks);
  }
  c.seed = random.word();
  return c;
}

}  // namespace heed::emulated
