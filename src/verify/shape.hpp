#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

namespace heed::verify {

/// Sizes and steps in the order of the view's dimensions, outermost first.
struct Shape {
  std::vector<std::int64_t> sizes, strides;
  std::int64_t first = 0;  ///< where element (0, 0, ...) is, counted from the lowest: not 0 where a stride is negative

  /// Elements from the first to the last, both included; 0 if there are none.
  std::int64_t span() const {
    std::int64_t reach = 1;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] == 0) return 0;
      reach += (sizes[i] - 1) * std::abs(strides[i]);
    }
    return reach;
  }

  /// Dense, with a gap after each row.
  static Shape dense(std::vector<std::int64_t> sizes, std::int64_t gap) {
    Shape shape{std::move(sizes), {}, 0};
    shape.strides.resize(shape.sizes.size());
    std::int64_t step = 1;
    for (std::size_t i = shape.sizes.size(); i-- > 0;) {
      shape.strides[i] = step;
      step *= std::max<std::int64_t>(shape.sizes[i], 1) + (i + 1 == shape.sizes.size() ? gap : 0);
    }
    return shape;
  }

  /// The same memory, with this dimension's last index first.
  void reverse(std::size_t dim) {
    if (span() > 0) first += (sizes[dim] - 1) * strides[dim];
    strides[dim] = -strides[dim];
  }

  void make_absurd() {
    for (std::size_t i = 0; i < sizes.size(); ++i)
      if (sizes[i] == 1) strides[i] = i % 2 == 0 ? 3331333 : 99990001;
  }
};

}  // namespace heed::verify
