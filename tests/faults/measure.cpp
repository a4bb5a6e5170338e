// Each program is first run without a fault: it must pass, and shows at which faults' places the
// compiler comes by. Then it is run once with each of those faults that no program before has
// caught. Every run is a process of its own, so that neither crashes nor endless loops of faulty
// code matter.
#include "tests/faults/measure.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <stdexcept>

#include "ir/error.h"
#include "runtime/device.h"
#include "tests/differential/differential.h"
#include "tests/differential/generator.h"
#include "tests/faults/fault.h"

namespace kiln::faults {
namespace {

constexpr size_t kMostFaults = 256, kTextBytes = 200;
const std::vector<std::string> kDevices = {"host", "emulator"};
constexpr double kSeconds = 120;  // of processor time for a program without a fault

// What the processes have in common: zeroed memory.
struct Board {
  std::atomic<uint64_t> next;    // program to be looked at
  std::atomic<uint64_t> broken;  // programs that fail without a fault
  struct Entry {
    std::atomic<uint64_t> caught;   // 1 + number of the first program that showed it, 0: none
    std::atomic<uint64_t> reached;  // programs whose compilation came by
    char text[kTextBytes];
  } entries[kMostFaults];
};

template <class T>
T& shared_memory() {
  void* memory =
      mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap failed");
  return *static_cast<T*>(memory);
}

struct Marks {
  Mark marks[kMostFaults];
};

struct Checked {
  std::string wrong;   // empty if nothing
  double seconds = 0;  // of processor time
};

// Runs `check` in a process of its own, with a limit of processor time.
Checked in_child(double seconds, const std::function<std::string()>& check) {
  int channel[2];
  if (pipe(channel) != 0) throw std::runtime_error("pipe failed");
  const pid_t child = fork();
  if (child == 0) {
    const auto whole = static_cast<rlim_t>(std::ceil(seconds));
    const rlimit time{whole, whole}, no_core{0, 0};
    setrlimit(RLIMIT_CPU, &time);  // also of the process that the check starts
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);  // freopen would make it buffered
    std::string text;
    try {
      text = check();
    } catch (const std::exception& error) {
      text = error.what();
    }
    text.resize(std::min(text.size(), size_t{4096}));
    if (write(channel[1], text.data(), text.size()) < 0) _exit(3);
    _exit(0);
  }
  close(channel[1]);
  Checked result;
  char buffer[4096];
  for (ssize_t n; (n = read(channel[0], buffer, sizeof buffer)) > 0;)
    result.wrong.append(buffer, static_cast<size_t>(n));
  close(channel[0]);
  int status = 0;
  rusage used{};
  wait4(child, &status, 0, &used);
  result.seconds = static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                   static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
  if (status != 0) result.wrong = fmt::format("the check ended with status {}", status);
  return result;
}

class Measurement {
 public:
  Measurement(const std::vector<Fault>& table, const Plan& plan)
      : table_(table), plan_(plan), board_(shared_memory<Board>()) {
    if (table.size() > kMostFaults) throw std::runtime_error("too many faults");
    for (const Fault& fault : table) names_.push_back(fault.name);
    for (const std::string& name : plan.only)
      if (std::ranges::find(names_, name) == names_.end())
        throw std::runtime_error("no fault is named '" + name + "'");
  }

  // Programs by hints first, each for its own faults; then all from the first seed on.
  void run() {
    std::set<uint64_t> hinted;
    for (const auto& [name, seed] : plan_.hints)
      if (seed >= plan_.first && seed - plan_.first < plan_.limit) hinted.insert(seed);
    in_processes(std::vector<uint64_t>(hinted.begin(), hinted.end()), true);
    std::vector<uint64_t> all;
    for (uint64_t i = 0; i < plan_.limit; ++i) all.push_back(plan_.first + i);
    in_processes(all, false);
  }

  Result report() const {
    Result result;
    result.broken = board_.broken;
    for (size_t i = 0; i < table_.size(); ++i) {
      if (!wanted(i)) continue;
      const Board::Entry& entry = board_.entries[i];
      if (entry.caught != 0) {
        result.caught[names_[i]] = entry.caught - 1;
        fmt::print("{:58} {:5}  {}\n", names_[i], entry.caught - plan_.first, entry.text);
      } else {
        ++result.missed;
        fmt::print("{:58}     -  not caught; {} programs came by its place\n", names_[i],
                   entry.reached.load());
      }
    }
    fmt::print("{} faults caught, {} not; {} programs fail without a fault\n", result.caught.size(),
               result.missed, result.broken);
    return result;
  }

