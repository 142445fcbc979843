#pragma once

#include <heed/executor.hpp>
#include <heed/plan.hpp>

#include "dispatch/kernel.hpp"
#include "dispatch/signature.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// What forward and backward kernels have in common: all but the arguments they run on.
namespace heed::dispatch {

/// One line of an engine's table of kernels.
///
///   inline constexpr std::array kForward{
///       ForwardKernelSpec{.stem = "fwd_tile_f32",
///                         .signature = {.types = {f32}, .d = up_to(512), .d_v = up_to(512)},
///                         .algorithm = {.arch = CpuIsa::avx512, .unit = MathUnit::f32_fma, .tile_q = 64, .tile_k =
///                         128}}};
struct AttentionKernelSpec {
  std::string_view stem;  ///< the last part of the name
  Signature signature;
  Algorithm algorithm;
};

/// What a plan keeps for its kernel from one run to the next: tables, a compiled module. Made with the plan.
class Prepared {
 public:
  Prepared() = default;
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  virtual ~Prepared();
};

/// One run of a plan. Everything in it has been checked.
template <class Args>
struct Call {
  const Problem& problem;
  const Args& args;
  std::span<std::byte> workspace;  ///< the whole plan's, aligned to 64 bytes; stages() says who has which part
  Executor& executor;              ///< concurrency() <= threads
  int threads;                     ///< what stages() was told
  const Prepared* prepared;        ///< what prepare() returned
  void* stream = nullptr;          ///< CUDA engine: where the work is put
};

class AttentionKernel : public Kernel {
 public:
  const Signature& signature() const { return spec_.signature; }
  const Algorithm& algorithm() const { return spec_.algorithm; }
  virtual Operation operation() const = 0;

  /// The cost model that ranks the kernels which can compute a problem: finite and positive. It may not look at the
  /// number of threads, because the choice of a kernel shows in the last bits of the result.
  virtual double expected_seconds(const Problem& problem) const = 0;

  /// Which limit of the machine the kernel's algorithm breaks for such a problem ("shared memory: ..."); empty when it
  /// can be compiled. For kernels whose algorithm is the caller's choice.
  virtual std::string impossible(const Problem& problem) const;

  /// What of a problem that fits the signature is too much for the kernel ("bias with dropout and a window"); empty
  /// when nothing is.
  virtual std::string too_much(const Problem& problem) const;

  /// The steps of a run, with the slice of the workspace each one uses (offsets are multiples of 64; slices may overlap
  /// where their lives do not). Known before running; at most `threads` workers will come.
  virtual std::vector<Plan::Stage> stages(const Problem& problem, int threads) const = 0;

  /// What a run would otherwise have to make again each time.
  virtual std::unique_ptr<const Prepared> prepare(const Problem& problem, int threads) const;

  /// Scratch memory of the engine's own for calls without a workspace from the caller, of the device that holds
  /// `pointer`, for work on `stream`. Nothing: the engine computes in host memory, which the context lends.
  virtual std::optional<std::span<std::byte>> own_workspace(const void* pointer, void* stream, std::size_t bytes) const;

  std::string_view family() const final;
  std::string signature_text() const final;
  std::string algorithm_text() const final;
  nlohmann::ordered_json signature_json() const final;
  nlohmann::ordered_json algorithm_json() const final;
  std::vector<std::string> search_texts(std::string_view pattern) const final;

 protected:
  explicit AttentionKernel(const AttentionKernelSpec& spec);

 private:
  AttentionKernelSpec spec_;
};

}  // namespace heed::dispatch
