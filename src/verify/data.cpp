#include "verify/data.hpp"

#include "verify/random.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numbers>

namespace heed::verify {
namespace {

/// Which tensor a random number is for.
enum Stream : std::uint64_t { kQ = 1, kK, kV, kBias, kBoolMask, kBlockMask, kSink, kHotKey, kDo, kDLse, kNan };

std::uint64_t key_of(const Case& c, Stream stream, std::int64_t b, std::int64_t h, std::int64_t i) {
  std::uint64_t key = mix(c.seed ^ mix(stream));
  for (const std::int64_t index : {b, h, i}) key = mix(key ^ static_cast<std::uint64_t>(index));
  return key;
}

float normal(std::uint64_t bits) {
  const float u = (static_cast<float>(bits >> 40) + 0.5F) * 0x1p-24F;
  const float angle = static_cast<float>(bits & 0xFFFFFFu) * (0x1p-24F * 2 * std::numbers::pi_v<float>);
  return std::sqrt(-2 * std::log(u)) * std::cos(angle);
}

/// A whole number in [-most, most].
float whole(std::uint64_t bits, int most) {
  return static_cast<float>(static_cast<int>(bits >> 33) % (2 * most + 1) - most);
}

float element(Distribution distribution, std::uint64_t bits, std::uint64_t number) {
  switch (distribution) {
    case Distribution::uniform_int:
      return whole(bits, 3);
    case Distribution::normal_int:
      return std::round(2 * normal(bits));
    case Distribution::uniform:
      return static_cast<float>(bits >> 40) * 0x1p-24F;
    case Distribution::trig:
      return std::cos(static_cast<float>(number));
    case Distribution::sparse_int:
      return bits % 5 != 0 ? 0.0F : whole(bits, 2);
    case Distribution::equal:
      return 0.75F;
    default:
      return normal(bits);
  }
}

/// How large the values of Distribution::extreme are: a power of two, times whole numbers up to 7.
int extreme_exponent(DataType type) { return type == DataType::f16 ? 13 : 50; }

}  // namespace

Data::Data(const Case& c) : case_(c) {
  const double scale = c.scale == 0 ? 1 / std::sqrt(static_cast<double>(c.d)) : std::abs(c.scale);
  offset_length_ = static_cast<float>(std::min(std::sqrt(120 / scale), 200.0));
  if (c.distribution == Distribution::one_nan) nan_ = choose_nan();
}

/// Somewhere in the rows that count; nowhere if the sequence it falls upon has none.
std::optional<Data::Place> Data::choose_nan() const {
  if (case_.b == 0) return std::nullopt;
  std::uint64_t key = key_of(case_, kNan, 0, 0, 0);
  const auto below = [&](std::int64_t size) {
    key = mix(key);
    return static_cast<std::int64_t>(key % static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1)));
  };
  constexpr std::array kTensors{kQ, kK, kV, kDo};
  const Stream tensor = kTensors[static_cast<std::size_t>(below(case_.backward() ? 4 : 3))];
  const bool of_queries = tensor == kQ || tensor == kDo;
  const std::int64_t b = below(case_.b), h = below(of_queries ? case_.h : case_.h_k);
  return Place{tensor, b, h, below(of_queries ? case_.logical_q(b) : case_.logical_k(b))};
}

void Data::put_nan(const Place& here, std::span<float> row) const {
  if (nan_ == here && !row.empty()) row[key_of(case_, kNan, 0, 0, 1) % row.size()] = NAN;
}

void Data::q_row(std::int64_t b, std::int64_t h, std::int64_t i, std::span<float> row) const {
  const std::uint64_t key = key_of(case_, kQ, b, h, i);
  if (case_.distribution == Distribution::extreme) {
    // One element alone is not zero: a product with a key is exact, and equal products are equal in every engine.
    std::fill(row.begin(), row.end(), 0.0F);
    const float sign = key % 2 == 0 ? 1.0F : -1.0F;
    row[mix(key) % row.size()] = std::ldexp(sign * static_cast<float>(1 + key / 2 % 7), extreme_exponent(case_.type));
    return;
  }
  for (std::size_t e = 0; e < row.size(); ++e)
    row[e] = element(case_.distribution, mix(key + e), static_cast<std::uint64_t>(i) * row.size() + e);
  if (case_.distribution == Distribution::offset) row[0] = key % 2 == 0 ? offset_length_ : -offset_length_;
  put_nan({kQ, b, h, i}, row);
}

