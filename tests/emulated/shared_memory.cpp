#include "emulated/shared_memory.hpp"

#include "emulated/fibers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <utility>
#include <vector>

namespace heed::kernels {
/// The name under which kernels know it.
alignas(1024) unsigned char heed_shared[emulated::kSharedBytes];
}  // namespace heed::kernels

namespace heed::emulated {
namespace {

constexpr std::uint32_t kFirstAddress = 1024;  // so that an address of 0 is noticed

struct Copy {
  std::byte* to;
  const void* from;
  std::size_t read, bytes;
};
struct Copies {
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> groups;
};
std::size_t usable = 0;
std::vector<Copies> copies_of_threads;

}  // namespace

struct SharedContents {
  std::vector<unsigned char> bytes;
  std::vector<Copies> copies;
};

namespace {

void execute(const std::vector<Copy>& copies) {
  for (const Copy& copy : copies) {
    std::memset(copy.to, 0, copy.bytes);
    if (copy.read > 0) std::memcpy(copy.to, copy.from, copy.read);
  }
}
Copies& mine() { return copies_of_threads[static_cast<std::size_t>(thread_index())]; }

}  // namespace

void begin_shared_memory(std::size_t bytes, int threads) {
  usable = bytes;
  std::fill_n(kernels::heed_shared, kSharedBytes, 0xff);
  copies_of_threads.assign(static_cast<std::size_t>(threads), {});
}

std::shared_ptr<SharedContents> new_shared_memory() {
  return std::make_shared<SharedContents>(
      SharedContents{std::vector<unsigned char>(usable, 0xff), std::vector<Copies>(copies_of_threads.size())});
}
void exchange_shared_memory(SharedContents& with) {
  std::swap_ranges(with.bytes.begin(), with.bytes.end(), kernels::heed_shared);
  std::swap(with.copies, copies_of_threads);
}

std::byte* shared_bytes(std::uint32_t address, std::size_t bytes) {
  const std::size_t at = address - kFirstAddress;
  if (address < kFirstAddress || at % bytes != 0 || at + bytes > usable)
    throw std::out_of_range(fmt::format("{} bytes of shared memory at {}, where there are {}", bytes, at, usable));
  return reinterpret_cast<std::byte*>(kernels::heed_shared) + at;
}
std::uint32_t shared_address(const void* pointer) {
  return kFirstAddress + static_cast<std::uint32_t>(static_cast<const unsigned char*>(pointer) - kernels::heed_shared);
}

void copy_later(std::uint32_t to, const void* from, std::size_t read, std::size_t bytes) {
  if (read > 0 && reinterpret_cast<std::uintptr_t>(from) % bytes != 0)
    throw std::invalid_argument(fmt::format("a copy of {} bytes from an address that is not aligned to them", bytes));
  mine().open.push_back({shared_bytes(to, bytes), from, read, bytes});
}
void close_copies() {
  mine().groups.push_back(std::move(mine().open));
  mine().open.clear();
}
std::function<void()> open_copies() {
  return [copies = std::exchange(mine().open, {})] { execute(copies); };
}
void wait_copies(std::size_t open_groups) {
  for (; mine().groups.size() > open_groups; mine().groups.pop_front()) execute(mine().groups.front());
}

}  // namespace heed::emulated
