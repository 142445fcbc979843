#include "heed/sweep_space.hpp"

#include "cuda/hopper_backward.hpp"
#include "cuda/hopper_forward.hpp"
#include "heed/arguments.hpp"
#include "heed/problem_of.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace heed::command {
namespace {

/// What is worth trying of each knob. Forward, tile_q is warpgroups, k_stages and v_stages are stages, in other words.
const SweepSpace& all_values(Operation operation) {
  static const SweepSpace forward{
      {"warpgroups", {1, 2, 3, 4}}, {"tile_k", {32, 64, 80, 96, 112, 128, 160, 176}},
      {"stages", {2, 3, 4, 5}},     {"q_buffers", {1, 2}},
      {"turns", {0, 1, 2}},         {"persistence", {0, 1, 2}},
      {"lazy_maximum", {0, 1}},     {"rescale_threshold", {0, 8}},
      {"q_in_registers", {0, 1}},   {"own_o_memory", {0, 1}},
      {"specialised", {0, 1}},      {"cluster", {1, 2}},
      {"p_in_shared", {0, 1}},
  };
  static const SweepSpace backward{
      {"tile_q", {32, 48, 64, 96, 128}},
      {"pipeline", {0, 1}},
      {"q_stages", {1, 2}},
      {"o_stages", {1, 2}},
      {"dq", {0, 1}},
      {"section", {0, 132, 264, 400, 700, 1056, 2112, 4224}},
  };
  return operation == Operation::forward ? forward : backward;
}
/// Swept where they are named alone: what they compute is inaccurate, and is never chosen.
const SweepSpace& inaccurate_values(Operation operation) {
  static const SweepSpace forward{{"scores_in", {0, 1}}, {"sums_in", {0, 1}}}, backward;
  return operation == Operation::forward ? forward : backward;
}
std::string usual(Operation operation) {
  return operation == Operation::forward ? "warpgroups,tile_k,stages,turns,lazy_maximum" : "all";
}

/// The rule, without the figures that broken_limit() puts behind it.
std::string rule_of(const std::string& broken) {
  return broken.substr(0, std::min(broken.find("; this takes"), broken.find("; they take")));
}

/// What the enumeration has to know of a pass.
struct Forward {
  using Config = kernels::HopperConfig;
  using Line = cuda::HopperLine;
  static Line line(const SweepClass& of, const cuda::HopperAlgo& algo) { return cuda::forced_line(of.d, of.d_v, algo); }
  static Config config(const Line& line) { return line.config; }
  static std::string broken(const Line& line, const Problem& problem) {
    return cuda::broken_limit(cuda::hopper_config(line, problem));
  }
  static std::shared_ptr<const dispatch::AttentionKernel> kernel(const Line& line,
                                                                 const std::shared_ptr<cuda::EngineState>& state) {
    return cuda::make_hopper_forward(line, state);
  }
  static bool inaccurate(const Config& config) { return config.inaccurate(); }
};
struct Backward {
  using Config = cuda::HopperBackwardChoice;
  using Line = cuda::HopperBackwardLine;
  static Line line(const SweepClass& of, const cuda::HopperBackwardAlgo& algo) {
    return cuda::forced_backward_line(of.d, of.d_v, algo);
  }
  static Config config(const Line& line) { return line.choice; }
  static std::string broken(const Line& line, const Problem& problem) { return cuda::broken_limit(line, problem); }
  static std::shared_ptr<const dispatch::AttentionKernel> kernel(const Line& line,
                                                                 const std::shared_ptr<cuda::EngineState>& state) {
    return cuda::make_hopper_backward(line, state);
  }
  static bool inaccurate(const Config&) { return false; }
};

template <class Pass>
class Collector {
 public:
  using Config = typename Pass::Config;

  Collector(const SweepClass& of, const std::shared_ptr<cuda::EngineState>& state)
      : of_(of), state_(state), problem_(problem_of(of.small_problem(), Memory::gpu)) {}

  /// Those of the shipped record for this class, then the general one.
  std::vector<Config> starting_points() const {
    const Config base = Pass::config(Pass::line(of_, {}));
    std::vector<Config> starts;
    for (const cuda::TuningEntry& entry : cuda::shipped_tuning().of(of_.operation))
      if (entry.d == of_.d && entry.d_v == of_.d_v && entry.causal == of_.causal)
        starts.push_back(cuda::Algo<Config>::parse(entry.algo).applied_to(base));
    starts.push_back(base);
    return starts;
  }

