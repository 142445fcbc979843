#include "heed/sweep_output.hpp"

#include "heed/command.hpp"
#include "heed/text.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <tuple>
#include <utility>

namespace heed::command {
namespace {

/// The user's own: where it is, and what it holds.
std::pair<std::string, cuda::TuningRecord> users_record() {
  cuda::UserTuning user = cuda::UserTuning::read();
  if (user.path.empty())
    throw UsageError("sweep : there is no cache folder for the tuning record; name a file with -record.");
  if (!user.ignored.empty())
    throw UsageError(
        fmt::format("sweep : {} It would be overwritten; remove it, or name another file with -record.", user.ignored));
  return {user.path.string(), std::move(user.record)};
}

cuda::TuningRecord record_at(const std::string& path) {
  std::error_code unreadable;
  if (!std::filesystem::exists(path, unreadable)) return {};
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return cuda::tuning_from_json(text, path);
}

}  // namespace

SweepOutput::SweepOutput(Paths paths) : paths_(std::move(paths)) {
  for (const std::string& path : {paths_.json, paths_.md})
    if (!path.empty()) require_writable(path);
  if (paths_.record == "none") {
    paths_.record.clear();
    return;
  }
  if (paths_.record.empty()) {
    std::tie(paths_.record, older_) = users_record();
  } else {
    older_ = record_at(paths_.record);
  }
  if (const auto folder = std::filesystem::path(paths_.record).parent_path(); !folder.empty()) {
    std::error_code told_when_it_is_written;
    std::filesystem::create_directories(folder, told_when_it_is_written);
  }
  require_writable(paths_.record);
}

void SweepOutput::write(const SweepReport& report) const {
  if (!paths_.json.empty()) write_file(paths_.json, to_json(report));
  if (!paths_.md.empty()) write_file(paths_.md, to_markdown(report));
  if (!paths_.record.empty()) write_file(paths_.record, cuda::to_json(to_record(report, older_)));
}

}  // namespace heed::command