 private:
  bool wanted(size_t fault) const {
    return plan_.only.empty() || std::ranges::find(plan_.only, names_[fault]) != plan_.only.end();
  }

  // Faults that a program of this seed is still of interest for.
  std::vector<size_t> open_faults(uint64_t seed, bool by_hint) const {
    std::vector<size_t> open;
    for (size_t i = 0; i < table_.size(); ++i) {
      const uint64_t caught = board_.entries[i].caught;
      if (!wanted(i) || (caught != 0 && caught <= seed + 1)) continue;
      const auto hint = plan_.hints.find(names_[i]);
      if (by_hint && (hint == plan_.hints.end() || hint->second != seed)) continue;
      if (!by_hint && caught != 0 && hint != plan_.hints.end()) continue;  // no need for the first
      open.push_back(i);
    }
    return open;
  }

  void in_processes(const std::vector<uint64_t>& seeds, bool by_hint) {
    board_.next = 0;
    std::vector<pid_t> children;
    for (int job = 0; job < plan_.jobs; ++job) {
      const pid_t child = fork();
      if (child == 0) {
        try {
          work(seeds, by_hint);
        } catch (const std::exception& error) {
          fmt::print(stderr, "{}\n", error.what());
          _exit(1);
        }
        _exit(0);
      }
      children.push_back(child);
    }
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      if (status != 0) throw std::runtime_error("a process of the measurement failed");
    }
  }

  void work(const std::vector<uint64_t>& seeds, bool by_hint) {
    Marks& marks = shared_memory<Marks>();
    declare(names_, marks.marks);
    warm_up();
    for (uint64_t i; (i = board_.next++) < seeds.size();) {
      const std::vector<size_t> open = open_faults(seeds[i], by_hint);
      if (!open.empty()) program(seeds[i], open, marks);
    }
  }

  // A process compiles slowly at first: those that are started from here on have that behind them.
  // Nothing is run, for that would start threads, which the others would lack.
  static void warm_up() {
    for (const uint64_t seed : {1, 2, 3})
      for (const char* name : {"host", "emulator"}) try {
          device(name).compile(differential::generate(seed).kernel);
        } catch (const Error&) {  // some programs are refused
        }
  }

  void program(uint64_t seed, const std::vector<size_t>& open, Marks& marks) {
    for (Mark& mark : marks.marks) mark = 0;
    const Checked right = check(kNone, seed, kDevices, kSeconds);
    if (!right.wrong.empty()) {
      ++board_.broken;
      fmt::print("seed {} fails without a fault: {}\n", seed, right.wrong);
      std::fflush(stdout);
      return;
    }
    std::vector<size_t> reached;
    for (const size_t fault : open)
      if (marks.marks[fault]) reached.push_back(fault);
    for (const size_t fault : reached) {
      ++board_.entries[fault].reached;
      // Code that does not end is a finding too.
      const std::vector<std::string> devices = devices_of(table_[fault]);
      const Checked found = check(fault, seed, devices, 2 + 5 * right.seconds);
      if (found.wrong.empty()) continue;
      const bool is_named = devices.size() > 1 || found.wrong.starts_with("after ");
      caught(fault, seed,
             is_named ? found.wrong : fmt::format("on {}: {}", devices[0], found.wrong));
    }
  }

  // A fault in one code generator does not show on the other's device.
  static std::vector<std::string> devices_of(const Fault& fault) {
    if (fault.file.starts_with("codegen/host")) return {kDevices[0]};
    if (fault.file.starts_with("codegen/nvptx")) return {kDevices[1]};
    return kDevices;
  }

  static Checked check(size_t fault, uint64_t seed, const std::vector<std::string>& devices,
                       double seconds) {
    return in_child(seconds, [&] {
      switch_on(fault);
      return differential::check_seed(seed, devices);
    });
  }

  void caught(size_t fault, uint64_t seed, std::string_view text) {
    Board::Entry& entry = board_.entries[fault];
    uint64_t before = entry.caught;
    while (before == 0 || before > seed + 1)
      if (entry.caught.compare_exchange_weak(before, seed + 1)) {
        text = text.substr(0, std::min(text.find('\n'), kTextBytes - 1));
        std::copy(text.begin(), text.end(), entry.text);
        entry.text[text.size()] = 0;
        fmt::print(stderr, "caught: {} (seed {})\n", names_[fault], seed);
        return;
      }
  }

  const std::vector<Fault>& table_;
  const Plan& plan_;
  Board& board_;
  std::vector<std::string> names_;
};

}  // namespace

Result measure(const std::vector<Fault>& table, const Plan& plan) {
  Measurement measurement(table, plan);
  measurement.run();
  return measurement.report();
}

}  // namespace kiln::faults
