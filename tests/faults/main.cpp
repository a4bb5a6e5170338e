// The differential fuzzer with a compiler that has faults in it, one of which can be switched on.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <iostream>

#include "tests/differential/differential.h"
#include "tests/faults/fault.h"
#include "tests/faults/measure.h"

namespace kiln::faults {
namespace {

// The ordinary fuzzer, with one fault: to look at what it reports.
int fuzz(const std::vector<Fault>& table, const std::string& name,
         std::vector<std::string> arguments) {
  static std::vector<Mark> marks(table.size());
  std::vector<std::string> names;
  for (const Fault& fault : table) names.push_back(fault.name);
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) throw std::runtime_error("no fault is named '" + name + "'");
  declare(names, marks);
  switch_on(static_cast<size_t>(found - names.begin()));
  std::vector<char*> argv = {const_cast<char*>("kiln_differential")};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return differential::run(static_cast<int>(argv.size()), argv.data());
}

int run(int argc, char** argv) {
  CLI::App app{"Does the differential fuzzer catch faults in the compiler?"};
  app.allow_extras();
  Plan plan;
  std::string fault;
  bool list = false, from_scratch = false, update = false;
  app.add_option("--limit", plan.limit, "programs in which each fault must be caught");
  app.add_option("--seed", plan.first, "of the first program; the others follow");
  app.add_option("--jobs", plan.jobs, "processes at once");
  app.add_option("--only", plan.only, "these faults")->allow_extra_args(false);
  app.add_flag("--measure", from_scratch,
               "look for the first program that shows each fault; else "
               "begin with those of shown.json");
  app.add_flag("--update", update, "write shown.json");
  app.add_flag("--list", list, "print the faults");
  app.add_option("--fault", fault, "run kiln_differential with this fault and the other arguments");
  CLI11_PARSE(app, argc, argv);

  const std::vector<Fault> table = read_table();
  if (!fault.empty()) return fuzz(table, fault, app.remaining());
  if (!app.remaining().empty())
    throw std::runtime_error("unknown argument '" + app.remaining()[0] + "'");
  if (list) {
    for (const Fault& row : table) fmt::print("{:58} {}: {}\n", row.name, row.file, row.why);
    return 0;
  }
  const std::map<std::string, uint64_t> known = read_shown();
  if (!from_scratch) plan.hints = known;
  const Result result = measure(table, plan);
  if (update) {
    std::map<std::string, uint64_t> seeds = result.caught;
    if (!plan.only.empty()) seeds.insert(known.begin(), known.end());
    write_shown(seeds);
  }
  return result.missed == 0 && result.broken == 0 ? 0 : 1;
}

}  // namespace
}  // namespace kiln::faults

int main(int argc, char** argv) {
  setenv("KILN_CACHE", "off", 1);  // its keys do not know of faults
  try {
    return kiln::faults::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
