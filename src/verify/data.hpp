#pragma once

#include "verify/case.hpp"

#include <cstdint>
#include <optional>
#include <span>

namespace heed::verify {

/// The values of a Case. They depend on what an element means (batch entry, head, row, number in the row), never on
/// where it lies: two cases that differ only in layout hold the same numbers.
class Data {
 public:
  explicit Data(const Case& c);

  void q_row(std::int64_t b, std::int64_t h, std::int64_t i, std::span<float> row) const;
  void k_row(std::int64_t b, std::int64_t g, std::int64_t j, std::span<float> row) const;
  void v_row(std::int64_t b, std::int64_t g, std::int64_t j, std::span<float> row) const;
  void d_o_row(std::int64_t b, std::int64_t h, std::int64_t i, std::span<float> row) const;
  float d_lse(std::int64_t b, std::int64_t h, std::int64_t i) const;
  void bias_row(std::int64_t b, std::int64_t h, std::int64_t i, std::span<float> row) const;
  void bool_mask_row(std::int64_t b, std::int64_t h, std::int64_t i, std::span<bool> row) const;
  void block_mask_row(std::int64_t b, std::int64_t h, std::int64_t block_i, std::span<bool> row) const;
  float slope(std::int64_t b, std::int64_t h) const;
  float sink(std::int64_t h) const;

 private:
  /// The row that holds the NaN of Distribution::one_nan.
  struct Place {
    std::uint64_t tensor;
    std::int64_t b, h, row;
    friend bool operator==(const Place&, const Place&) = default;
  };
  std::optional<Place> choose_nan() const;
  void put_nan(const Place& here, std::span<float> row) const;
  void hide(std::uint64_t key, std::span<bool> row) const;

  const Case& case_;
  std::optional<Place> nan_;
  float offset_length_ = 0;  ///< c such that c * c * scale is 120
};

}  // namespace heed::verify
