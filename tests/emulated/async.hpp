// What a multiprocessor of sm_90 does beside its threads: mbarriers, named barriers, the tensor copy engine, products
// of warpgroups.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace heed::emulated {

/// Who is fast and executes everything as soon as it is issued. The others do so when somebody has to wait for it.
/// Whoever reads too early, or gives memory back too early, is found by one of them.
enum class Timing { fast_copies, fast_products };
void set_timing(Timing timing);

/// What is under way in a thread block: nothing at its beginning. Blocks that run side by side take turns with theirs;
/// at the end what is under way in the one that runs is finished.
struct AsyncWork;
std::shared_ptr<AsyncWork> no_async_work();
void go_on_with(const std::shared_ptr<AsyncWork>& work);
void end_async_work();
/// When no thread can go on: one of the copies that are under way arrives. False: there is none.
bool let_a_copy_arrive();

void mbarrier_init(std::uint32_t barrier, int arrivals);
void mbarrier_arrive(std::uint32_t barrier, std::int64_t expected_bytes = 0);
/// At the barrier in the same place of another block of the cluster.
void mbarrier_arrive_at(std::uint32_t barrier, int rank);
/// Later, when what the running thread has copied by then is there.
void mbarrier_arrive_after_copies(std::uint32_t barrier);
/// Whether the phase with this parity has ended. If not, others go on first; they may also do so after an arrival.
bool mbarrier_ended(std::uint32_t barrier, std::uint32_t parity);

void named_barrier_arrive(std::uint32_t id, int threads);
void named_barrier_sync(std::uint32_t id, int threads);

/// What cuTensorMapEncodeTiled is told of a tensor of 16-bit elements, innermost dimension first.
struct Map {
  std::byte* data;
  int rank;
  std::array<std::int64_t, 5> sizes, steps;  ///< steps in bytes
  std::array<int, 5> box;
};
using Coordinates = std::array<std::int64_t, 5>;
void tma_load(std::uint32_t to, const Map& map, std::uint32_t barrier, const Coordinates& at);
void tma_store(const Map& map, std::uint32_t from, const Coordinates& at);
void bulk_load(std::uint32_t to, const void* from, std::size_t bytes, std::uint32_t barrier);
/// Element by element, each of so many bytes, by `add`.
void bulk_add(void* to, std::uint32_t from, std::size_t bytes, std::size_t element,
              void (*add)(void* to, const void* x));
/// Of the running thread's stores and adds.
void bulk_commit();
void bulk_wait(std::size_t pending_groups);

void multiply(std::function<void()> product);
void multiply_commit();
void multiply_wait(std::size_t pending_groups);

/// Where the byte that a 128-byte swizzle puts at this address lies.
constexpr std::uint32_t swizzled(std::uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

}  // namespace heed::emulated
