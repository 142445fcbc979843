#pragma once

#include "core/invalid.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heed::cuda {

/// How a knob is written: "stages:3", "turns:products". Every value is a number; those with names are numbered from 0.
struct KnobText {
  std::string_view name;
  std::string_view help;
  std::span<const std::string_view> words;  ///< names of the values; empty: numbers from `least` to `most`
  std::span<const int> numbers;             ///< those that it takes; empty: all
  int least, most;

  std::string text(int value) const;
  std::string values() const;  ///< "free, products or softmax"; "64, 128 or 192"; "1 to 4"
  /// Throws Error when it is none of them.
  int parse(std::string_view value) const;
};

/// A knob of kernels that compute as a Config says.
template <class Config>
struct Knob : KnobText {
  static constexpr int kNone = -1;
  int (*get)(const Config& config);  ///< kNone: kernels like this one do not have it
  void (*set)(Config& config, int value);
};

template <class Config>
constexpr Knob<Config> number_knob(std::string_view name, std::string_view help, int least, int most,
                                   int (*get)(const Config&), void (*set)(Config&, int)) {
  return {{name, help, {}, {}, least, most}, get, set};
}
template <class Config>
constexpr Knob<Config> choice_knob(std::string_view name, std::string_view help, std::span<const int> numbers,
                                   int (*get)(const Config&), void (*set)(Config&, int)) {
  return {{name, help, {}, numbers, numbers.front(), numbers.back()}, get, set};
}
template <class Config>
constexpr Knob<Config> word_knob(std::string_view name, std::string_view help, std::span<const std::string_view> words,
                                 int (*get)(const Config&), void (*set)(Config&, int)) {
  return {{name, help, words, {}, 0, static_cast<int>(words.size()) - 1}, get, set};
}

/// Those of a Config, in the order they are written, and two of them as an example. Specialised beside each Config.
template <class Config>
struct KnobsOf;

/// "stages:3,tile_k:128" -> names and values. Throws Error with the example.
std::vector<std::pair<std::string_view, std::string_view>> split_algo(std::string_view text, std::string_view example);
/// Throws Error with the names of those that there are.
[[noreturn]] void no_such_knob(std::string_view name, const std::vector<std::string_view>& names);

/// Throws Error when there is none of this name.
template <class Config>
const Knob<Config>& knob_of(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Knob<Config>& each : KnobsOf<Config>::all()) {
    if (each.name == name) return each;
    names.push_back(each.name);
  }
  no_such_knob(name, names);
}

/// Some knobs with their values: what a caller, a sweep or a tuning record says of an algorithm.
template <class Config>
class Algo {
 public:
  struct Setting {
    const Knob<Config>* knob;
    int value;
  };

  Algo() = default;
  /// "stages:3,tile_k:128". Throws Error: an unknown knob, a value it does not take, a knob given twice.
  static Algo parse(std::string_view text) {
    Algo algo;
    for (const auto& [name, value] : split_algo(text, KnobsOf<Config>::kExample)) {
      const Knob<Config>& knob = knob_of<Config>(name);
      if (algo.has(name)) throw core::invalid("algo {}:{} : {} is given twice.", name, value, name);
      algo.set(knob, knob.parse(value));
    }
    const Config applied = algo.applied_to({});
    for (const Setting& each : algo.settings_)
      if (const int now = each.knob->get(applied); now != Knob<Config>::kNone && now != each.value)
        throw core::invalid("algo {} : {}:{} contradicts what stands behind it.", algo.to_string(), each.knob->name,
                            each.knob->text(each.value));
    return algo;
  }
  /// Every knob of a configuration.
  static Algo of(const Config& config) {
    Algo algo;
    for (const Knob<Config>& knob : KnobsOf<Config>::all())
      if (const int value = knob.get(config); value != Knob<Config>::kNone && KnobsOf<Config>::told(knob, config))
        algo.set(knob, value);
    return algo;
  }

  Algo& set(const Knob<Config>& knob, int value) {
    settings_.push_back({&knob, value});
    return *this;
  }
  bool empty() const { return settings_.empty(); }
  bool has(std::string_view knob) const {
    return std::any_of(settings_.begin(), settings_.end(),
                       [&](const Setting& each) { return each.knob->name == knob; });
  }
  std::span<const Setting> settings() const { return settings_; }
  /// The configuration with these knobs turned, in the order they were given.
  Config applied_to(Config config) const {
    for (const Setting& each : settings_) each.knob->set(config, each.value);
    return config;
  }
  std::string to_string() const {
    std::string text;
    for (const Setting& each : settings_) {
      if (!text.empty()) text += ',';
      text.append(each.knob->name).append(":").append(each.knob->text(each.value));
    }
    return text;
  }

 private:
  std::vector<Setting> settings_;
};

}  // namespace heed::cuda
