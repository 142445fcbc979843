#include "emulated/fibers.hpp"

#include "emulated/async.hpp"
#include "emulated/shared_memory.hpp"

#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

namespace heed::emulated {
namespace {

/// Threads that wait for each other: the last one to arrive opens the gate for all, and it is closed again.
struct Gate {
  int expected = 0, arrived = 0;
  unsigned times_open = 0;
  bool some[2] = {};  ///< whether what is asked was true for some thread: now, and when it was open last
};
struct Warp {
  Gate gate;
  LaneWords words[2];  ///< a lane may bring the next ones while another still reads these
};
struct Fiber {
  ucontext_t context{};
  const Gate* waits_at = nullptr;
  unsigned seen_open = 0;  ///< how often that gate had been open
  unsigned exchanges = 0;
  bool done = false, pauses = false;

  bool can_go_on() const { return !done && (waits_at == nullptr || waits_at->times_open != seen_open); }
};

struct Block {
  int index = 0, count = 0;
  Gate gate;
  std::map<std::uint32_t, Gate> gates;
  std::vector<Warp> warps;
  std::vector<Fiber> fibers;
  std::size_t running = 0;
  ucontext_t scheduler{};
  const std::function<void()>* body = nullptr;
  std::exception_ptr failure;  ///< the first one of a thread
};
Block* block = nullptr;  // these fibers are all of one operating-system thread

void enter_fiber() {
  try {
    (*block->body)();
  } catch (...) {
    if (!block->failure) block->failure = std::current_exception();
  }
  block->fibers[block->running].done = true;
  swapcontext(&block->fibers[block->running].context, &block->scheduler);
}

/// True: it was the last one.
bool arrive(Gate& gate) {
  if (++gate.arrived < gate.expected) return false;
  gate.arrived = 0;
  ++gate.times_open;
  return true;
}
void join(Gate& gate) {
  Fiber& fiber = block->fibers[block->running];
  if (arrive(gate)) return;
  fiber.waits_at = &gate;
  fiber.seen_open = gate.times_open;
  swapcontext(&fiber.context, &block->scheduler);
  fiber.waits_at = nullptr;
}

bool join_or(Gate& gate, bool here) {
  bool& some = gate.some[gate.times_open % 2];
  if (gate.arrived == 0) some = false;  // all have read the one before the last
  some = some || here;
  join(gate);
  return some;
}

/// stack: its number; fibers that are alive at the same time have different ones.
void prepare(Fiber& fiber, std::size_t stack) {
  constexpr std::size_t kStack = std::size_t{256} << 10;
  static std::vector<std::unique_ptr<std::byte[]>> stacks;  // the same for every launch
  while (stacks.size() <= stack) stacks.push_back(std::make_unique_for_overwrite<std::byte[]>(kStack));
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = stacks[stack].get();
  fiber.context.uc_stack.ss_size = kStack;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, enter_fiber, 0);
}

enum class Went { nowhere, in_circles, on };

/// What the lanes of a warp have come to: each runs until it waits or pauses.
Went run_warp(std::size_t warp) {
  Went all = Went::nowhere;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    block->running = warp * kLanes + lane;
    Fiber& fiber = block->fibers[block->running];
    if (!fiber.can_go_on()) continue;
    fiber.pauses = false;
    swapcontext(&block->scheduler, &fiber.context);
    all = std::max(all, fiber.pauses ? Went::in_circles : Went::on);
  }
  return all;
}

/// Until every thread of the block waits or runs in circles. True: some went on.
bool go_on(std::mt19937& random) {
  std::vector<std::size_t> order(block->warps.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  bool went = false;
  for (Went all = Went::on; all == Went::on; went = went || all == Went::on) {
    all = Went::nowhere;
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t warp : order) {
      Went here = run_warp(warp);
      all = std::max(all, here);
      while (here == Went::on) here = run_warp(warp);
    }
    if (all == Went::in_circles && let_a_copy_arrive()) all = Went::on;
  }
  if (block->failure) std::rethrow_exception(block->failure);
  return went;
}
bool all_done() {
  return std::ranges::all_of(block->fibers, [](const Fiber& fiber) { return fiber.done; });
}

struct Resident;
/// Thread blocks that reach each other's shared memory.
struct Cluster {
  std::vector<Resident*> residents;
  std::size_t arrived = 0;  ///< threads, since all met for the last time
  unsigned meetings = 0;
};
/// A thread block with all that it has while others run.
struct Resident {
  Block threads;
  std::shared_ptr<AsyncWork> async = no_async_work();
  std::shared_ptr<SharedContents> shared;
  Cluster* cluster = nullptr;

  void enter() {
    block = &threads;
    enter_memory();
  }
  void leave() {
    leave_memory();
    block = nullptr;
  }
  void enter_memory() {
    running = this;
    go_on_with(async);
    if (shared) exchange_shared_memory(*shared);
  }
  void leave_memory() {
    if (shared) exchange_shared_memory(*shared);
    running = nullptr;
  }
  static Resident* running;
};
Resident* Resident::running = nullptr;

