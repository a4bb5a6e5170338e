// What loading Kiln does to a process (nothing that can be seen), and what a fork does to Kiln.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>

static void require(bool good, const std::string& what) {
  if (!good) throw std::runtime_error(what);
}

static bool mapped(const std::string& library) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("/" + library) != std::string::npos) return true;
  return false;
}

static size_t entries(const char* folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

using Function = const char* (*)(const char* device);

static void use(Function function, const std::string& where) {
  for (const char* device : {"host", "emulator"}) {
    const char* problem = function(device);
    require(!problem, where + ", " + device + ": " + (problem ? problem : ""));
  }
}

// The use in a child of a fork, which must end by itself.
static void use_in_child(Function function, const std::string& where) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    try {
      use(function, where);
    } catch (const std::exception& error) {
      std::cerr << error.what() << "\n";
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  require(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
          where + ": status " + std::to_string(status));
}

int main(int argc, char** argv) try {
  require(argc == 2, "usage: loading LIBRARY");
  const size_t files = entries("/proc/self/fd");
  const auto start = std::chrono::steady_clock::now();
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  require(library, library ? "" : dlerror());
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  std::cout << "loaded in " << took.count() << " ms\n";
  require(mapped("libkiln.so"), "libkiln.so is not loaded");
  for (const char* other : {"libcuda", "libcudart", "libnvidia", "libLLVM"})
    require(!mapped(other), std::string("loading it loads ") + other);
  require(entries("/proc/self/task") == 1, "loading it starts a thread");
  require(entries("/proc/self/fd") == files, "loading it opens a file");

  const auto function = reinterpret_cast<Function>(dlsym(library, "own_kernel"));
  require(function, "no own_kernel in it");
  use_in_child(function, "in a child, before any use");
  use(function, "in the parent");
  require(!mapped("libcuda"), "the host loads libcuda");
  use_in_child(function, "in a child, after use in the parent");
  use(function, "in the parent, once more");
  require(dlclose(library) == 0, "it cannot be closed");
  require(mapped("libkiln.so"), "closing it takes the code away from its threads");
  return 0;
} catch (const std::exception& error) {
  std::cerr << "loading: " << error.what() << "\n";
  return 1;
}
