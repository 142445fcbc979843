/// heed cache: the compiled CUDA kernels on disk.

#include "cuda/cache_folder.hpp"
#include "cuda/kernel_pack.hpp"
#include "dispatch/glob.hpp"
#include "heed/arguments.hpp"
#include "heed/command.hpp"
#include "heed/machine.hpp"
#include "heed/prewarm.hpp"
#include "heed/terminal.hpp"
#include "heed/text.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace heed::command {
namespace {

using cuda::CacheFolder;
using Listed = std::vector<CacheFolder::Listed>;

std::string size_text(std::uint64_t bytes) { return bytes == 0 ? "0 B" : bytes_text(static_cast<double>(bytes)); }

std::string count_text(std::size_t kernels) { return fmt::format("{} kernel{}", kernels, kernels == 1 ? "" : "s"); }

/// Those that -filter asks for; damaged files only where it asks for nothing.
Listed chosen(const CacheFolder& folder, const Arguments& arguments) {
  Listed list = folder.list();
  const std::string& filter = arguments.text("filter");
  if (filter.empty()) return list;
  std::erase_if(list, [&](const CacheFolder::Listed& each) {
    return !each.entry || !dispatch::glob_search(filter, each.entry->kernel + " " + each.entry->arch);
  });
  return list;
}

int list_kernels(const CacheFolder& folder, const Arguments& arguments) {
  const Listed list = chosen(folder, arguments);
  std::uint64_t bytes = 0;
  for (const auto& each : list) bytes += each.bytes;
  if (arguments.boolean("json")) {
    nlohmann::ordered_json json{
        {"folder", folder.path().string()}, {"bytes", bytes}, {"kernels", nlohmann::json::array()}};
    for (const auto& each : list) {
      nlohmann::ordered_json row{
          {"file", each.file.filename().string()}, {"bytes", each.bytes}, {"whole", !!each.entry}};
      if (each.entry)
        row.update({{"kernel", each.entry->kernel},
                    {"arch", each.entry->arch},
                    {"nvrtc", each.entry->key.nvrtc.to_string()},
                    {"resources", cuda::to_json(each.entry->resources)}});
      json["kernels"].push_back(std::move(row));
    }
    fmt::print("{}", json_text(json));
    return kValid;
  }

  const Style style(stdout);
  std::size_t width = 6;
  for (const auto& each : list)
    if (each.entry) width = std::max(width, each.entry->kernel.size());
  if (!list.empty())
    fmt::print("{}\n", style.bold(fmt::format("{:<{}}  {:<11} {:<6} {:>9} {:>8} {:>6} {:>10}", "kernel", width, "arch",
                                              "nvrtc", "registers", "shared", "spills", "size")));
  for (const auto& each : list) {
    if (!each.entry) {
      fmt::print("{}\n", style.red("damaged, will be compiled again: " + each.file.filename().string()));
      continue;
    }
    const auto& [key, kernel, arch, resources, code] = *each.entry;
    fmt::print("{:<{}}  {:<11} {:<6} {:>9} {:>8} {:>6} {:>10}\n", kernel, width, arch, key.nvrtc.to_string(),
               resources.registers, resources.shared_bytes, resources.spill_bytes, size_text(each.bytes));
  }
  fmt::print("{}{}, {} in {}\n", list.empty() ? "" : "\n", count_text(list.size()), size_text(bytes),
             folder.path().string());
  return kValid;
}

int clear(CacheFolder& folder) {
  const CacheFolder::Files cleared = folder.clear();
  fmt::print("removed {} file{}, {}, from {}\n", cleared.files, cleared.files == 1 ? "" : "s", size_text(cleared.bytes),
             folder.path().string());
  return kValid;
}

int export_pack(const CacheFolder& folder, const Arguments& arguments, const std::string& file) {
  std::vector<cuda::CacheEntry> entries;
  for (const auto& each : chosen(folder, arguments))
    if (each.entry)
      if (auto whole = folder.load(each.entry->key)) entries.push_back(*std::move(whole));
  if (entries.empty())
    throw UsageError(fmt::format("export : {} has no kernels{}; 'heed cache prewarm' compiles them.",
                                 folder.path().string(), arguments.given("filter") ? " that match -filter" : ""));
  cuda::KernelPack::write(file, entries);
  fmt::print("wrote {} to {}\n", count_text(entries.size()), file);
  return kValid;
}

int import_pack(CacheFolder& folder, const std::string& file) {
  const cuda::KernelPack pack(file);
  std::vector<cuda::CacheEntry> entries;
  for (const cuda::EntryKey& key : pack.keys())
    entries.push_back(pack.read(key));  // all of it is whole, or nothing is done
  for (const cuda::CacheEntry& entry : entries)
    if (const std::string reason = folder.store(entry); !reason.empty())
      throw UsageError(fmt::format("import : {} cannot be written: {}.", folder.path().string(), reason));
  fmt::print("took {} from {} into {}\n", count_text(entries.size()), file, folder.path().string());
  return kValid;
}

/// -j4, as make has it, beside -j=4.
Words with_equals(Words words) {
  for (std::string& word : words)
    if (word.size() > 2 && word.starts_with("-j") && word[2] >= '0' && word[2] <= '9') word.insert(2, "=");
  return words;
}

}  // namespace

