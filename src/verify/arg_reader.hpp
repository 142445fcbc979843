#pragma once

#include <heed/error.hpp>
#include <heed/problem.hpp>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heed::verify {

/// The texts of -key=value arguments, with presets for those left out, as numbers, words and lists. Every function that
/// cannot read a text throws bad().
class ArgReader {
 public:
  static constexpr std::int64_t kLargest = std::int64_t{1} << 40;

  /// Throws for keys that are not among case_keys() and its aliases, and for a key given twice with two texts.
  ArgReader(const std::map<std::string, std::string>& args, Operation operation);

  bool given(const std::string& key) const { return given_.contains(key); }
  const std::string& text(const std::string& key) const { return texts_.at(key); }

  /// The error that says what was passed and the rule.
  Error bad(const std::string& key, std::string_view rule) const;

  std::int64_t integer(const std::string& key, std::int64_t least, std::int64_t most = kLargest) const;
  /// A size for which each of -1 and 0 means "as another".
  std::int64_t size_or(const std::string& key, std::int64_t other) const;
  std::uint64_t word(const std::string& key) const;
  double number(const std::string& key) const;
  bool boolean(const std::string& key, std::string_view rule = "takes 0 or 1.") const;
  std::vector<std::int64_t> list(const std::string& key, std::int64_t least) const;

  /// The value whose name is the text.
  template <class Value>
  Value choice(const std::string& key, std::initializer_list<std::pair<std::string_view, Value>> choices) const {
    std::string names;
    for (const auto& [its_name, value] : choices) {
      if (text(key) == its_name) return value;
      if (!names.empty()) names += ", ";
      names += its_name;
    }
    throw bad(key, "takes one of " + names + ".");
  }

 private:
  std::map<std::string, std::string> texts_, given_;
};

}  // namespace heed::verify
