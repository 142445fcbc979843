#include "verify/arg_reader.hpp"

#include "core/invalid.hpp"
#include "verify/case_args.hpp"
#include "verify/case_text.hpp"

#include <fmt/format.h>

namespace heed::verify {

ArgReader::ArgReader(const std::map<std::string, std::string>& args, Operation operation) {
  for (const CaseKey& key : case_keys(operation)) texts_[std::string(key.name)] = key.preset;
  for (const auto& [given, text] : args) {
    std::string key = given;
    for (const auto& [alias, target] : case_key_aliases())
      if (given == alias) key = target;
    if (!texts_.contains(key)) throw core::invalid("-{}={} : there is no argument '{}'.", given, text, given);
    if (given_.contains(key) && given_[key] != text)
      throw core::invalid("-{}={} : -{} was given too, as '{}'; give one of them.", given, text, key, given_[key]);
    texts_[key] = given_[key] = text;
  }
}

Error ArgReader::bad(const std::string& key, std::string_view rule) const {
  return core::invalid("-{}={} : {}", key, text(key), rule);
}

std::int64_t ArgReader::integer(const std::string& key, std::int64_t least, std::int64_t most) const {
  const auto number = parse_number<std::int64_t>(text(key));
  if (!number) throw bad(key, "a whole number is needed.");
  if (*number < least || *number > most) throw bad(key, fmt::format("must be from {} to {}.", least, most));
  return *number;
}

std::int64_t ArgReader::size_or(const std::string& key, std::int64_t other) const {
  const std::int64_t number = integer(key, -1);
  return number <= 0 ? other : number;
}

std::uint64_t ArgReader::word(const std::string& key) const {
  const auto number = parse_number<std::uint64_t>(text(key));
  if (!number) throw bad(key, "a whole number from 0 to 2^64 - 1 is needed.");
  return *number;
}

double ArgReader::number(const std::string& key) const {
  const auto number = parse_number<double>(text(key));
  if (!number) throw bad(key, "a number is needed.");
  return *number;
}

bool ArgReader::boolean(const std::string& key, std::string_view rule) const {
  const std::string& word = text(key);
  if (word == "1" || word == "t" || word == "true") return true;
  if (word == "0" || word == "f" || word == "false") return false;
  throw bad(key, rule);
}

std::vector<std::int64_t> ArgReader::list(const std::string& key, std::int64_t least) const {
  const auto numbers = parse_list(text(key));
  if (!numbers) throw bad(key, "a whole number, or several with commas, is needed.");
  for (const std::int64_t each : *numbers)
    if (each < least || each > kLargest) throw bad(key, fmt::format("{} is not in {} to {}.", each, least, kLargest));
  return *numbers;
}

}  // namespace heed::verify
