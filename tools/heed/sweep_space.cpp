#include "heed/sweep_space.hpp"

#include "cuda/hopper_knobs.hpp"
#include "heed/arguments.hpp"
#include "heed/problem_of.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace heed::command {
namespace {

using kernels::HopperConfig;

/// What is worth trying of each knob. tile_q is warpgroups, k_stages and v_stages are stages, in other words.
const std::map<std::string, std::vector<int>>& all_values() {
  static const std::map<std::string, std::vector<int>> values{
      {"warpgroups", {1, 2, 3, 4}}, {"tile_k", {32, 64, 80, 96, 112, 128, 160, 176}},
      {"stages", {2, 3, 4, 5}},     {"q_buffers", {1, 2}},
      {"turns", {0, 1, 2}},         {"persistence", {0, 1, 2}},
      {"lazy_maximum", {0, 1}},     {"rescale_threshold", {0, 8}},
      {"q_in_registers", {0, 1}},   {"own_o_memory", {0, 1}},
      {"specialised", {0, 1}},      {"cluster", {1, 2}},
      {"p_in_shared", {0, 1}},
  };
  return values;
}
/// Swept where they are named alone: what they compute is inaccurate, and is never chosen.
const std::map<std::string, std::vector<int>>& inaccurate_values() {
  static const std::map<std::string, std::vector<int>> values{{"scores_in", {0, 1}}, {"sums_in", {0, 1}}};
  return values;
}
constexpr std::string_view kUsual = "warpgroups,tile_k,stages,turns,lazy_maximum";

/// The rule, without the figures that broken_limit() puts behind it.
std::string rule_of(const std::string& broken) {
  return broken.substr(0, std::min(broken.find("; this takes"), broken.find("; they take")));
}

class Collector {
 public:
  Collector(const SweepClass& of, const std::shared_ptr<cuda::EngineState>& state)
      : of_(of), state_(state), problem_(problem_of(of.small_problem(), Memory::gpu)) {}

  HopperConfig base() const { return cuda::forced_line(of_.d, of_.d_v, {}).config; }

  /// True: it can be compiled, and was not there before.
  bool add(const HopperConfig& config) {
    const auto algo = cuda::HopperAlgo::of(config);
    if (!known_.insert(algo.to_string()).second) return false;
    const cuda::HopperLine line = cuda::forced_line(of_.d, of_.d_v, algo);
    if (const std::string broken = cuda::broken_limit(cuda::hopper_config(line, problem_)); !broken.empty()) {
      ++found_.broken[rule_of(broken)];
      return false;
    }
    found_.valid.push_back({algo.to_string(), config.inaccurate(), cuda::make_hopper_forward(line, state_)});
    return true;
  }

  SweepCandidates take() { return std::move(found_); }

 private:
  SweepClass of_;
  std::shared_ptr<cuda::EngineState> state_;
  Problem problem_;
  SweepCandidates found_;
  std::set<std::string> known_;
};

void add_all(Collector& collector, HopperConfig config, SweepSpace::const_iterator knob,
             SweepSpace::const_iterator end) {
  if (knob == end) {
    collector.add(config);
    return;
  }
  for (const int value : knob->second) {
    cuda::hopper_knob(knob->first).set(config, value);
    add_all(collector, config, std::next(knob), end);
  }
}

void add_quickly(Collector& collector, const std::vector<HopperConfig>& starts) {
  const auto& values = all_values();
  for (const HopperConfig& start : starts) {
    collector.add(start);
    for (const auto& [name, list] : values) {
      if (name == "warpgroups" || name == "tile_k") continue;
      for (const int value : list) {
        HopperConfig config = start;
        cuda::hopper_knob(name).set(config, value);
        if (name == "rescale_threshold" && value == 0) config.lazy_maximum = false;
        if (name == "specialised" && value == 0) config.turns = kernels::Turns::free;
        if (name == "cluster" && value > 1) config.persistence = kernels::Persistence::fixed;
        collector.add(config);
      }
    }
  }
  for (const int warpgroups : values.at("warpgroups")) {
    for (const int tile_k : values.at("tile_k")) {
      HopperConfig config = starts.front();
      config.warpgroups = warpgroups;
      config.tile_k = tile_k;
      for (config.k_stages = 4; config.k_stages >= 2; --config.k_stages) {
        config.v_stages = config.k_stages;
        if (collector.add(config)) break;
      }
    }
  }
}

/// Those of the shipped record for this class, then the general one.
std::vector<HopperConfig> starting_points(const SweepClass& of, const Collector& collector) {
  std::vector<HopperConfig> starts;
  for (const cuda::TuningEntry& entry : cuda::shipped_tuning().forward)
    if (entry.d == of.d && entry.d_v == of.d_v && entry.causal == of.causal)
      starts.push_back(cuda::HopperAlgo::parse(entry.algo).applied_to(collector.base()));
  starts.push_back(collector.base());
  return starts;
}

}  // namespace

std::string SweepClass::to_string() const {
  return fmt::format("d{}{} {} {}", d, d == d_v ? "" : fmt::format("/{}", d_v), causal ? "causal" : "full", name(type));
}

verify::Case SweepClass::problem(std::int64_t s) const {
  constexpr std::int64_t kColumns = 2048, kRows = 16384;
  verify::Case c;
  c.type = type;
  c.d = d;
  c.d_v = d_v;
  c.h = c.h_k = std::max<std::int64_t>(1, kColumns / d);
  c.b = std::max<std::int64_t>(1, kRows / s);
  c.s_q = c.s_k = {s};
  if (causal) c.mask = Mask::causal();
  return c;
}

verify::Case SweepClass::small_problem() const {
  verify::Case c = problem(777);
  c.b = 2;
  c.h = 4;
  c.h_k = 2;
  c.lse = true;
  return c;
}

SweepSpace sweep_space(const std::string& over) {
  if (over == "all") return all_values();
  SweepSpace space;
  const std::string names = over.empty() ? std::string(kUsual) : over;
  for (std::size_t at = 0; at <= names.size();) {
    const std::size_t end = std::min(names.find(',', at), names.size());
    const std::string name = names.substr(at, end - at);
    auto found = all_values().find(name);
    if (found == all_values().end()) found = inaccurate_values().find(name);
    if (found == inaccurate_values().end()) {
      std::vector<std::string> known;
      for (const auto* values : {&all_values(), &inaccurate_values()})
        for (const auto& [each, list] : *values) known.push_back(each);
      bad_value("over", over,
                fmt::format("'{}' is not a knob that is swept; these are: {}.", name, fmt::join(known, ", ")));
    }
    space.insert(*found);
    at = end + 1;
  }
  return space;
}

SweepCandidates sweep_candidates(const SweepClass& of, const SweepSpace& space, bool quick,
                                 const std::shared_ptr<cuda::EngineState>& state) {
  Collector collector(of, state);
  const std::vector<HopperConfig> starts = starting_points(of, collector);
  if (quick) {
    add_quickly(collector, starts);
    return collector.take();
  }
  for (const HopperConfig& start : starts) collector.add(start);
  add_all(collector, starts.front(), space.begin(), space.end());
  return collector.take();
}

}  // namespace heed::command
