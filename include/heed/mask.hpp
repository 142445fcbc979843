#pragma once

#include <heed/export.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace heed {

/// A mask resolved for one pair of lengths: which keys each query row sees.
///   visible(i, j)  <=>  i - y + 1 <= j < min(i + x, s_k),  or  (j < sink and j < i + x)
struct MaskBounds {
  std::int64_t y = 0;
  std::int64_t x = 0;
  std::int64_t sink = 0;
  std::int64_t s_k = 0;

  /// The window of row i is [begin(i), end(i)); it may be empty.
  constexpr std::int64_t begin(std::int64_t i) const { return std::max<std::int64_t>(i - y + 1, 0); }
  constexpr std::int64_t end(std::int64_t i) const { return std::max<std::int64_t>(std::min(i + x, s_k), 0); }
  /// Sink columns of row i are [0, sink_end(i)); they may overlap the window.
  constexpr std::int64_t sink_end(std::int64_t i) const { return std::max<std::int64_t>(std::min(sink, end(i)), 0); }

  constexpr bool visible(std::int64_t i, std::int64_t j) const {
    return (begin(i) <= j && j < end(i)) || (0 <= j && j < sink_end(i));
  }
  /// How many keys row i sees.
  constexpr std::int64_t count(std::int64_t i) const {
    return std::max<std::int64_t>(end(i) - begin(i), 0) + std::min(sink_end(i), std::min(begin(i), end(i)));
  }
};

/// Which keys a query may see, before the lengths are known. Docs: docs/semantics.md, "Masks".
///
///   Mask::causal()              the last query sees every key (FlashAttention's causal; text "b")
///   Mask::causal_top_left()     the first query sees the first key (SDPA's is_causal; text "t")
///   Mask::window(1024, 0)       the last 1025 keys up to the diagonal, bottom-right aligned (text "b:1024,0")
///   Mask::parse("t:4,0,2")      any text of the contract
class HEED_API Mask {
 public:
  enum class Kind : std::uint8_t { none, top_left, bottom_right, raw };

  static constexpr std::int64_t kUnlimited = -1;

  constexpr Mask() = default;
  static Mask none() { return {}; }
  static Mask causal() { return window(kUnlimited, 0); }
  static Mask causal_top_left() { return window_top_left(kUnlimited, 0); }
  /// Both ends inclusive, relative to the diagonal; negative = unlimited. The first `sink` keys stay visible.
  static Mask window(std::int64_t left, std::int64_t right, std::int64_t sink = 0);
  static Mask window_top_left(std::int64_t left, std::int64_t right, std::int64_t sink = 0);
  /// The coordinates themselves: y rows from the top still see column 0; row 0 sees x columns.
  static Mask raw(std::int64_t y, std::int64_t x);

  /// Reads `0`, `n`, `1`, `t`, `2`, `b`, `t:l,r[,sink]`, `b:l,r[,sink]`, `xt:w`, `xb:w`, `g:y,x`. Throws Error.
  static Mask parse(std::string_view text);
  /// The text that parse() reads back to an equal mask: `n`, `t`, `b`, a window as `t:l,r[,sink]`, or `g:y,x`.
  std::string to_string() const;

  MaskBounds bounds(std::int64_t s_q, std::int64_t s_k) const;
  /// True when no pair of lengths hides anything.
  bool hides_nothing() const;

  Kind kind() const { return kind_; }
  std::int64_t left() const { return left_; }    ///< y for Kind::raw
  std::int64_t right() const { return right_; }  ///< x for Kind::raw
  std::int64_t sink() const { return sink_; }

  friend bool operator==(const Mask&, const Mask&) = default;

 private:
  Kind kind_ = Kind::none;
  std::int64_t left_ = kUnlimited;
  std::int64_t right_ = kUnlimited;
  std::int64_t sink_ = 0;
};

}  // namespace heed
