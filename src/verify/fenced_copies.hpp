#pragma once

#include <heed/backward.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace heed::verify {

/// Which end of a copy lies at a page that nobody may touch.
enum class Fence { before, behind };

/// Copies of what a call reads, between pages that nobody may touch: who reads before or behind one crashes, where a
/// guard band or somebody else's memory would only have given it a number.
class FencedCopies {
 public:
  /// A copy begins at a multiple of `alignment` bytes; behind one that is not as long as a multiple nothing is seen of
  /// the few bytes up to it.
  explicit FencedCopies(Fence fence, std::size_t alignment = 1) : fence_(fence), alignment_(alignment) {}
  FencedCopies(const FencedCopies&) = delete;
  FencedCopies& operator=(const FencedCopies&) = delete;
  ~FencedCopies();

  /// The arguments with copies for inputs. Larger ones than are worth it stay what they are.
  ForwardArgs inputs(ForwardArgs args);
  BackwardArgs inputs(BackwardArgs args);

 private:
  template <class View>
  void replace(View& view);
  std::byte* copy(const std::byte* from, std::size_t bytes);

  Fence fence_;
  std::size_t alignment_;
  std::vector<std::span<std::byte>> mapped_;
};

}  // namespace heed::verify
