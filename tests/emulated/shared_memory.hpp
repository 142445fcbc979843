// The shared memory of the block that is running, and copies to it that are under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace heed::emulated {

constexpr std::size_t kSharedBytes = std::size_t{227} << 10;

/// Shared memory holds what is no number, and `bytes` of it may be touched until the next call. No copies are under
/// way.
void begin_shared_memory(std::size_t bytes, int threads);

/// As it begins, for a block that runs side by side with others; and what the one that runs has, exchanged for it.
struct SharedContents;
std::shared_ptr<SharedContents> new_shared_memory();
void exchange_shared_memory(SharedContents& with);

/// `bytes` of it, aligned to as many, at a 32-bit address. Throws where there are none.
std::byte* shared_bytes(std::uint32_t address, std::size_t bytes);
std::uint32_t shared_address(const void* pointer);

/// Copies of the running thread: `read` bytes, and zeros up to `bytes`. They are seen once they are waited for, not
/// before.
void copy_later(std::uint32_t to, const void* from, std::size_t read, std::size_t bytes);
void close_copies();
/// Those that are in no group: what makes them be seen.
std::function<void()> open_copies();
void wait_copies(std::size_t open_groups);

}  // namespace heed::emulated
