#include <heed/mask.hpp>

#include "core/invalid.hpp"

#include <array>
#include <charconv>
#include <cstddef>

namespace heed {
namespace {

/// Longer than any sequence, and short enough that sums and differences of a few such values never overflow.
constexpr std::int64_t kMaxDistance = std::int64_t{1} << 40;

void check_distance(std::string_view what, std::int64_t value) {
  if (value > kMaxDistance || value < -kMaxDistance)
    throw core::invalid("mask: {} = {} is out of range: at most 2^40 = {} either way.", what, value, kMaxDistance);
}

std::int64_t window_end(std::string_view what, std::int64_t value) {
  if (value < 0) return Mask::kUnlimited;
  check_distance(what, value);
  return value;
}

std::int64_t sink_keys(std::int64_t value) {
  if (value < 0) throw core::invalid("mask: sink = {} keys: the number of sink keys is 0 or more.", value);
  check_distance("sink", value);
  return value;
}

// ---- reading ----

struct Numbers {
  std::array<std::int64_t, 3> values{};
  int count = 0;  ///< more than 3 numbers are counted, not kept
};

/// Whole numbers separated by commas; "" is no number.
Numbers read_numbers(std::string_view text, std::string_view list) {
  Numbers numbers;
  if (list.empty()) return numbers;
  while (true) {
    const std::size_t comma = list.find(',');
    const std::string_view item = list.substr(0, comma);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), value);
    if (error == std::errc::result_out_of_range)
      throw core::invalid("mask '{}': {} is out of range: at most 2^40 = {} either way.", text, item, kMaxDistance);
    if (error != std::errc{} || end != item.data() + item.size())
      throw core::invalid("mask '{}': '{}' is not a whole number (for example 4, 0 or -1).", text, item);
    if (numbers.count < 3) numbers.values[static_cast<std::size_t>(numbers.count)] = value;
    ++numbers.count;
    if (comma == std::string_view::npos) return numbers;
    list.remove_prefix(comma + 1);
  }
}

Mask make_window(char corner, std::int64_t left, std::int64_t right, std::int64_t sink) {
  return corner == 't' ? Mask::window_top_left(left, right, sink) : Mask::window(left, right, sink);
}

Mask read_window(std::string_view text, char corner, const Numbers& numbers) {
  if (numbers.count != 2 && numbers.count != 3)
    throw core::invalid(
        "mask '{}': a window takes two numbers, '{}:left,right' (for example {}:{},0), or three with sink tokens.",
        text, corner, corner, numbers.count == 1 ? numbers.values[0] : 4);
  return make_window(corner, numbers.values[0], numbers.values[1], numbers.count == 3 ? numbers.values[2] : 0);
}

Mask read_centred_window(std::string_view text, char corner, const Numbers& numbers) {
  if (numbers.count != 1)
    throw core::invalid(
        "mask '{}': a centred window takes one number, 'x{}:width' (for example x{}:5); 0 or less means causal.", text,
        corner, corner);
  const std::int64_t width = numbers.values[0];
  if (width <= 0) return make_window(corner, Mask::kUnlimited, 0, 0);
  return make_window(corner, width / 2, width - 1 - width / 2, 0);
}

Mask read_raw(std::string_view text, const Numbers& numbers) {
  if (numbers.count != 2)
    throw core::invalid("mask '{}': raw coordinates are two numbers, 'g:y,x' (for example g:3,2).", text);
  return Mask::raw(numbers.values[0], numbers.values[1]);
}

}  // namespace

Mask Mask::window(std::int64_t left, std::int64_t right, std::int64_t sink) {
  Mask mask;
  mask.kind_ = Kind::bottom_right;
  mask.left_ = window_end("left", left);
  mask.right_ = window_end("right", right);
  mask.sink_ = sink_keys(sink);
  return mask;
}

Mask Mask::window_top_left(std::int64_t left, std::int64_t right, std::int64_t sink) {
  Mask mask = window(left, right, sink);
  mask.kind_ = Kind::top_left;
  return mask;
}

Mask Mask::raw(std::int64_t y, std::int64_t x) {
  check_distance("y", y);
  check_distance("x", x);
  Mask mask;
  mask.kind_ = Kind::raw;
  mask.left_ = y;
  mask.right_ = x;
  return mask;
}

Mask Mask::parse(std::string_view text) {
  if (text == "0" || text == "n") return none();
  if (text == "1" || text == "t") return causal_top_left();
  if (text == "2" || text == "b") return causal();

  const std::size_t colon = text.find(':');
  if (colon != std::string_view::npos) {
    const std::string_view head = text.substr(0, colon);
    const std::string_view list = text.substr(colon + 1);
    if (head == "t" || head == "b") return read_window(text, head[0], read_numbers(text, list));
    if (head == "xt" || head == "xb") return read_centred_window(text, head[1], read_numbers(text, list));
    if (head == "g") return read_raw(text, read_numbers(text, list));
  }
  throw core::invalid(
      "mask '{}' is not known: a mask is n or 0 (none), t or 1 (causal, top-left), b or 2 (causal, bottom-right), a "
      "window t:left,right[,sink] or b:left,right[,sink], a centred window xt:width or xb:width, or g:y,x.",
      text);
}

std::string Mask::to_string() const {
  if (kind_ == Kind::none) return "n";
  if (kind_ == Kind::raw) return fmt::format("g:{},{}", left_, right_);
  const char corner = kind_ == Kind::top_left ? 't' : 'b';
  if (left_ == kUnlimited && right_ == 0 && sink_ == 0) return {corner};
  if (sink_ == 0) return fmt::format("{}:{},{}", corner, left_, right_);
  return fmt::format("{}:{},{},{}", corner, left_, right_, sink_);
}

MaskBounds Mask::bounds(std::int64_t s_q, std::int64_t s_k) const {
  // Unlimited: the last row still sees column 0, the first row sees every column.
  MaskBounds bounds{.y = s_q, .x = s_k, .sink = sink_, .s_k = s_k};
  if (kind_ == Kind::none) return bounds;
  if (kind_ == Kind::raw) {
    bounds.y = left_;
    bounds.x = right_;
    return bounds;
  }
  const std::int64_t shift = kind_ == Kind::bottom_right ? s_k - s_q : 0;
  if (left_ != kUnlimited) bounds.y = 1 + left_ - shift;
  if (right_ != kUnlimited) bounds.x = 1 + right_ + shift;
  return bounds;
}

bool Mask::hides_nothing() const {
  if (kind_ == Kind::none) return true;
  return kind_ != Kind::raw && left_ == kUnlimited && right_ == kUnlimited;
}

}  // namespace heed