void begin(Resident& resident, int index, int blocks, int threads, const std::function<void()>& body,
           std::size_t first_stack) {
  Block& here = resident.threads;
  here.index = index;
  here.count = blocks;
  here.gate.expected = threads;
  here.warps.resize(static_cast<std::size_t>(threads / kLanes));
  for (Warp& warp : here.warps) warp.gate.expected = kLanes;
  here.fibers.resize(static_cast<std::size_t>(threads));
  here.body = &body;
  for (std::size_t i = 0; i < here.fibers.size(); ++i) prepare(here.fibers[i], first_stack + i);
}

/// Goes on with each of them in turn until all are done, with so many at a time.
void run(std::vector<Resident>& residents, std::mt19937& random, std::size_t at_a_time) {
  constexpr int kMostCircles = 10000;
  std::vector<Resident*> left;
  auto next = residents.begin();
  for (int circles = 0; !left.empty() || next != residents.end();) {
    while (left.size() < at_a_time && next != residents.end()) left.push_back(&*next++);
    std::shuffle(left.begin(), left.end(), random);
    bool went = false;
    std::erase_if(left, [&](Resident* resident) {
      resident->enter();
      went = go_on(random) || went;
      const bool done = all_done();
      if (done) end_async_work();
      resident->leave();
      return done;
    });
    circles = went ? 0 : circles + 1;
    if (circles == kMostCircles) throw std::logic_error("a thread waits for others that never come");
  }
}

}  // namespace

void launch(int blocks, int threads, const std::function<void()>& body) {
  std::mt19937 random(7);
  for (int i = 0; i < blocks; ++i) {
    std::vector<Resident> one(1);
    begin(one.front(), i, blocks, threads, body, 0);
    run(one, random, 1);
  }
}

namespace {

void launch_clusters(int blocks, int threads, const std::function<void()>& body, int cluster, int at_a_time) {
  std::mt19937 random(7);
  std::vector<Resident> all(static_cast<std::size_t>(blocks));
  std::vector<Cluster> clusters(static_cast<std::size_t>(blocks / cluster));
  for (int i = 0; i < blocks; ++i) {
    Resident& each = all[static_cast<std::size_t>(i)];
    each.shared = new_shared_memory();
    each.cluster = &clusters.at(static_cast<std::size_t>(i / cluster));
    each.cluster->residents.push_back(&each);
    begin(each, i, blocks, threads, body, static_cast<std::size_t>(i * threads));
  }
  run(all, random, static_cast<std::size_t>(at_a_time));
}

}  // namespace

void launch_side_by_side(int blocks, int threads, const std::function<void()>& body, int cluster) {
  launch_clusters(blocks, threads, body, cluster, blocks);
}
void launch_some_side_by_side(int blocks, int threads, const std::function<void()>& body, int at_a_time) {
  launch_clusters(blocks, threads, body, 1, at_a_time);
}

int thread_index() { return static_cast<int>(block->running); }
int thread_count() { return static_cast<int>(block->fibers.size()); }
int block_index() { return block->index; }
int block_count() { return block->count; }

int cluster_rank() {
  const auto& blocks = Resident::running->cluster->residents;
  return static_cast<int>(std::ranges::find(blocks, Resident::running) - blocks.begin());
}
void join_cluster() {
  Cluster& cluster = *Resident::running->cluster;
  const unsigned meeting = cluster.meetings;
  ++cluster.arrived;
  while (cluster.meetings == meeting) {
    std::size_t missing = 0;
    for (const Resident* each : cluster.residents)
      missing += static_cast<std::size_t>(std::ranges::count(each->threads.fibers, false, &Fiber::done));
    if (cluster.arrived == missing) {
      cluster.arrived = 0;
      ++cluster.meetings;
    } else {
      pause();
    }
  }
}
void in_block_of_cluster(int rank, const std::function<void()>& action) {
  Resident& here = *Resident::running;
  Resident& there = *here.cluster->residents.at(static_cast<std::size_t>(rank));
  if (&here == &there) return action();
  here.leave_memory();
  there.enter_memory();
  action();
  there.leave_memory();
  here.enter_memory();
}

void join_warp() { join(block->warps[block->running / kLanes].gate); }
void join_block() { join(block->gate); }
bool join_block_or(bool here) { return join_or(block->gate, here); }
void join_gate(std::uint32_t number, int threads) {
  block->gates[number].expected = threads;
  join(block->gates[number]);
}
bool join_gate_or(std::uint32_t number, int threads, bool here) {
  block->gates[number].expected = threads;
  return join_or(block->gates[number], here);
}
void arrive_at_gate(std::uint32_t number, int threads) {
  block->gates[number].expected = threads;
  arrive(block->gates[number]);
}
void pause() {
  Fiber& fiber = block->fibers[block->running];
  fiber.pauses = true;
  swapcontext(&fiber.context, &block->scheduler);
}

const LaneWords& exchange(const std::uint32_t* words, int count) {
  Warp& warp = block->warps[block->running / kLanes];
  LaneWords& all = warp.words[block->fibers[block->running].exchanges++ % 2];
  std::copy_n(words, count, all[block->running % kLanes].begin());
  join(warp.gate);
  return all;
}

}  // namespace heed::emulated
