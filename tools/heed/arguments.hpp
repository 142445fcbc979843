#pragma once

#include "heed/command.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace heed::command {

/// Thrown once the help has been printed.
class HelpShown {};

bool is_help(std::string_view word);

/// " (did you mean 'x'?)" when a candidate is near enough to `text`; empty when none is.
std::string did_you_mean(std::string_view text, const std::vector<std::string>& candidates, std::string_view prefix);

/// What the words give for this key, before any argument is declared and checked; empty where they do not give it.
std::string text_ahead(const Words& words, std::string_view key);

/// The arguments of one subcommand. Every one is written -key=value or --key=value (or --key value where the value does
/// not begin with a dash), may be given once, and is checked: what is not understood is an error, never skipped.
///
///   Arguments arguments("heed fuzz", "random problems ...");
///   arguments.group("What to run");
///   arguments.option("cases", "1000", "how many problems");
///   arguments.parse(words);                             // UsageError, or HelpShown
///   const auto cases = arguments.integer("cases", 1, 1'000'000'000);
class Arguments {
 public:
  Arguments(std::string name, std::string summary);
  ~Arguments();

  /// What follows stands under this title in the help.
  void group(std::string title) { group_ = std::move(title); }
  void option(const std::string& key, const std::string& preset, const std::string& help,
              const std::vector<std::string>& choices = {});
  /// Another name for an option.
  void alias(const std::string& name, const std::string& key) { aliases_[name] = key; }
  void flag(const std::string& key, const std::string& help);
  /// Words without a dash: how many are meant, and how they are called in the usage line.
  void positional(const std::string& usage, std::size_t least, std::size_t most);
  /// Printed below the arguments.
  void footer(const std::string& text);

  void parse(const Words& words);

  bool has(const std::string& key) const { return values_.count(key) > 0; }
  bool given(const std::string& key) const;
  const std::string& text(const std::string& key) const;
  /// Throws UsageError when the text is not a whole number in [least, most].
  std::int64_t integer(const std::string& key, std::int64_t least, std::int64_t most) const;
  double number(const std::string& key, double least, double most) const;
  /// 0, 1, t, f, true, false.
  bool boolean(const std::string& key) const;
  const Words& positionals() const { return positionals_; }
  /// Keys in the order they were declared.
  const std::vector<std::string>& keys() const { return keys_; }
  /// The arguments given, as -key=value, in the order they were given.
  const Words& given_words() const { return given_words_; }

 private:
  struct Value {
    std::string text;
    std::string preset;
    bool is_flag = false, given = false;
    CLI::Option* option = nullptr;
  };
  const Value& value(const std::string& key) const;
  void take(const std::string& word, const std::string& key, const std::string& text);
  [[noreturn]] void unknown(const std::string& word, const std::string& key) const;

  std::string name_, group_ = "Arguments", positional_usage_;
  std::size_t least_positionals_ = 0, most_positionals_ = 0;
  std::unique_ptr<CLI::App> app_;
  std::map<std::string, Value> values_;
  std::map<std::string, std::string> aliases_;
  std::vector<std::string> keys_;
  Words positionals_, given_words_;
};

/// A usage error in the form all of them have: "-key=text : rule".
[[noreturn]] void bad_value(const std::string& key, const std::string& text, const std::string& rule);

}  // namespace heed::command