  /// True: it can be compiled, and was not there before.
  bool add(const Config& config) {
    const auto algo = cuda::Algo<Config>::of(config);
    if (!known_.insert(algo.to_string()).second) return false;
    const auto line = Pass::line(of_, algo);
    if (const std::string broken = Pass::broken(line, problem_); !broken.empty()) {
      ++found_.broken[rule_of(broken)];
      return false;
    }
    found_.valid.push_back({algo.to_string(), Pass::inaccurate(config), Pass::kernel(line, state_)});
    return true;
  }

  /// Every combination of these knobs.
  void add_all(Config config, SweepSpace::const_iterator knob, SweepSpace::const_iterator end) {
    if (knob == end) {
      add(config);
      return;
    }
    for (const int value : knob->second) {
      cuda::knob_of<Config>(knob->first).set(config, value);
      add_all(config, std::next(knob), end);
    }
  }

  SweepCandidates take() { return std::move(found_); }

 private:
  SweepClass of_;
  std::shared_ptr<cuda::EngineState> state_;
  Problem problem_;
  SweepCandidates found_;
  std::set<std::string> known_;
};

void add_quickly(Collector<Forward>& collector, const std::vector<kernels::HopperConfig>& starts) {
  using kernels::HopperConfig;
  const SweepSpace& values = all_values(Operation::forward);
  for (const HopperConfig& start : starts) {
    collector.add(start);
    for (const auto& [name, list] : values) {
      if (name == "warpgroups" || name == "tile_k") continue;
      for (const int value : list) {
        HopperConfig config = start;
        cuda::knob_of<HopperConfig>(name).set(config, value);
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

/// The section decides nothing about the kernel: every kernel by the rule, and every section with the first one.
void add_quickly(Collector<Backward>& collector, const std::vector<cuda::HopperBackwardChoice>& starts) {
  SweepSpace kernels = all_values(Operation::backward), sections;
  sections.insert(kernels.extract("section"));
  for (const cuda::HopperBackwardChoice& start : starts) {
    collector.add(start);
    collector.add_all(start, sections.begin(), sections.end());
  }
  collector.add_all(starts.front(), kernels.begin(), kernels.end());
}

template <class Pass>
SweepCandidates candidates(const SweepClass& of, const SweepSpace& space, bool quick,
                           const std::shared_ptr<cuda::EngineState>& state) {
  Collector<Pass> collector(of, state);
  const auto starts = collector.starting_points();
  if (quick) {
    add_quickly(collector, starts);
    return collector.take();
  }
  for (const auto& start : starts) collector.add(start);
  collector.add_all(starts.front(), space.begin(), space.end());
  return collector.take();
}

}  // namespace

std::string SweepClass::to_string() const {
  return fmt::format("{}d{}{} {} {}", operation == Operation::backward ? "bwd " : "", d,
                     d == d_v ? "" : fmt::format("/{}", d_v), causal ? "causal" : "full", name(type));
}

verify::Case SweepClass::problem(std::int64_t s) const {
  constexpr std::int64_t kColumns = 2048, kRows = 16384;
  verify::Case c;
  c.operation = operation;
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
  // The oracle of a backward pass takes longer, and there is one for each candidate.
  verify::Case c = problem(operation == Operation::forward ? 777 : 389);
  c.b = 2;
  c.h = 4;
  c.h_k = 2;
  c.lse = true;
  return c;
}

SweepSpace sweep_space(Operation operation, const std::string& over) {
  const std::string names = over.empty() ? usual(operation) : over;
  if (names == "all") return all_values(operation);
  SweepSpace space;
  for (std::size_t at = 0; at <= names.size();) {
    const std::size_t end = std::min(names.find(',', at), names.size());
    const std::string name = names.substr(at, end - at);
    std::vector<std::string> known;
    for (const SweepSpace* values : {&all_values(operation), &inaccurate_values(operation)})
      for (const auto& [each, list] : *values) {
        known.push_back(each);
        if (each == name) space[each] = list;
      }
    if (!space.contains(name))
      bad_value("over", over,
                fmt::format("'{}' is not a knob that is swept; these are: {}.", name, fmt::join(known, ", ")));
    at = end + 1;
  }
  return space;
}

void check_tile(const SweepClass& of) {
  if (of.operation == Operation::forward) {
    Forward::line(of, {});
  } else {
    Backward::line(of, {});
  }
}

SweepCandidates sweep_candidates(const SweepClass& of, const SweepSpace& space, bool quick,
                                 const std::shared_ptr<cuda::EngineState>& state) {
  return of.operation == Operation::forward ? candidates<Forward>(of, space, quick, state)
                                            : candidates<Backward>(of, space, quick, state);
}

}  // namespace heed::command
