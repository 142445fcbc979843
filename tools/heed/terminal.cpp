#include "heed/terminal.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace heed::command {
namespace {

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

}  // namespace

bool is_terminal(std::FILE* stream) { return isatty(fileno(stream)) == 1; }

int columns(std::FILE* stream, int otherwise) {
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return otherwise;
  return size.ws_col;
}

bool shows_unicode() {
  // The first of these that is set decides, as for the C library.
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (!is_set(variable)) continue;
    const std::string_view value = std::getenv(variable);
    return value.find("UTF-8") != value.npos || value.find("utf8") != value.npos || value.find("UTF8") != value.npos;
  }
  return false;
}

Style::Style(std::FILE* stream) {
  const char* term = std::getenv("TERM");
  colour_ = is_terminal(stream) && !is_set("NO_COLOR") && term != nullptr && std::strcmp(term, "dumb") != 0;
}

std::string Style::wrap(const char* code, std::string_view text) const {
  return colour_ ? fmt::format("\033[{}m{}\033[0m", code, text) : std::string(text);
}

Progress::Progress(std::string what, double total)
    : what_(std::move(what)), total_(total), active_(is_terminal(stderr)) {}

Progress::~Progress() { clear(); }

void Progress::show(double done, std::string_view note) {
  if (!active_) return;
  const Clock::time_point now = Clock::now();
  const auto quiet = drawn_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(500);
  if (now - (drawn_ ? last_ : begin_) < quiet) return;
  last_ = now;
  drawn_ = true;

  const double part = total_ > 0 ? std::clamp(done / total_, 0.0, 1.0) : 0.0;
  const double spent = std::chrono::duration<double>(now - begin_).count();
  std::string left;
  if (part > 0.02) left = fmt::format(", {:.0f} s left", std::ceil(spent * (1 - part) / part));
  const std::string text = fmt::format("{:3.0f}%{}{}{}", 100 * part, left, note.empty() ? "" : "  ", note);

  const int room = columns(stderr, 80) - 1;
  const int width = std::clamp(room - static_cast<int>(what_.size() + text.size()) - 4, 0, 40);
  const int full = static_cast<int>(part * width);
  std::string line = fmt::format("{} [{}{}] {}", what_, std::string(static_cast<std::size_t>(full), '='),
                                 std::string(static_cast<std::size_t>(width - full), ' '), text);
  if (static_cast<int>(line.size()) > room) line.resize(static_cast<std::size_t>(std::max(room, 0)));
  fmt::print(stderr, "\r\033[K{}", line);
  std::fflush(stderr);
}

void Progress::clear() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace heed::command
