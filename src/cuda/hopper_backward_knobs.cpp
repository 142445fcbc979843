#include "cuda/hopper_backward_knobs.hpp"

#include <fmt/format.h>

#include <array>

namespace heed::cuda {
namespace {

using kernels::BackwardPipeline;
using Choice = HopperBackwardChoice;
using Narrow = kernels::HopperBackwardConfig;
using Wide = kernels::HopperWideBackwardConfig;

constexpr std::array<std::string_view, 2> kPipelines{"in_step", "ahead"};
constexpr std::array<std::string_view, 2> kSumsOfDq{"added", "owned"};
constexpr std::array<std::string_view, 2> kBiasRoutes{"in_step", "copied"};
constexpr std::array kQueries{32, 48, 64, 96, 128};
constexpr int kMostSection = 1 << 20, kMostParts = 1 << 10;

/// A member of one of the two configurations.
template <auto Member, class Config>
int get(const Choice& choice) {
  const Config* const config = std::get_if<Config>(&choice.config);
  return config == nullptr ? HopperBackwardKnob::kNone : static_cast<int>(config->*Member);
}
template <auto Member, class Config>
void set(Choice& choice, int value) {
  if (Config* const config = std::get_if<Config>(&choice.config))
    config->*Member = static_cast<std::remove_reference_t<decltype(config->*Member)>>(value);
}

/// In this order they are written.
constexpr std::array kKnobs{
    choice_knob<Choice>("tile_q", "d 64 and 128: queries of a block", kQueries, get<&Narrow::tile_q, Narrow>,
                        set<&Narrow::tile_q, Narrow>),
    word_knob<Choice>("pipeline", "d 64 and 128: the warpgroups meet at every block, or S is early and dQ late",
                      kPipelines, get<&Narrow::pipeline, Narrow>, set<&Narrow::pipeline, Narrow>),
    word_knob<Choice>("bias_route",
                      "d 64 and 128: a bias of 16 bits is loaded with its block, or copied into shared memory",
                      kBiasRoutes, get<&Narrow::bias_route, Narrow>, set<&Narrow::bias_route, Narrow>),
    number_knob<Choice>("q_stages", "d 192 and 256: stages of the ring of Q", 1, 2, get<&Wide::q_ring, Wide>,
                        set<&Wide::q_ring, Wide>),
    number_knob<Choice>("o_stages", "d 192 and 256: stages of the ring of dO", 1, 2, get<&Wide::o_ring, Wide>,
                        set<&Wide::o_ring, Wide>),
    word_knob<Choice>("dq", "d 192 and 256: added up in memory by tiles of keys, or by owners of its rows", kSumsOfDq,
                      get<&Wide::owned_dq, Wide>, set<&Wide::owned_dq, Wide>),
    number_knob<Choice>(
        "section", "tiles of keys in flight together, as whole heads; 0: by a rule", 0, kMostSection,
        [](const Choice& c) { return c.section; }, [](Choice& c, int v) { c.section = v; }),
    number_knob<Choice>(
        "parts", "that the query heads of a group are divided into; 0: by a rule", 0, kMostParts,
        [](const Choice& c) { return c.parts; }, [](Choice& c, int v) { c.parts = v; }),
};

}  // namespace

std::span<const HopperBackwardKnob> KnobsOf<Choice>::all() { return kKnobs; }

std::string broken_limit(const Choice& choice) {
  return std::visit(
      [&](const auto& config) -> std::string {
        if (choice.section > 0 && config.features.own_lengths)
          return "section: sequences of their own lengths are taken one after the other";
        const char* const limit = config.impossible();
        if (limit == nullptr) return {};
        const std::string_view text = limit;
        if (text.starts_with("shared memory"))
          return fmt::format("{}; this takes {:.1f} KB", text, config.shared_bytes() / 1024.0);
        return std::string(text);
      },
      choice.config);
}

std::string foreign_knob(const Choice& choice, const HopperBackwardAlgo& algo) {
  for (const HopperBackwardAlgo::Setting& each : algo.settings()) {
    if (each.knob->get(choice) != HopperBackwardKnob::kNone) continue;
    std::vector<std::string_view> own;
    for (const HopperBackwardKnob& knob : kKnobs)
      if (knob.get(choice) != HopperBackwardKnob::kNone) own.push_back(knob.name);
    return fmt::format("{} is no knob of the backward kernels for d = {}; those have {}", each.knob->name, choice.d(),
                       fmt::join(own, ", "));
  }
  return {};
}

}  // namespace heed::cuda
