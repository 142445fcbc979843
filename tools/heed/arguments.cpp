#include "heed/arguments.hpp"

#include "heed/terminal.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <numeric>
#include <optional>

namespace heed::command {
namespace {

/// CLI11's help, with arguments as they are written here: "-key=default   what it means".
class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(24); }
  std::string make_option_name(const CLI::Option* option, bool) const override {
    const bool takes_value = option->get_expected_max() > 0 && option->get_type_size() > 0;
    const std::string& key = option->get_lnames().front();
    return takes_value ? fmt::format("-{}={}", key, option->get_default_str()) : "--" + key;
  }
  std::string make_option_opts(const CLI::Option*) const override { return {}; }
  std::string make_usage(const CLI::App*, std::string name) const override {
    return fmt::format("\nusage: {}\n\n", name.substr(0, name.find_last_not_of(' ') + 1));
  }
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    std::string text = Style(stdout).bold(group) + "\n";
    for (const CLI::Option* option : options) text += make_option(option, is_positional);
    return text;
  }
};

/// Levenshtein's distance: letters to change, add or remove.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

/// One argument as it is written: -key=value, -key value, -flag.
struct Written {
  std::string key;
  std::optional<std::string> value;  ///< behind the equals sign
  std::optional<std::string> next;   ///< the word behind it, where that may be the value
};

bool is_argument(const std::string& word) { return word.size() >= 2 && word[0] == '-'; }

Written written_at(const Words& words, std::size_t i) {
  const std::string& word = words[i];
  const std::size_t dashes = word.starts_with("--") ? 2 : 1;
  const std::size_t equals = word.find('=');
  if (equals != word.npos) return {word.substr(dashes, equals - dashes), word.substr(equals + 1), {}};
  const bool behind = i + 1 < words.size() && (words[i + 1].empty() || words[i + 1][0] != '-');
  return {word.substr(dashes), {}, behind ? std::optional(words[i + 1]) : std::nullopt};
}

template <class Number>
bool parse_whole(const std::string& text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

}  // namespace

bool is_help(std::string_view word) { return word == "--help" || word == "-help" || word == "-?" || word == "--?"; }

std::string did_you_mean(std::string_view text, const std::vector<std::string>& candidates, std::string_view prefix) {
  std::string best;
  std::size_t least = std::max<std::size_t>(1, text.size() / 2) + 1;
  for (const std::string& each : candidates) {
    const std::size_t d = distance(text, each);
    // A letter forgotten is likelier than one too many.
    if (d < least || (d == least && each.size() > best.size() && !best.empty())) {
      least = d;
      best = each;
    }
  }
  // Else the first that contains it: "softcap" for logits_soft_cap.
  const auto plain = [](std::string_view from) {
    std::string letters;
    std::copy_if(from.begin(), from.end(), std::back_inserter(letters), [](char c) { return c != '_'; });
    return letters;
  };
  for (const std::string& each : candidates)
    if (best.empty() && text.size() > 2 && plain(each).find(plain(text)) != std::string::npos) best = each;
  return best.empty() ? "" : fmt::format(" (did you mean '{}{}'?)", prefix, best);
}

void bad_value(const std::string& key, const std::string& text, const std::string& rule) {
  throw UsageError(fmt::format("-{}={} : {}", key, text, rule));
}

std::string text_ahead(const Words& words, std::string_view key) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!is_argument(words[i])) continue;
    const Written written = written_at(words, i);
    if (written.key == key) return written.value.value_or(written.next.value_or(""));
  }
  return {};
}

Arguments::Arguments(std::string name, std::string summary)
    : name_(std::move(name)), app_(std::make_unique<CLI::App>(std::move(summary))) {
  app_->set_help_flag();
  app_->formatter(std::make_shared<HelpFormatter>());
}

Arguments::~Arguments() = default;

void Arguments::option(const std::string& key, const std::string& preset, const std::string& help,
                       const std::vector<std::string>& choices) {
  Value& value = values_[key];
  value.text = value.preset = preset;
  value.option = app_->add_option("--" + key, value.text, help)->group(group_)->default_str(preset);
  if (!choices.empty()) {
    const auto rule = [choices](const std::string& text) {
      return std::find(choices.begin(), choices.end(), text) != choices.end()
                 ? std::string()
                 : fmt::format("takes one of {}.", fmt::join(choices, ", "));
    };
    value.option->check(rule);
  }
  keys_.push_back(key);
}

void Arguments::flag(const std::string& key, const std::string& help) {
  Value& value = values_[key];
  value.is_flag = true;
  value.text = value.preset = "0";
  value.option = app_->add_flag("--" + key, help)->group(group_);
  keys_.push_back(key);
}

