#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace heed::command {

/// Colours where there is a terminal to show them, nothing where there is none, or where NO_COLOR is set.
class Style {
 public:
  explicit Style(std::FILE* stream);

  std::string bold(std::string_view text) const { return wrap("1", text); }
  std::string dim(std::string_view text) const { return wrap("2", text); }
  std::string red(std::string_view text) const { return wrap("1;31", text); }
  std::string green(std::string_view text) const { return wrap("32", text); }
  std::string cyan(std::string_view text) const { return wrap("36", text); }

 private:
  std::string wrap(const char* code, std::string_view text) const;

  bool colour_;
};

bool is_terminal(std::FILE* stream);
/// Columns of the terminal behind `stream`; `otherwise` where there is none.
int columns(std::FILE* stream, int otherwise = 100);
/// True where the locale of the environment can show block characters.
bool shows_unicode();

/// A bar on stderr while long work goes on; nothing where stderr is not a terminal. It appears after half a second and
/// leaves no trace.
class Progress {
 public:
  Progress(std::string what, double total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` of `total`; `note` stands behind the bar.
  void show(double done, std::string_view note = {});
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  double total_;
  bool active_;
  bool drawn_ = false;
  Clock::time_point begin_ = Clock::now(), last_ = begin_;
};

}  // namespace heed::command
