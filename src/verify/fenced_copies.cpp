#include "verify/fenced_copies.hpp"

#include "core/overlap.hpp"
#include "verify/input_views.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>

namespace heed::verify {
namespace {

constexpr std::size_t kMostBytes = std::size_t{64} << 20;

std::size_t whole(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

FencedCopies::~FencedCopies() {
  for (const std::span<std::byte> each : mapped_) munmap(each.data(), each.size());
}

ForwardArgs FencedCopies::inputs(ForwardArgs args) {
  for (TensorView* view : input_views(args)) replace(*view);
  return args;
}

BackwardArgs FencedCopies::inputs(BackwardArgs args) {
  args.forward = inputs(args.forward);
  for (OutputView* view : {&args.forward.o, &args.forward.lse}) replace(*view);
  for (TensorView* view : input_views(args)) replace(*view);
  return args;
}

template <class View>
void FencedCopies::replace(View& view) {
  const core::Footprint place = core::footprint(view);
  const auto bytes = static_cast<std::size_t>(place.high - place.low);
  if (!view.given() || view.data == nullptr || place.empty || bytes > kMostBytes) return;
  const std::int64_t first = place.base - place.low;  // from its lowest element, where a stride is negative
  view.data = copy(static_cast<const std::byte*>(view.data) - first, bytes) + first;
}

std::byte* FencedCopies::copy(const std::byte* from, std::size_t bytes) {
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
