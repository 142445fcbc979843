#include "heed/run_arguments.hpp"

#include "heed/engines.hpp"

#include <fmt/format.h>

namespace heed::command {

void declare_run(Arguments& arguments, JsonMeans json, const std::string& json_file) {
  arguments.group("Checking, timing and output");
  arguments.option("v", "1",
                   "check against the oracle: 0 not, 1 yes (a sample of the rows where all would take long), full all",
                   {"0", "1", "2", "full"});
  arguments.option("spoil", "0", "1: make one element wrong before it is checked, to see that the check finds it");
  arguments.option("warmup", "5", "runs before the timed ones");
  arguments.option("repeat", "20",
                   "timed runs; fewer, and it says so, where neither is given and 25 runs take over 8 s");
  arguments.option("timer", "gpu",
                   "whose clock: gpu, the engine's own (on the CPU engine the host's), or cpu, the host's",
                   {"gpu", "cpu"});
  arguments.option("kname", "0", "1: print the name of the kernel");
  if (json == JsonMeans::write_file) {
    arguments.option("json", "0", "1: write a record that 'heed replay' runs again");
  } else {
    arguments.flag("json", "print the answer as JSON");
  }
  arguments.option("jsonfile", json_file, "where the record goes");
}

Run read_run(const Arguments& arguments) {
  constexpr std::int64_t kMostRuns = 1'000'000;
  Run run;
  const std::string& check = arguments.text("v");
  if (check == "2")
    throw UnsupportedError(
        "not supported: -v=2 : there is no reference on a GPU; -v=1 checks against the fp64 oracle.\n" +
        engines_without_it());
  run.check = check == "0" ? Check::none : check == "1" ? Check::sample : Check::full;
  run.spoil = arguments.boolean("spoil");
  if (run.spoil && run.check == Check::none)
    bad_value("spoil", arguments.text("spoil"), "nothing is checked with -v=0.");
  run.warmup = static_cast<int>(arguments.integer("warmup", 0, kMostRuns));
  run.repeat = static_cast<int>(arguments.integer("repeat", 1, kMostRuns));
  run.counts_given = arguments.given("warmup") || arguments.given("repeat");
  run.clock = arguments.text("timer") == "cpu" ? Clock::host : Clock::engine;
  run.kernel_name = arguments.boolean("kname");
  run.json = arguments.boolean("json");
  run.json_file = arguments.text("jsonfile");
  if (arguments.given("jsonfile") && !run.json)
    bad_value("jsonfile", run.json_file, "names the file of -json=1; give both.");
  return run;
}

}  // namespace heed::command
