#include "verify/fenced_copies.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>

namespace heed::verify {
namespace {

constexpr std::size_t kMostBytes = std::size_t{64} << 20;

/// From its first element to its last; 0: it has none.
template <class View>
std::size_t bytes_of(const View& view) {
  if (!view.given() || view.data == nullptr) return 0;
  std::int64_t last = 0;
  for (int i = 0; i < view.rank; ++i) {
    if (view.size(i) == 0) return 0;
    if (view.size(i) > 1) last += (view.size(i) - 1) * view.stride(i);
  }
  return static_cast<std::size_t>((last + 1) * bits(view.type) / 8);
}

std::size_t whole(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

FencedCopies::~FencedCopies() {
  for (const std::span<std::byte> each : mapped_) munmap(each.data(), each.size());
}

ForwardArgs FencedCopies::inputs(ForwardArgs args) {
  for (TensorView* view :
       {&args.q, &args.k, &args.v, &args.bool_mask, &args.block_mask.keep, &args.bias, &args.alibi_slopes, &args.sink,
        &args.dropout.state, &args.seqstart_q, &args.seqstart_k, &args.seqlen_q, &args.seqlen_k})
    replace(*view);
  return args;
}

BackwardArgs FencedCopies::inputs(BackwardArgs args) {
  args.forward = inputs(args.forward);
  for (OutputView* view : {&args.forward.o, &args.forward.lse}) replace(*view);
  for (TensorView* view : {&args.d_o, &args.d_lse}) replace(*view);
  return args;
}

template <class View>
void FencedCopies::replace(View& view) {
  const std::size_t bytes = bytes_of(view);
  if (bytes > 0 && bytes <= kMostBytes) view.data = copy(view.data, bytes);
}

void* FencedCopies::copy(const void* from, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t inside = whole(bytes, page);
  void* const all = mmap(nullptr, inside + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) throw std::bad_alloc();
  mapped_.emplace_back(static_cast<std::byte*>(all), inside + 2 * page);
  std::byte* const first = mapped_.back().data() + page;
  if (mprotect(first, inside, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  std::byte* const to = fence_ == Fence::before ? first : first + inside - whole(bytes, alignment_);
  std::memcpy(to, from, bytes);
  return to;
}

}  // namespace heed::verify
