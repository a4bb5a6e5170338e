#include "tests/differential/jobs.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <stdexcept>

namespace kiln::differential {
namespace {

struct Process {
  pid_t id;
  int channel;
};

// In the child: gives the result to the channel, and ends.
[[noreturn]] void work_for(int channel, const std::function<std::string()>& work) {
  int status = 0;
  try {
    const std::string result = work();
    for (size_t at = 0; at < result.size();) {
      const ssize_t n = write(channel, result.data() + at, result.size() - at);
      if (n <= 0) _exit(3);
      at += static_cast<size_t>(n);
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    status = 2;
  }
  std::fflush(stdout);
  _exit(status);
}

Process start(const std::function<std::string()>& work) {
  int channel[2];
  if (pipe(channel) != 0) throw std::runtime_error("pipe failed");
  std::fflush(stdout);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    close(channel[0]);
    work_for(channel[1], work);
  }
  close(channel[1]);
  return {child, channel[0]};
}

std::string result_of(const Process& process) {
  std::string result;
  char buffer[4096];
  for (ssize_t n; (n = read(process.channel, buffer, sizeof buffer)) > 0;)
    result.append(buffer, static_cast<size_t>(n));
  close(process.channel);
  int status = 0;
  waitpid(process.id, &status, 0);
  if (status != 0) throw std::runtime_error(fmt::format("a process ended with status {}", status));
  return result;
}

}  // namespace

std::vector<std::string> in_processes(int jobs, const std::function<std::string(int)>& work) {
  if (jobs <= 1) return {work(0)};
  std::vector<Process> processes;
  for (int job = 0; job < jobs; ++job) processes.push_back(start([&, job] { return work(job); }));
  std::vector<std::string> results;
  for (const Process& process : processes) results.push_back(result_of(process));
  return results;
}

}  // namespace kiln::differential