void Arguments::positional(const std::string& usage, std::size_t least, std::size_t most) {
  positional_usage_ = usage;
  least_positionals_ = least;
  most_positionals_ = most;
}

void Arguments::footer(const std::string& text) { app_->footer(text); }

void Arguments::unknown(const std::string& word, const std::string& key) const {
  std::vector<std::string> names = keys_;
  for (const auto& [name, target] : aliases_) names.push_back(name);
  throw UsageError(fmt::format("{} : {} has no argument '{}'{}; '{} --help' lists them.", word, name_, key,
                               did_you_mean(key, names, "-"), name_));
}

void Arguments::take(const std::string& word, const std::string& key, const std::string& text) {
  Value& value = values_.at(key);
  if (value.given)
    throw UsageError(fmt::format("{} : -{} was given before, as '{}'; give it once.", word, key, value.text));
  value.given = true;
  if (value.is_flag) {
    value.text = text;
    boolean(key);
    given_words_.push_back(fmt::format("--{}={}", key, text));
    return;
  }
  if (text.empty() && !value.preset.empty())
    throw UsageError(fmt::format("{} : the value is missing; for example -{}={}.", word, key, value.preset));
  value.text = text;
  given_words_.push_back(fmt::format("-{}={}", key, text));
}

void Arguments::parse(const Words& words) {
  if (std::any_of(words.begin(), words.end(), is_help)) {
    const std::string usage =
        fmt::format("{}{}{} [-key=value ...]", name_, positional_usage_.empty() ? "" : " ", positional_usage_);
    fmt::print("{}", app_->help(usage));
    throw HelpShown();
  }
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!is_argument(word)) {
      positionals_.push_back(word);
      if (positionals_.size() > most_positionals_)
        throw UsageError(fmt::format("'{}' : {} writes its arguments -key=value{}.", word, name_,
                                     did_you_mean(word.substr(0, word.find('=')), keys_, "-")));
      continue;
    }
    auto [key, value, next] = written_at(words, i);
    if (const auto found = aliases_.find(key); found != aliases_.end()) key = found->second;
    const auto found = values_.find(key);
    if (found == values_.end()) unknown(word, key);
    if (value) {
      take(word, key, *value);
    } else if (found->second.is_flag) {
      take(word, key, "1");
    } else if (next) {
      take(word + " " + *next, key, *next);
      ++i;
    } else {
      throw UsageError(fmt::format("{} : the value is missing; for example -{}={}.", word, key, found->second.preset));
    }
  }
  if (positionals_.size() < least_positionals_)
    throw UsageError(fmt::format("{0} needs {1}; '{0} --help' shows how.", name_, positional_usage_));

  // CLI11 takes the values and checks those that have choices. It reads its vector from the back.
  Words reversed;
  for (const auto& [key, value] : values_)
    if (value.given && !value.is_flag && !value.text.empty())
      reversed.push_back(fmt::format("--{}={}", key, value.text));
  try {
    app_->parse(reversed);
  } catch (const CLI::ParseError& error) {
    const std::string text = error.what();  // "--key: rule"
    const std::size_t colon = text.find(": ");
    const auto found = colon == text.npos ? values_.end() : values_.find(text.substr(2, colon - 2));
    if (found == values_.end()) throw UsageError(text);
    bad_value(found->first, found->second.text, text.substr(colon + 2));
  }
}

const Arguments::Value& Arguments::value(const std::string& key) const { return values_.at(key); }
bool Arguments::given(const std::string& key) const { return value(key).given; }
const std::string& Arguments::text(const std::string& key) const { return value(key).text; }

std::int64_t Arguments::integer(const std::string& key, std::int64_t least, std::int64_t most) const {
  std::int64_t number = 0;
  if (!parse_whole(text(key), number)) bad_value(key, text(key), "a whole number is needed.");
  if (number < least || number > most) bad_value(key, text(key), fmt::format("must be from {} to {}.", least, most));
  return number;
}

double Arguments::number(const std::string& key, double least, double most) const {
  double number = 0;
  if (!parse_whole(text(key), number)) bad_value(key, text(key), "a number is needed.");
  if (!(number >= least && number <= most))
    bad_value(key, text(key), fmt::format("must be from {} to {}.", least, most));
  return number;
}

bool Arguments::boolean(const std::string& key) const {
  const std::string& word = text(key);
  if (word == "1" || word == "t" || word == "true") return true;
  if (word == "0" || word == "f" || word == "false") return false;
  bad_value(key, word, "takes 0 or 1.");
}

}  // namespace heed::command
