#pragma once

#include "core/json.hpp"

#include <heed/problem.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heed::cuda {

/// What was measured to be the fastest algorithm for a class of problems: one pass, one head dim, one kind of mask, a
/// range of lengths. Lists of them, one for each pass, are a JSON file that `heed sweep` writes:
///
///   {"heed_tuning": 1, "made": {...}, "forward": [
///     {"arch": "sm_90", "d": 128, "d_v": 128, "mask": "causal", "keys": [1025, null], "algo": "stages:4,tile_k:64"}],
///    "backward": [
///     {"arch": "sm_90", "d": 128, "d_v": 128, "mask": "causal", "keys": [0, null], "algo": "tile_q:64,section:1056"}]}
///
/// A file without a list of backward entries has none.
struct TuningEntry {
  std::string name = {};  ///< of the kernel that comes of it, without the family: "d128_causal"; empty: made up
  int sm = 90;
  int d = 0, d_v = 0;  ///< of the tile; smaller head dims are computed in it
  bool causal = false;
  std::int64_t from_keys = 0;
  std::optional<std::int64_t> to_keys = {};  ///< none: no limit
  std::string algo;                          ///< as the knobs of its pass are written
  double tflops = 0;                         ///< what it was measured with; 0: not told

  friend bool operator==(const TuningEntry&, const TuningEntry&) = default;
};

struct TuningRecord {
  core::Json made = core::Json::object();  ///< when, where and how, for each pass: for people
  std::vector<TuningEntry> forward, backward;

  std::vector<TuningEntry>& of(Operation operation) { return operation == Operation::forward ? forward : backward; }
  const std::vector<TuningEntry>& of(Operation operation) const {
    return operation == Operation::forward ? forward : backward;
  }
};

/// Whose record it is. Kernels of a user's are named after what they are for.
enum class TunedBy { heed, user };
/// Of the kernel that an entry makes, without its family: "d128_causal", "tuned_d128_128_causal_from_0_to_1024".
std::string kernel_name(const TuningEntry& entry, TunedBy by);

/// `what` begins messages: the file's name. Throws Error.
TuningRecord tuning_from_json(std::string_view text, std::string_view what);
std::string to_json(const TuningRecord& record);

/// What libheed carries.
const TuningRecord& shipped_tuning();

/// The user's own, which goes before the shipped one.
struct UserTuning {
  std::filesystem::path path;  ///< HEED_TUNING, else tuning.json in the cache folder; empty: no cache folder
  bool named = false;          ///< by HEED_TUNING: then whatever is wrong with it is an error
  TuningRecord record;
  std::string ignored;  ///< why the file in the cache folder was not taken; empty when it was, or is not there

  /// Read anew. Throws Error when HEED_TUNING names a file that cannot be taken.
  static UserTuning read();
};

}  // namespace heed::cuda
