#include <heed/error.hpp>
#include <heed/executor.hpp>

#include "core/cpu_quota.hpp"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace heed {
namespace {

using namespace std::chrono_literals;

/// How long a thread that has nothing to do keeps looking before it sleeps. Waking a sleeper costs about as much, so
/// this is at most twice as dear as knowing the future; it also bounds what an idle pool takes from its neighbours.
constexpr std::chrono::nanoseconds kSpin = 30us;
constexpr std::size_t kCacheLine = 64;

using Word = std::atomic<std::uint32_t>;
static_assert(sizeof(Word) == sizeof(std::uint32_t) && Word::is_always_lock_free, "the kernel reads it as a futex");

// The futex itself rather than std::atomic::wait: we wake a given number of sleepers, and do our own spinning.
void futex_wait(Word& word, std::uint32_t while_equal) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, while_equal, nullptr, nullptr, 0);
}

void futex_wake(Word& word, int sleepers) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, sleepers, nullptr, nullptr, 0);
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // Arm's own hint, yield, takes no time at all on most cores
#endif
}

template <class Condition>
bool spin_until(std::chrono::nanoseconds limit, Condition condition) {
  if (condition()) return true;
  if (limit == 0ns) return false;
  // Bounded by the clock: the length of a pause instruction varies by a factor of thirty between processors.
  constexpr int kLooksPerClock = 8;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  do {
    for (int look = 0; look < kLooksPerClock; ++look) {
      relax();
      if (condition()) return true;
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

/// Counts the forks between this process and the one that loaded the library. A team of another generation has no
/// threads in this process, and its locks may be held by threads that do not exist here either.
std::atomic<unsigned> g_generation{0};
// Registered while the library loads, so that no fork can come in the middle of it.
[[maybe_unused]] const int g_fork_handler =
    pthread_atfork(nullptr, nullptr, [] { g_generation.fetch_add(1, std::memory_order_relaxed); });

/// Whether this thread is running a piece of some pool; always so in the threads of a pool.
constinit thread_local bool t_in_piece = false;

class InPiece {
 public:
  InPiece() : saved_(std::exchange(t_in_piece, true)) {}
  InPiece(const InPiece&) = delete;
  InPiece& operator=(const InPiece&) = delete;
  ~InPiece() { t_in_piece = saved_; }

 private:
  bool saved_;
};

struct Job {
  std::uint64_t count = 0;
  Executor::Body body = nullptr;
  void* context = nullptr;
  int caller_cpu = -1;
};

/// The threads of a pool, in one process, and the protocol between them and the caller.
///
/// All of it goes through one word, the gate. To begin, the caller puts as many seats on it as it wants help. A worker
/// takes a seat and becomes active in the same step, so a worker that wakes too late finds no seat and is not waited
/// for. Whoever finds no piece left removes the seats that remain, and the caller returns when nobody is active.
class Team {
 public:
  Team(int workers, unsigned generation)
      : generation_(generation),
        most_workers_(workers),
        // With more threads than processors, whoever spins may keep the one it waits for from running.
        spin_(workers < detail::affinity_cpus() ? kSpin : 0ns) {}

  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  ~Team() {
    gate_.store(kStop);
    futex_wake(gate_, std::numeric_limits<int>::max());
    for (std::thread& thread : threads_) thread.join();
  }

  unsigned generation() const { return generation_; }

  /// Runs the job and returns true; or false, having done nothing, if that would mean waiting inside a piece.
  bool run(const Job& job) {
    std::unique_lock turn(turn_, std::defer_lock);
    if (!t_in_piece) {
      turn.lock();
    } else if (busy_.load(std::memory_order_relaxed) || !turn.try_lock()) {
      // Whoever has the turn may be waiting for this very piece. (If it is this thread, busy_ says so: a mutex may not
      // be tried by its owner.)
      return false;
    }
    const int helpers = start(job.count - 1);
    busy_.store(true, std::memory_order_relaxed);
    fork_and_join(job, helpers);
    busy_.store(false, std::memory_order_relaxed);
    if (failed_.load(std::memory_order_relaxed)) {
      failed_.store(false, std::memory_order_relaxed);
      std::rethrow_exception(std::exchange(error_, nullptr));
    }
    return true;
  }

 private:
  static constexpr std::uint32_t kActive = 1;              // one active worker
  static constexpr std::uint32_t kSeat = 1u << 16;         // one free seat
  static constexpr std::uint32_t kStop = 1u << 14;         // the team is being destroyed
  static constexpr std::uint32_t kCallerWaits = 1u << 15;  // the last active worker must wake the caller
  static constexpr std::uint32_t kActiveMask = kStop - 1;
  static constexpr std::uint32_t kSeatMask = ~(kSeat - 1);
  static_assert(ThreadPool::kMaxThreads <= kActiveMask && ThreadPool::kMaxThreads <= kSeatMask / kSeat);

  void fork_and_join(const Job& job, int helpers) noexcept {
    const InPiece in_piece;
    job_ = job;
    job_.caller_cpu = sched_getcpu();
    next_.store(0, std::memory_order_relaxed);
    open(helpers);
    work(0);
    close();
  }

  /// Starts threads until there are this many, or as many as there may be, and says how many there are to help.
  int start(std::uint64_t useful) {
    const bool few = useful < static_cast<std::uint64_t>(most_workers_);
    const int wanted = few ? static_cast<int>(useful) : most_workers_;
    while (static_cast<int>(threads_.size()) < wanted) {
      const int worker = static_cast<int>(threads_.size()) + 1;
      try {
        threads_.emplace_back([this, worker] { serve(worker); });
      } catch (const std::system_error&) {
        // The system has no more threads for us. The pieces are run by those there are, if need be by the caller alone.
        most_workers_ = worker - 1;
        break;
      }
    }
    return std::min(wanted, static_cast<int>(threads_.size()));
  }

  void open(int helpers) {
    // Sequentially consistent, like the counting in sleep(): either we see the sleeper or it sees the seats.
    gate_.store(static_cast<std::uint32_t>(helpers) * kSeat);
    const int awake = static_cast<int>(threads_.size()) - sleepers_.load();
    if (helpers > awake) futex_wake(gate_, helpers - awake);
  }

  void close() {
    gate_.fetch_and(~kSeatMask, std::memory_order_relaxed);
    const auto nobody_active = [this] { return (gate_.load(std::memory_order_acquire) & kActiveMask) == 0; };
    if (spin_until(spin_, nobody_active)) return;
    finished_.store(0, std::memory_order_relaxed);
    if ((gate_.fetch_or(kCallerWaits) & kActiveMask) == 0) return;
    while (finished_.load(std::memory_order_acquire) == 0) futex_wait(finished_, 0);
  }

  void serve(int worker) {
    pthread_setname_np(pthread_self(), ("heed-" + std::to_string(worker)).c_str());
    t_in_piece = true;
    auto spin = spin_;
    for (;;) {
      if (!spin_until(spin, [this] { return wanted(gate_.load(std::memory_order_relaxed)); })) sleep();
      std::uint32_t gate = gate_.load(std::memory_order_relaxed);
      if (gate & kStop) return;
      if (wanted(gate) && gate_.compare_exchange_weak(gate, gate - kSeat + kActive, std::memory_order_acquire)) {
        work(worker);
        // On a crowded machine we may have been woken in the caller's place: it cannot go on until we sleep.
        spin = sched_getcpu() == job_.caller_cpu ? 0ns : spin_;
        leave();
      }
    }
  }

  static bool wanted(std::uint32_t gate) { return (gate & (kSeatMask | kStop)) != 0; }

  void sleep() {
    sleepers_.fetch_add(1);
    for (std::uint32_t gate = gate_.load(); !wanted(gate); gate = gate_.load()) futex_wait(gate_, gate);
    sleepers_.fetch_sub(1);
  }

  void work(int worker) noexcept {
    const Job job = job_;
    // Unsigned and never reset while anyone is active: the overshoot of the last claims cannot wrap around.
    for (std::uint64_t index; (index = next_.fetch_add(1, std::memory_order_relaxed)) < job.count;) {
      try {
        job.body(job.context, static_cast<std::int64_t>(index), worker);
      } catch (...) {
        if (!failed_.exchange(true, std::memory_order_relaxed)) error_ = std::current_exception();
        next_.store(job.count, std::memory_order_relaxed);
      }
    }
  }

  void leave() {
    std::uint32_t gate = gate_.load(std::memory_order_relaxed);
    std::uint32_t left = 0;
    do {
      left = (gate & ~kSeatMask) - kActive;
    } while (!gate_.compare_exchange_weak(gate, left, std::memory_order_acq_rel, std::memory_order_relaxed));
    if (left == kCallerWaits) {
      finished_.store(1, std::memory_order_release);
      futex_wake(finished_, 1);
    }
  }

  const unsigned generation_;
  int most_workers_;
  const std::chrono::nanoseconds spin_;
  std::mutex turn_;
  std::atomic<bool> busy_{false};
  std::vector<std::thread> threads_;
  Job job_;
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
  std::atomic<int> sleepers_{0};
  Word finished_{0};
  alignas(kCacheLine) Word gate_{0};
  alignas(kCacheLine) std::atomic<std::uint64_t> next_{0};
};

}  // namespace

class ThreadPool::Impl {
 public:
  explicit Impl(int threads) : threads_(threads), team_(new Team(threads - 1, g_generation.load())) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  ~Impl() {
    Team* const team = team_.load();
    if (team->generation() == g_generation.load()) delete team;
  }

  int threads() const { return threads_; }

  void run(std::int64_t count, Body body, void* context) {
    const bool alone = count <= 1 || threads_ == 1;
    if (!alone && live_team().run({static_cast<std::uint64_t>(count), body, context})) return;
    SerialExecutor().parallel_for(count, body, context);
  }

 private:
  Team& live_team() {
    Team* team = team_.load(std::memory_order_acquire);
    const unsigned generation = g_generation.load(std::memory_order_relaxed);
    if (team->generation() == generation) return *team;
    // The parent's team stays where it is: its mutex may be locked and its threads cannot be joined.
    auto fresh = std::make_unique<Team>(threads_ - 1, generation);
    if (team_.compare_exchange_strong(team, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
    return *team;
  }

  const int threads_;
  std::atomic<Team*> team_;
};

ThreadPool::ThreadPool(int threads) {
  if (threads < 0 || threads > kMaxThreads) {
    throw Error(ErrorCode::invalid_argument, "threads = " + std::to_string(threads) + " : a pool has 1 to " +
                                                 std::to_string(kMaxThreads) +
                                                 " threads, or 0 for as many as this process may use.");
  }
  impl_ = std::make_unique<Impl>(threads == 0 ? usable_threads() : threads);
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::concurrency() const noexcept { return impl_->threads(); }

void ThreadPool::parallel_for(std::int64_t count, Body body, void* context) { impl_->run(count, body, context); }

}  // namespace heed
