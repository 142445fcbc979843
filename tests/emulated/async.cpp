#include "emulated/async.hpp"

#include "emulated/fibers.hpp"
#include "emulated/shared_memory.hpp"

#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <stdexcept>
#include <vector>

namespace heed::emulated {
namespace {

using Work = std::function<void()>;

struct Mbarrier {
  int arrivals = 0, missing = 0;
  std::int64_t bytes = 0;  ///< that were announced and have not come
  std::uint32_t phase = 0;

  void end_phase_if_complete() {
    if (missing > 0 || bytes != 0) return;
    phase ^= 1;
    missing = arrivals;
  }
};
/// Groups of asynchronous work of one thread.
struct Groups {
  std::vector<Work> open;
  std::deque<std::vector<Work>> closed;

  void commit() {
    closed.push_back(std::move(open));
    open.clear();
  }
  void wait(std::size_t pending) {
    for (; closed.size() > pending; closed.pop_front())
      for (const Work& work : closed.front()) work();
  }
};
Timing timing = Timing::fast_copies;

}  // namespace

struct AsyncWork {
  std::map<std::uint32_t, Mbarrier> mbarriers;
  std::vector<Work> copies;  ///< to shared memory, under way
  std::map<int, Groups> stores, products;
  std::mt19937 random{11};
};

namespace {

std::shared_ptr<AsyncWork> state;  // of the block that runs

Mbarrier& at(std::uint32_t barrier) {
  const auto found = state->mbarriers.find(barrier);
  if (found == state->mbarriers.end()) throw std::logic_error("an mbarrier that nobody has made");
  return found->second;
}
void count_arrival(std::uint32_t barrier, std::int64_t expected_bytes) {
  Mbarrier& here = at(barrier);
  here.bytes += expected_bytes;
  if (--here.missing < 0) throw std::logic_error("more arrivals at an mbarrier than it was made for");
  here.end_phase_if_complete();
}
void bytes_have_come(std::uint32_t barrier, std::int64_t bytes) {
  at(barrier).bytes -= bytes;
  at(barrier).end_phase_if_complete();
}
/// What goes on beside the threads: at once, or later, with what is in `late`.
void begin(Timing fast, std::vector<Work>& late, Work work) {
  if (timing == fast) {
    work();
  } else {
    late.push_back(std::move(work));
  }
}

/// Calls with every element of a box: its place in the tensor, or null outside of it, and in shared memory.
template <class Visit>
void for_each_element(const Map& map, std::uint32_t shared, const Coordinates& at, const Visit& visit) {
  std::array<int, 5> box = map.box;
  for (std::size_t i = static_cast<std::size_t>(map.rank); i < 5; ++i) box[i] = 1;
  std::uint32_t row = 0;
  std::array<int, 5> k{};
  for (k[4] = 0; k[4] < box[4]; ++k[4])
    for (k[3] = 0; k[3] < box[3]; ++k[3])
      for (k[2] = 0; k[2] < box[2]; ++k[2])
        for (k[1] = 0; k[1] < box[1]; ++k[1], ++row)
          for (k[0] = 0; k[0] < box[0]; ++k[0]) {
            std::byte* place = map.data;
            for (std::size_t i = 0; i < static_cast<std::size_t>(map.rank); ++i) {
              const std::int64_t index = at[i] + k[i];
              if (index < 0 || index >= map.sizes[i]) {
                place = nullptr;
                break;
              }
              place += index * map.steps[i];
            }
            visit(place, shared_bytes(swizzled(shared + row * 128 + static_cast<std::uint32_t>(k[0]) * 2), 2));
          }
}

}  // namespace

void mbarrier_init(std::uint32_t barrier, int arrivals) { state->mbarriers[barrier] = {arrivals, arrivals}; }
void mbarrier_arrive(std::uint32_t barrier, std::int64_t expected_bytes) {
  count_arrival(barrier, expected_bytes);
  // What comes after an arrival may come much later.
  if (state->random() % 8 == 0)
    for (unsigned rounds = state->random() % 16; rounds > 0; --rounds) pause();
}
void mbarrier_arrive_at(std::uint32_t barrier, int rank) {
  in_block_of_cluster(rank, [&] { count_arrival(barrier, 0); });
}
void mbarrier_arrive_after_copies(std::uint32_t barrier) {
  begin(Timing::fast_copies, state->copies, [=, copies = open_copies()] {
    copies();
    count_arrival(barrier, 0);
  });
}
bool mbarrier_ended(std::uint32_t barrier, std::uint32_t parity) {
  if (at(barrier).phase != parity) return true;
  pause();
  return at(barrier).phase != parity;
}

void named_barrier_arrive(std::uint32_t id, int threads) { arrive_at_gate(id, threads); }
void named_barrier_sync(std::uint32_t id, int threads) { join_gate(id, threads); }

void tma_load(std::uint32_t to, const Map& map, std::uint32_t barrier, const Coordinates& where) {
  begin(Timing::fast_copies, state->copies, [=] {
    std::int64_t bytes = 0;
    for_each_element(map, to, where, [&](const std::byte* from, std::byte* there) {
      if (from != nullptr) {
        std::memcpy(there, from, 2);
      } else {
        std::memset(there, 0, 2);
      }
      bytes += 2;
    });
    bytes_have_come(barrier, bytes);
  });
}
void tma_store(const Map& map, std::uint32_t from, const Coordinates& where) {
  begin(Timing::fast_copies, state->stores[thread_index()].open, [=] {
    for_each_element(map, from, where, [&](std::byte* to, const std::byte* there) {
      if (to != nullptr) std::memcpy(to, there, 2);
    });
  });
}
void bulk_load(std::uint32_t to, const void* from, std::size_t bytes, std::uint32_t barrier) {
  begin(Timing::fast_copies, state->copies, [=] {
    for (std::size_t i = 0; i < bytes; i += 16)
      std::memcpy(shared_bytes(to + static_cast<std::uint32_t>(i), 16), static_cast<const std::byte*>(from) + i, 16);
    bytes_have_come(barrier, static_cast<std::int64_t>(bytes));
  });
}
void bulk_add(void* to, std::uint32_t from, std::size_t bytes, std::size_t element,
              void (*add)(void* to, const void* x)) {
  begin(Timing::fast_copies, state->stores[thread_index()].open, [=] {
    for (std::size_t i = 0; i < bytes; i += element)
      add(static_cast<std::byte*>(to) + i, shared_bytes(from + static_cast<std::uint32_t>(i), element));
  });
}
void bulk_commit() { state->stores[thread_index()].commit(); }
void bulk_wait(std::size_t pending_groups) { state->stores[thread_index()].wait(pending_groups); }

void multiply(std::function<void()> product) {
  begin(Timing::fast_products, state->products[thread_index()].open, std::move(product));
}
void multiply_commit() { state->products[thread_index()].commit(); }
void multiply_wait(std::size_t pending_groups) { state->products[thread_index()].wait(pending_groups); }

void set_timing(Timing now) { timing = now; }
std::shared_ptr<AsyncWork> no_async_work() { return std::make_shared<AsyncWork>(); }
void go_on_with(const std::shared_ptr<AsyncWork>& work) { state = work; }
bool let_a_copy_arrive() {
  if (state->copies.empty()) return false;
  const std::size_t which = state->random() % state->copies.size();
  const Work copy = std::move(state->copies[which]);
  state->copies.erase(state->copies.begin() + static_cast<std::ptrdiff_t>(which));
  copy();
  return true;
}
void end_async_work() {
  for (auto& [thread, groups] : state->stores) {
    groups.commit();
    groups.wait(0);
  }
  if (!state->copies.empty()) throw std::logic_error("copies are under way that nobody has waited for");
}

}  // namespace heed::emulated
