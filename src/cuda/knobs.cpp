#include "cuda/knobs.hpp"

#include <fmt/format.h>

#include <charconv>

namespace heed::cuda {

std::string KnobText::text(int value) const {
  return words.empty() ? std::to_string(value) : std::string(words[static_cast<std::size_t>(value)]);
}

std::string KnobText::values() const {
  if (words.empty() && numbers.empty()) return fmt::format("{} to {}", least, most);
  std::vector<std::string> list(words.begin(), words.end());
  for (const int number : numbers) list.push_back(text(number));
  return fmt::format("{} or {}", fmt::join(list.begin(), list.end() - 1, ", "), list.back());
}

int KnobText::parse(std::string_view value) const {
  const auto word = std::find(words.begin(), words.end(), value);
  if (word != words.end()) return static_cast<int>(word - words.begin());
  int number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool whole = error == std::errc() && end == value.data() + value.size();
  const bool taken = numbers.empty() ? number >= least && number <= most
                                     : std::find(numbers.begin(), numbers.end(), number) != numbers.end();
  if (!words.empty() || !whole || !taken) throw core::invalid("algo {}:{} : {} takes {}.", name, value, name, values());
  return number;
}

std::vector<std::pair<std::string_view, std::string_view>> split_algo(std::string_view text, std::string_view example) {
  std::vector<std::pair<std::string_view, std::string_view>> list;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    const std::string_view word = text.substr(0, end);
    const std::size_t colon = word.find(':');
    if (colon == word.npos || end + 1 == text.size())
      throw core::invalid("algo {} : knobs are written name:value with commas between, for example {}.", text, example);
    list.emplace_back(word.substr(0, colon), word.substr(colon + 1));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return list;
}

void no_such_knob(std::string_view name, const std::vector<std::string_view>& names) {
  throw core::invalid("algo {} : no such knob; there are {}.", name, fmt::join(names, ", "));
}

}  // namespace heed::cuda
