#include "cuda/hopper_knobs.hpp"

#include <fmt/format.h>

#include <array>

namespace heed::cuda {
namespace {

using kernels::BiasRoute;
using kernels::HopperConfig;
using kernels::Persistence;
using kernels::Turns;

constexpr std::array<std::string_view, 2> kNoYes{"0", "1"};
constexpr std::array<std::string_view, 3> kTurns{"free", "products", "softmax"};
constexpr std::array<std::string_view, 3> kPersistences{"off", "static", "dynamic"};
constexpr std::array<std::string_view, 2> kWidths{"f32", "f16"};
constexpr std::array<std::string_view, 2> kBiasRoutes{"in_step", "copied"};
constexpr std::array kRows{64, 128, 192, 256};
constexpr int kMostStages = 8;

/// In this order they are written. `tile_q` and `stages` say in one word what others say in two.
constexpr std::array kKnobs{
    choice_knob<HopperConfig>(
        "tile_q", "query rows of a tile: 64 for each math warpgroup", kRows,
        [](const HopperConfig& c) { return c.tile_q(); }, [](HopperConfig& c, int v) { c.warpgroups = v / 64; }),
    number_knob<HopperConfig>(
        "warpgroups", "math warpgroups, 64 query rows each", 1, 4, [](const HopperConfig& c) { return c.warpgroups; },
        [](HopperConfig& c, int v) { c.warpgroups = v; }),
    number_knob<HopperConfig>(
        "tile_k", "keys of a block", 32, 176, [](const HopperConfig& c) { return c.tile_k; },
        [](HopperConfig& c, int v) { c.tile_k = v; }),
    number_knob<HopperConfig>(
        "stages", "stages of the rings of K and of V", 1, kMostStages,
        [](const HopperConfig& c) { return c.k_stages == c.v_stages ? c.k_stages : 0; },
        [](HopperConfig& c, int v) { c.k_stages = c.v_stages = v; }),
    number_knob<HopperConfig>(
        "k_stages", "stages of the ring of K", 1, kMostStages, [](const HopperConfig& c) { return c.k_stages; },
        [](HopperConfig& c, int v) { c.k_stages = v; }),
    number_knob<HopperConfig>(
        "v_stages", "stages of the ring of V", 1, kMostStages, [](const HopperConfig& c) { return c.v_stages; },
        [](HopperConfig& c, int v) { c.v_stages = v; }),
    number_knob<HopperConfig>(
        "q_buffers", "buffers of Q", 1, 2, [](const HopperConfig& c) { return c.q_buffers; },
        [](HopperConfig& c, int v) { c.q_buffers = v; }),
    word_knob<HopperConfig>(
        "turns", "who goes first among the math warpgroups", kTurns,
        [](const HopperConfig& c) { return static_cast<int>(c.turns); },
        [](HopperConfig& c, int v) { c.turns = static_cast<Turns>(v); }),
    word_knob<HopperConfig>(
        "persistence", "blocks that live for one tile, or take tiles by a plan, or as they come", kPersistences,
        [](const HopperConfig& c) { return static_cast<int>(c.persistence); },
        [](HopperConfig& c, int v) { c.persistence = static_cast<Persistence>(v); }),
    word_knob<HopperConfig>(
        "lazy_maximum", "no row maximum in unmasked blocks unless the row sums ask for one", kNoYes,
        [](const HopperConfig& c) { return c.lazy_maximum ? 1 : 0; },
        [](HopperConfig& c, int v) { c.lazy_maximum = v != 0; }),
    number_knob<HopperConfig>(
        "rescale_threshold", "O is rescaled when a maximum grows by more than this, in log2 units; 0: always", 0, 12,
        [](const HopperConfig& c) { return c.rescale_threshold; },
        [](HopperConfig& c, int v) { c.rescale_threshold = v; }),
    word_knob<HopperConfig>(
        "q_in_registers", "Q of the first product in registers instead of shared memory", kNoYes,
        [](const HopperConfig& c) { return c.q_in_registers ? 1 : 0; },
        [](HopperConfig& c, int v) { c.q_in_registers = v != 0; }),
    word_knob<HopperConfig>(
        "own_o_memory", "O leaves through memory of its own instead of its Q tile's", kNoYes,
        [](const HopperConfig& c) { return c.own_o_memory ? 1 : 0; },
        [](HopperConfig& c, int v) { c.own_o_memory = v != 0; }),
    word_knob<HopperConfig>(
        "specialised", "1: a warp of its own copies; 0: a thread of a math warp does, while that warp waits", kNoYes,
        [](const HopperConfig& c) { return c.specialised ? 1 : 0; },
        [](HopperConfig& c, int v) { c.specialised = v != 0; }),
    number_knob<HopperConfig>(
        "cluster", "blocks that share K and V, each loading half of them for both", 1, 2,
        [](const HopperConfig& c) { return c.cluster; }, [](HopperConfig& c, int v) { c.cluster = v; }),
    word_knob<HopperConfig>(
        "p_in_shared", "P of the second product in shared memory instead of registers", kNoYes,
        [](const HopperConfig& c) { return c.p_in_shared ? 1 : 0; },
        [](HopperConfig& c, int v) { c.p_in_shared = v != 0; }),
    word_knob<HopperConfig>(
        "scores_in", "what the first product accumulates in; f16 is inaccurate, and never chosen by heed", kWidths,
        [](const HopperConfig& c) { return c.scores_in_f16 ? 1 : 0; },
        [](HopperConfig& c, int v) { c.scores_in_f16 = v != 0; }),
    word_knob<HopperConfig>(
        "sums_in", "what the second product accumulates in; f16 is inaccurate, and never chosen by heed", kWidths,
        [](const HopperConfig& c) { return c.sums_in_f16 ? 1 : 0; },
        [](HopperConfig& c, int v) { c.sums_in_f16 = v != 0; }),
    word_knob<HopperConfig>(
        "bias_route", "a bias of 16 bits is loaded with its block, or copied into shared memory", kBiasRoutes,
        [](const HopperConfig& c) { return static_cast<int>(c.bias_route); },
        [](HopperConfig& c, int v) { c.bias_route = static_cast<BiasRoute>(v); }),
    number_knob<HopperConfig>(
        "bias_stages", "stages of the ring of a warpgroup's bias, where it is copied", 1, kMostStages,
        [](const HopperConfig& c) { return c.bias_stages; }, [](HopperConfig& c, int v) { c.bias_stages = v; }),
    word_knob<HopperConfig>(
        "pack", "query heads of a group share tiles", kNoYes, [](const HopperConfig& c) { return c.pack ? 1 : 0; },
        [](HopperConfig& c, int v) { c.pack = v != 0; }),
};

}  // namespace

std::span<const HopperKnob> KnobsOf<HopperConfig>::all() { return kKnobs; }

bool KnobsOf<HopperConfig>::told(const HopperKnob& knob, const HopperConfig& config) {
  const bool alike = config.k_stages == config.v_stages;
  if (knob.name == "stages") return alike;
  return knob.name != "tile_q" && !(alike && (knob.name == "k_stages" || knob.name == "v_stages"));
}

std::string broken_limit(const HopperConfig& config) {
  const char* const limit = config.impossible();
  if (limit == nullptr) return {};
  const std::string_view text = limit;
  if (text.starts_with("shared memory"))
    return fmt::format("{}; this takes {:.1f} KB", text, config.shared_bytes() / 1024.0);
  if (text.starts_with("registers: O, S"))
    return fmt::format("{}; they take {} of {}", text, config.operand_registers(), config.math_registers());
  return std::string(text);
}

}  // namespace heed::cuda
