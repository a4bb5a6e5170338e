#include "tests/differential/child.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <stdexcept>

namespace kiln::differential {

std::string guarded(const std::function<std::string()>& check, unsigned seconds) {
  int channel[2];
  if (pipe(channel) != 0) throw std::runtime_error("pipe failed");
  std::fflush(stdout);  // or the child would print it again
  pid_t child = fork();
  if (child == 0) {
    alarm(seconds);
    std::string result;
    try {
      result = check();
    } catch (const std::exception& error) {
      result = error.what();
    }
    if (write(channel[1], result.data(), result.size()) < 0) _exit(3);
    _exit(0);
  }
  close(channel[1]);
  std::string result;
  char buffer[4096];
  for (ssize_t n; (n = read(channel[0], buffer, sizeof buffer)) > 0;)
    result.append(buffer, static_cast<size_t>(n));
  close(channel[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
    return fmt::format("exited with status {}", WEXITSTATUS(status));
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
    return fmt::format("takes longer than {} s", seconds);
  if (WIFSIGNALED(status)) return fmt::format("crashed with signal {}", WTERMSIG(status));
  return result;
}

}  // namespace kiln::differential
