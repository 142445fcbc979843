// Inputs between pages that nobody may touch: a kernel that reads before or behind one ends the test.
#pragma once

#include <heed/backward.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

namespace heed::emulated {

/// Which of its ends lies at a fence; a copy begins at a multiple of 16 bytes in any case.
enum class Fence { before, behind };

class FencedCopies {
 public:
  explicit FencedCopies(Fence fence) : fence_(fence) {}
  FencedCopies(const FencedCopies&) = delete;
  FencedCopies& operator=(const FencedCopies&) = delete;
  ~FencedCopies() {
    for (const std::span<std::byte> each : mapped_) munmap(each.data(), each.size());
  }

  /// The arguments with copies of all that kernels only read.
  ForwardArgs inputs(ForwardArgs args) {
    for (TensorView* view :
         {&args.q, &args.k, &args.v, &args.bool_mask, &args.block_mask.keep, &args.bias, &args.alibi_slopes, &args.sink,
          &args.dropout.state, &args.seqstart_q, &args.seqstart_k, &args.seqlen_q, &args.seqlen_k})
      view->data = copy(*view);
    return args;
  }
  BackwardArgs inputs(BackwardArgs args) {
    args.forward = inputs(args.forward);
    for (OutputView* view : {&args.forward.o, &args.forward.lse}) view->data = copy(*view);
    for (TensorView* view : {&args.d_o, &args.d_lse}) view->data = copy(*view);
    return args;
  }

 private:
  template <class View>
  auto copy(const View& view) -> decltype(view.data) {
    std::size_t bytes = static_cast<std::size_t>(bits(view.type)) / 8;
    for (int i = 0; view.given() && i < view.rank; ++i) {
      if (view.size(i) == 0) return view.data;
      if (view.size(i) > 1)
        bytes += static_cast<std::size_t>((view.size(i) - 1) * view.stride(i) * bits(view.type) / 8);
    }
    if (!view.given()) return view.data;
    constexpr std::size_t kAlignment = 16;
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t inside = (bytes + page - 1) / page * page;
    void* const all = mmap(nullptr, inside + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) throw std::runtime_error("no memory for a fenced copy");
    mapped_.emplace_back(static_cast<std::byte*>(all), inside + 2 * page);
    std::byte* const first = mapped_.back().data() + page;
    if (mprotect(first, inside, PROT_READ | PROT_WRITE) != 0) throw std::runtime_error("a fenced copy stays closed");
    std::byte* const to =
        fence_ == Fence::before ? first : first + inside - (bytes + kAlignment - 1) / kAlignment * kAlignment;
    std::memcpy(to, view.data, bytes);
    return to;
  }

  Fence fence_;
  std::vector<std::span<std::byte>> mapped_;
};

}  // namespace heed::emulated
