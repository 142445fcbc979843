#pragma once

#include <heed/problem.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heed {

/// A kernel as the registry lists it.
struct KernelInfo {
  std::string name;       ///< unique, for example "cpu/avx512/fwd_tile_f32"
  std::string engine;     ///< "cpu" or "cuda"
  std::string family;     ///< "forward" or "backward"
  std::string arch;       ///< ISA level or sm, for example "avx512"
  std::string signature;  ///< what it computes, one line
  std::string algorithm;  ///< how, one line
  std::string lacks;      ///< why this machine cannot run it; empty when it can
};

/// Why a kernel was chosen, and why each of the others was not.
struct HEED_API Explanation {
  struct Candidate {
    KernelInfo kernel;
    bool chosen = false;
    std::string rule;    ///< name of the rule that excluded it; "outranked" when it could have run; empty when chosen
    std::string reason;  ///< the rule's sentence with the value that broke it, or why it won
  };
  std::string problem;
  std::vector<Candidate> candidates;                                 ///< the chosen one first
  std::vector<std::pair<std::string, std::string>> missing_engines;  ///< (engine, why it is not here)

  const Candidate* chosen() const;
  std::string to_string() const;
  std::string to_json() const;
};

struct PlanOptions {
  EngineChoice engine = EngineChoice::automatic;
  int threads = 0;          ///< CPU engine: the most workers an executor will bring; 0: as many as the context's pool
  std::string kernel = {};  ///< run exactly this kernel, or fail with the rule that excludes it
};

/// How one problem will be computed: stages, each a kernel, over one workspace. Making it allocates; running it does
/// not.
class HEED_API Plan {
 public:
  struct Stage {
    std::string kernel;
    std::string purpose;  ///< "split", "combine", ...
    std::size_t workspace_offset = 0, workspace_bytes = 0;
  };

  const Problem& problem() const;
  const std::string& kernel() const;  ///< name of the main kernel
  const std::vector<Stage>& stages() const;
  std::size_t workspace_bytes() const;
  int threads() const;
  std::string explain() const;

  /// The engine that runs it: where tensors and workspace must be.
  Memory memory() const;

  /// The arguments must pose this plan's problem. `workspace` holds at least workspace_bytes(), aligned to 64 bytes,
  /// and shares none of them with a tensor of the call: it is refused otherwise. A null executor runs on the calling
  /// thread.
  void run(const ForwardArgs& args, std::span<std::byte> workspace, Executor* executor = nullptr) const;
  void run(const BackwardArgs& args, std::span<std::byte> workspace, Executor* executor = nullptr) const;

  /// For plans of the CUDA engine: puts the work on the stream (a CUstream or cudaStream_t; null: the default stream)
  /// of the device that holds q. The workspace is memory of that device, all zero before its first use; a run leaves
  /// it as the next one needs it. Runs that share a workspace must follow each other. Safe inside graph capture: the
  /// graph then needs the workspace and the Context, and not the plan.
  void run_on_stream(const ForwardArgs& args, std::span<std::byte> workspace, void* stream) const;
  void run_on_stream(const BackwardArgs& args, std::span<std::byte> workspace, void* stream) const;

  struct Impl;
  explicit Plan(std::shared_ptr<const Impl> impl);

 private:
  std::shared_ptr<const Impl> impl_;
};

/// Everything that would otherwise be global: the thread pool, the plan cache, the scratch memory of calls, the kernels
/// that are loaded on GPUs. Contexts share nothing; one context may be used from many threads. A CUDA graph that has
/// captured its work needs the context, or a plan of it: kernels and scratch memory go with the last of these. The one
/// of default_context() lives as long as the process.
class HEED_API Context {
 public:
  struct Options {
    int threads = 0;  ///< size of the pool; 0: usable_threads()
    std::string max_cpu_isa =
        {};  ///< "baseline", "avx2", "avx512", "avx512bf16", "amx"; empty: HEED_MAX_CPU_ISA, else the best here
    /// "hopper", "portable" or "portable_ptx" (as PTX for sm_80): only these kernels of the CUDA engine; empty:
    /// HEED_CUDA_FAMILY, else hopper and portable
    std::string cuda_family = {};
    /// How the CUDA engine's Hopper kernels compute a forward pass, instead of heed's choice: "stages:3,tile_k:128";
    /// what is left out stays as it is. Only kernels that can be told run then; what cannot be computed so is refused.
    /// The result obeys the same contract. Empty: HEED_CUDA_ALGO, else heed chooses.
    std::string cuda_algo = {};
    /// The same for backward passes: "tile_q:64,pipeline:ahead". Empty: HEED_CUDA_BACKWARD_ALGO, else heed chooses.
    std::string cuda_backward_algo = {};
  };

  Context();
  explicit Context(const Options& options);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// The problem that these arguments pose to an engine; automatic: to the one in whose memory q lies. Throws Error
  /// when a tensor is where that engine cannot reach it.
  Problem problem(const ForwardArgs& args, EngineChoice engine = EngineChoice::automatic) const;
  Problem problem(const BackwardArgs& args, EngineChoice engine = EngineChoice::automatic) const;
  Plan plan(const Problem& problem, const PlanOptions& options = {});
  Explanation explain(const Problem& problem, const PlanOptions& options = {});
  /// For the problem that these arguments pose; an automatic engine is the one in whose memory q lies.
  Plan plan(const ForwardArgs& args, const PlanOptions& options = {});
  Plan plan(const BackwardArgs& args, const PlanOptions& options = {});
  Explanation explain(const ForwardArgs& args, const PlanOptions& options = {});
  Explanation explain(const BackwardArgs& args, const PlanOptions& options = {});
  void forward(const ForwardArgs& args, const RunOptions& options = {});
  void backward(const BackwardArgs& args, const RunOptions& options = {});
  /// Every kernel of this build, by name, or those whose name, signature or algorithm holds something that matches the
  /// pattern: `*` any run of characters, `?` any one, `[ab]` one of these ("d128*causal*").
  std::vector<KernelInfo> kernels(std::string_view filter = {}) const;
  std::string kernels_json(std::string_view filter = {}) const;
  Executor& executor();

  struct Impl;
  explicit Context(std::unique_ptr<Impl> impl);
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// The context behind the free functions: made at first use, and never destroyed, so that a program may end while one
/// of its threads is still computing.
HEED_API std::shared_ptr<Context> default_context();

HEED_API Plan plan(const Problem& problem, const PlanOptions& options = {});
HEED_API Explanation explain(const Problem& problem, const PlanOptions& options = {});

}  // namespace heed