int run_cache(const Words& words) {
  Arguments arguments(
      "heed cache",
      "The compiled CUDA kernels on disk: list them, remove them, compile them ahead, carry them to other\n"
      "machines. docs/jit-cache.md tells how it works.");
  arguments.positional("ls|clear|prewarm|export FILE|import FILE", 1, 2);
  arguments.group("Where");
  arguments.option("dir", cuda::default_cache_folder().string(), "the folder; the preset follows HEED_CACHE_DIR");
  arguments.group("Which (ls, export, prewarm)");
  arguments.option("filter", "", "those whose name or architecture matches this glob: 'd128*sm_90*'");
  arguments.group("Compiling ahead (prewarm)");
  declare_prewarm(arguments);
  arguments.group("Output (ls)");
  arguments.flag("json", "as JSON");
  arguments.footer(R"(Examples
  heed cache ls
  heed cache prewarm --profile=flash -j8
  heed cache prewarm --profile=flash -filter='bf16_d128'   those of one type and head dim
  heed cache export kernels.pack
  heed cache import kernels.pack
  HEED_KERNEL_PACK=kernels.pack heed fwd -engine=cuda
)");
  arguments.parse(with_equals(words));

  const std::vector<std::string> actions{"ls", "clear", "prewarm", "export", "import"};
  const std::string& action = arguments.positionals().front();
  if (std::find(actions.begin(), actions.end(), action) == actions.end())
    throw UsageError(fmt::format("'{}' : heed cache has no such action{}; there are {}.", action,
                                 did_you_mean(action, actions, ""), fmt::join(actions, ", ")));
  const bool takes_file = action == "export" || action == "import";
  if (takes_file != (arguments.positionals().size() == 2))
    throw UsageError(takes_file
                         ? fmt::format("{0} : the file is missing; for example 'heed cache {0} kernels.pack'.", action)
                         : fmt::format("'{}' : {} takes no file.", arguments.positionals()[1], action));
  const auto only_for = [&](const char* key, std::initializer_list<std::string_view> those) {
    if (arguments.given(key) && std::find(those.begin(), those.end(), action) == those.end())
      throw UsageError(fmt::format("-{} : {} does not take it; {} does.", key, action, *those.begin()));
  };
  only_for("filter", {"ls", "export", "prewarm"});
  only_for("json", {"ls"});
  for (const char* key : {"profile", "sm", "j"}) only_for(key, {"prewarm"});
  if (arguments.text("dir").empty())
    throw UsageError(
        "no cache folder: none of HEED_CACHE_DIR, XDG_CACHE_HOME and HOME is set; name one with -dir=FOLDER.");

  CacheFolder folder(arguments.text("dir"));
  if (action == "ls") return list_kernels(folder, arguments);
  if (action == "clear") return clear(folder);
  if (action == "export") return export_pack(folder, arguments, arguments.positionals()[1]);
  if (action == "import") return import_pack(folder, arguments.positionals()[1]);
  return prewarm(folder.path(), arguments);
}

}  // namespace heed::command
