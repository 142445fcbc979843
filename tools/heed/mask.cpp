/// heed mask: draws which keys each query sees.

#include "heed/arguments.hpp"
#include "heed/command.hpp"
#include "heed/terminal.hpp"

#include <heed/mask.hpp>

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>

namespace heed::command {
namespace {

constexpr std::int64_t kLongest = 1'000'000;

/// One line per query row, `1` visible, `.` hidden, nothing else.
void print_plain(const MaskBounds& bounds, std::int64_t s_q, std::int64_t s_k) {
  std::string line;
  for (std::int64_t i = 0; i < s_q; ++i) {
    line.clear();
    for (std::int64_t j = 0; j < s_k; ++j) line.push_back(bounds.visible(i, j) ? '1' : '.');
    line.push_back('\n');
    std::fputs(line.c_str(), stdout);
  }
}

/// How much of the block of rows [i, i_end) and columns [j, j_end) is visible.
enum class Shade { none, some, all };
Shade shade(const MaskBounds& bounds, std::int64_t i, std::int64_t i_end, std::int64_t j, std::int64_t j_end) {
  std::int64_t seen = 0;
  for (std::int64_t row = i; row < i_end; ++row) {
    const auto overlap = [&](std::int64_t begin, std::int64_t end) {
      return std::max<std::int64_t>(std::min(end, j_end) - std::max(begin, j), 0);
    };
    const std::int64_t window = bounds.begin(row), sink = std::min(bounds.sink_end(row), window);
    seen += overlap(window, bounds.end(row)) + overlap(0, sink);
  }
  if (seen == 0) return Shade::none;
  return seen == (i_end - i) * (j_end - j) ? Shade::all : Shade::some;
}

struct Cells {
  std::string none, some, all;
};
Cells cells() {
  const Style style(stdout);
  if (shows_unicode()) return {style.dim("·"), style.cyan("▒"), style.cyan("■")};
  return {style.dim("."), style.cyan("+"), style.cyan("#")};
}

std::string describe(const Mask& mask) {
  const auto end = [](std::int64_t n, const char* side) {
    if (n == Mask::kUnlimited) return fmt::format("any number of keys {}", side);
    return fmt::format("{} key{} {}", n, n == 1 ? "" : "s", side);
  };
  std::string text;
  switch (mask.kind()) {
    case Mask::Kind::none:
      return "no mask: every query sees every key";
    case Mask::Kind::raw:
      return fmt::format("raw coordinates y = {}, x = {}", mask.left(), mask.right());
    case Mask::Kind::top_left:
      text = "aligned to the top-left corner";
      break;
    case Mask::Kind::bottom_right:
      text = "aligned to the bottom-right corner";
      break;
  }
  if (mask.left() == Mask::kUnlimited && mask.right() == 0) {
    text = "causal, " + text;
  } else {
    text =
        fmt::format("window, {}: {}, {} of the diagonal", text, end(mask.left(), "left"), end(mask.right(), "right"));
  }
  if (mask.sink() > 0)
    text += mask.sink() == 1 ? "; the first key stays visible"
                             : fmt::format("; the first {} keys stay visible", mask.sink());
  return text;
}

/// A picture that fits the screen: large masks are drawn in blocks of rows and columns.
void print_picture(const Mask& mask, const MaskBounds& bounds, std::int64_t s_q, std::int64_t s_k) {
  const Style style(stdout);
  fmt::print("{}  {}\n", style.bold("mask " + mask.to_string()), describe(mask));
  fmt::print("s = {} queries (down), s_k = {} keys (across); y = {}, x = {}, sink = {}\n", s_q, s_k, bounds.y, bounds.x,
             bounds.sink);

  const std::int64_t wide = std::clamp<std::int64_t>((columns(stdout) - 16) / 2, 8, 64);
  const std::int64_t step = std::max<std::int64_t>({1, (s_k + wide - 1) / wide, (s_q + wide - 1) / wide});
  if (step > 1) fmt::print("each cell is {0} x {0}\n", step);
  fmt::print("\n");
  const Cells cell = cells();
  const std::size_t digits = std::max<std::size_t>(std::to_string(std::max<std::int64_t>(s_q - 1, 0)).size(), 2);
  for (std::int64_t i = 0; i < s_q; i += step) {
    const std::int64_t i_end = std::min(i + step, s_q);
    std::string line = fmt::format("  {:>{}}  ", i, digits);
    for (std::int64_t j = 0; j < s_k; j += step) {
      switch (shade(bounds, i, i_end, j, std::min(j + step, s_k))) {
        case Shade::none:
          line += cell.none;
          break;
        case Shade::some:
          line += cell.some;
          break;
        case Shade::all:
          line += cell.all;
          break;
      }
      line += ' ';
    }
    std::string count;
    if (step == 1) count = style.dim(fmt::format(" {}", bounds.count(i)));
    fmt::print("{}{}\n", line, count);
  }

  double pairs = 0;
  std::int64_t empty = 0;
  for (std::int64_t i = 0; i < s_q; ++i) {
    pairs += static_cast<double>(bounds.count(i));
    empty += bounds.count(i) == 0;
  }
  const double all = static_cast<double>(s_q) * static_cast<double>(s_k);
  fmt::print("\n{:.0f} of {:.0f} pairs visible ({:.1f}%)", pairs, all, all > 0 ? 100 * pairs / all : 0.0);
  if (empty > 0) fmt::print("; {} row{} no key: O = 0, LSE = -inf", empty, empty == 1 ? " sees" : "s see");
  fmt::print("\n");
}

}  // namespace

int run_mask(const Words& words) {
  Arguments arguments("heed mask", "Draws a mask: which keys (across) each query (down) sees.");
  arguments.positional("<mask>", 1, 1);
  arguments.group("Lengths");
  arguments.option("s", "8", "queries");
  arguments.option("s_k", "-1", "keys; -1: as many as queries");
  arguments.group("Output");
  arguments.flag("plain", "one line per query row, '1' visible, '.' hidden, and nothing else");
  arguments.footer(R"(Masks
  n, 0             none
  t, 1             causal, top-left: the first query sees the first key
  b, 2             causal, bottom-right: the last query sees every key
  t:l,r[,sink]     window of l keys to the left and r to the right of the diagonal (-1: unlimited), both ends
  b:l,r[,sink]     included; the first 'sink' keys stay visible
  xt:w, xb:w       centred window of w keys; w <= 0: causal
  g:y,x            raw coordinates: query i sees keys i - y + 1 <= j < i + x

Examples
  heed mask b -s=2 -s_k=5
  heed mask t:3,0,1 -s=12 --plain
)");
  arguments.parse(words);
  const Mask mask = Mask::parse(arguments.positionals().front());
  const std::int64_t s_q = arguments.integer("s", 0, kLongest);
  const std::int64_t given_k = arguments.integer("s_k", -1, kLongest);
  const std::int64_t s_k = given_k == -1 ? s_q : given_k;
  const MaskBounds bounds = mask.bounds(s_q, s_k);
  if (arguments.boolean("plain")) {
    print_plain(bounds, s_q, s_k);
  } else {
    print_picture(mask, bounds, s_q, s_k);
  }
  return kValid;
}

}  // namespace heed::command