void Data::k_row(std::int64_t b, std::int64_t g, std::int64_t j, std::span<float> row) const {
  const std::uint64_t key = key_of(case_, kK, b, g, j);
  for (std::size_t e = 0; e < row.size(); ++e)
    row[e] = case_.distribution == Distribution::extreme
                 ? std::ldexp(whole(mix(key + e), 7), extreme_exponent(case_.type))
                 : element(case_.distribution, mix(key + e), static_cast<std::uint64_t>(j + 1000) * row.size() + e);
  if (case_.distribution == Distribution::offset) row[0] = offset_length_;
  if (case_.distribution == Distribution::hot_key && case_.longest_k() > 0) {
    const auto keys = static_cast<std::uint64_t>(case_.longest_k());
    if (key_of(case_, kHotKey, b, g, 0) % keys == static_cast<std::uint64_t>(j))
      for (float& each : row) each *= 30;
  }
  put_nan({kK, b, g, j}, row);
}

void Data::v_row(std::int64_t b, std::int64_t g, std::int64_t j, std::span<float> row) const {
  const bool constant = case_.distribution == Distribution::const_v;
  const std::uint64_t key = key_of(case_, kV, b, g, constant ? 0 : j);
  const int exponent = std::min(extreme_exponent(case_.type), extreme_exponent(case_.o_type()));
  for (std::size_t e = 0; e < row.size(); ++e)
    row[e] = case_.distribution == Distribution::extreme
                 ? std::ldexp(whole(mix(key + e), 7), exponent)
                 : element(case_.distribution, mix(key + e), static_cast<std::uint64_t>(j + 2000) * row.size() + e);
  put_nan({kV, b, g, j}, row);
}

/// Whole numbers where q, k and v are; otherwise normal.
void Data::d_o_row(std::int64_t b, std::int64_t h, std::int64_t i, std::span<float> row) const {
  const std::uint64_t key = key_of(case_, kDo, b, h, i);
  for (std::size_t e = 0; e < row.size(); ++e)
    row[e] = element(case_.distribution, mix(key + e), static_cast<std::uint64_t>(i + 3000) * row.size() + e);
  put_nan({kDo, b, h, i}, row);
}

float Data::d_lse(std::int64_t b, std::int64_t h, std::int64_t i) const {
  return normal(key_of(case_, kDLse, b, h, i));
}

void Data::bias_row(std::int64_t b, std::int64_t h, std::int64_t i, std::span<float> row) const {
  const std::uint64_t key = key_of(case_, kBias, b, h, i);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = normal(mix(key + j));
  if (!case_.bias_inf) return;
  const auto visible = std::make_unique<bool[]>(row.size());
  hide(key, {visible.get(), row.size()});
  for (std::size_t j = 0; j < row.size(); ++j)
    if (!visible[j]) row[j] = -INFINITY;
}

void Data::bool_mask_row(std::int64_t b, std::int64_t h, std::int64_t i, std::span<bool> row) const {
  hide(key_of(case_, kBoolMask, b, h, i), row);
}

void Data::block_mask_row(std::int64_t b, std::int64_t h, std::int64_t block_i, std::span<bool> row) const {
  hide(key_of(case_, kBlockMask, b, h, block_i), row);
}

/// One of eight rows is wholly hidden; others lose their first keys, their last ones, some in the middle, or a third of
/// them here and there.
void Data::hide(std::uint64_t key, std::span<bool> row) const {
  const std::size_t n = row.size();
  std::fill(row.begin(), row.end(), true);
  if (n == 0) return;
  const std::size_t from = mix(key + 1) % n, to = from + mix(key + 2) % (n - from + 1);
  const auto hide_range = [&](std::size_t begin, std::size_t end) {
    std::fill(row.begin() + static_cast<std::ptrdiff_t>(begin), row.begin() + static_cast<std::ptrdiff_t>(end), false);
  };
  switch (mix(key) % 8) {
    case 0:
      return hide_range(0, n);
    case 1:
      return hide_range(0, from);
    case 2:
      return hide_range(from, n);
    case 3:
      return hide_range(from, to);
    case 4:
    case 5:
      for (std::size_t j = 0; j < n; ++j) row[j] = mix(key + 3 + j) % 3 != 0;
      return;
    default:
      return;
  }
}

float Data::slope(std::int64_t b, std::int64_t h) const {
  const double exponent = -8.0 * static_cast<double>(h + 1) / static_cast<double>(case_.h);
  return static_cast<float>(std::exp2(exponent) * (1 + 0.25 * static_cast<double>(b % 5)));
}

float Data::sink(std::int64_t h) const {
  const std::uint64_t key = key_of(case_, kSink, 0, h, 0);
  if (case_.sink == SinkInit::holes && h % 2 == 0) return -INFINITY;
  return case_.sink == SinkInit::large ? static_cast<float>(30 + key % 31) : 2 * normal(key);
}

}  // namespace heed::verify
