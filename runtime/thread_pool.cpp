#include "runtime/thread_pool.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <condition_variable>
#include <exception>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "ir/error.h"
#include "runtime/array.h"
#include "runtime/environment.h"

namespace kiln {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int64_t kChunksPerThread = 64;  // fine enough that uneven blocks even out

// Rounding mode, flush-to-zero and the like would make results depend on the thread that computes
// them: the caller may have changed his, the workers start with the default.
class DefaultFloats {
 public:
  DefaultFloats() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloats() { std::fesetenv(&saved_); }
  DefaultFloats(const DefaultFloats&) = delete;

 private:
  std::fenv_t saved_;
};

// One parallel_for. Whoever works on it takes the next chunk until there is none.
struct Job {
  Job(int64_t count, int threads, const std::function<void(int64_t, int64_t)>& body)
      : count(count),
        chunk(std::clamp<int64_t>(count / (threads * kChunksPerThread), 1, 256)),
        free_seats(threads - 1),
        body(body) {}

  bool has_work() const { return next.load(std::memory_order_relaxed) < count; }

  void work() {
    DefaultFloats floats;
    try {
      while (has_work()) {
        int64_t begin = next.fetch_add(chunk, std::memory_order_relaxed);
        if (begin < count) body(begin, begin + std::min(chunk, count - begin));
      }
    } catch (...) {
      std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
      next.store(count, std::memory_order_relaxed);
    }
  }

  const int64_t count;
  const int64_t chunk;
  int free_seats;  // workers that may still join; guarded by the pool's mutex, as is `working`
  int working = 0;
  const std::function<void(int64_t, int64_t)>& body;
  std::atomic<int64_t> next{0};
  std::mutex error_mutex;
  std::exception_ptr error;
};

class Pool {
 public:
  // Never destroyed: its threads may outlive main's statics. A forked process has none of them, and
  // a lock that one of them held stays locked there: it begins with another pool.
  static Pool& instance() {
    static Pool* pool = [] {
      pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });
      return new Pool;
    }();
    return *pool;
  }

  void run(Job& job) {
    std::list<Job*>::iterator place;
    {
      std::lock_guard lock(mutex_);
      grow(job.free_seats);
      place = jobs_.insert(jobs_.end(), &job);
    }
    wake_.notify_all();
    job.work();
    std::unique_lock lock(mutex_);
    jobs_.erase(place);  // nobody joins any more
    idle_.wait(lock, [&] { return job.working == 0; });
  }

 private:
  // To at least `count` workers. The pool never shrinks: a worker too many only sleeps.
  void grow(int count) {
    try {
      for (; workers_ < count; ++workers_) std::thread([this] { serve(); }).detach();
    } catch (const std::system_error&) {
      // No more threads to be had: those there are, at least the caller, do the work.
    }
  }

  Job* open_job() const {
    for (Job* job : jobs_)
      if (job->free_seats > 0 && job->has_work()) return job;
    return nullptr;
  }

  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      Job* job = nullptr;
      wake_.wait(lock, [&] { return (job = open_job()) != nullptr; });
      --job->free_seats;
      ++job->working;
      lock.unlock();
      job->work();
      lock.lock();
      if (--job->working == 0) idle_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;  // a job was added
  std::condition_variable idle_;  // a job has lost its last worker
  std::list<Job*> jobs_;
  int workers_ = 0;
};

std::atomic<int> chosen_threads{0};

// Blocks of scratch memory that this thread owns and does not use now.
struct FreeScratch {
  std::vector<std::pair<size_t, void*>> blocks;
  ~FreeScratch() {
    for (auto& [bytes, memory] : blocks) release_aligned(memory);
  }
};
thread_local FreeScratch free_scratch;

}  // namespace

int host_threads() {
  if (int count = chosen_threads.load()) return count;
  if (auto count = environment_number("KILN_THREADS", 1, kMaxThreads))
    return static_cast<int>(*count);
  return std::clamp<int>(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxThreads);
}

void set_host_threads(int count) {
  if (count < 0 || count > kMaxThreads)
    throw UserError(fmt::format("host threads: expected 1 to {}, got {}", kMaxThreads, count));
  chosen_threads = count;
}

void parallel_for(int64_t count, const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  int threads = static_cast<int>(std::min<int64_t>(host_threads(), count));
  Job job(count, threads, body);
  if (threads == 1)
    job.work();
  else
    Pool::instance().run(job);
  if (job.error) std::rethrow_exception(job.error);
}

Scratch::Scratch(size_t bytes) : data_(nullptr), bytes_(bytes) {
  auto& blocks = free_scratch.blocks;
  if (!blocks.empty()) {
    std::tie(bytes_, data_) = blocks.back();
    blocks.pop_back();
    if (bytes_ >= bytes) return;
    release_aligned(data_);
  }
  bytes_ = bytes;
  data_ = allocate_aligned(bytes);
}

Scratch::~Scratch() {
  free_scratch.blocks.emplace_back(bytes_, data_);
}

}  // namespace kiln
