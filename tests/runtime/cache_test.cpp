// The disk cache as a store of bytes: it returns exactly what was stored, or nothing.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>
#include <thread>

#include "ir/canon.h"
#include "ir/error.h"
#include "runtime/cache.h"
#include "tests/runtime/support.h"

using namespace kiln;
using namespace kiln::test;
namespace fs = std::filesystem;

namespace {

const std::string kKey = hash_text("a key"), kOther = hash_text("another key");
const std::string kPayload("payload \0 with any byte \xff", 25);

void set_age(const fs::path& path, int64_t seconds) {
  struct timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  struct timespec times[2] = {{now.tv_sec - seconds, 0}, {now.tv_sec - seconds, 0}};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

mode_t mode_of(const fs::path& path) {
  struct stat status;
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

// An entry with a right checksum whatever its header says.
std::string entry_text(const std::string& magic, uint32_t format, const std::string& key,
                       const std::string& payload) {
  auto number = [](uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
    return text;
  };
  std::string header =
      magic + number(format, 4) + number(key.size(), 8) + key + number(payload.size(), 8);
  return header + hash_text(header + payload) + payload;
}

}  // namespace

TEST_CASE("what was stored comes back, from a private file in a private directory") {
  TemporaryDirectory temporary;
  DiskCache cache(temporary.path() / "deep" / "er" / "");
  CHECK_FALSE(cache.load(kKey));
  CHECK(cache.info().problem.empty());
  cache.store(kKey, kPayload);
  CHECK(cache.load(kKey) == kPayload);
  CHECK_FALSE(cache.load(kOther));
  cache.store(kKey, "");
  CHECK(cache.load(kKey) == "");
  cache.store(kOther, kPayload);
  CHECK(mode_of(cache.file_of(kKey)) == 0600);
  CHECK(mode_of(temporary.path() / "deep" / "er") == 0700);
  CacheInfo info = cache.info();
  CHECK(info.entries == 2);
  CHECK(info.bytes == fs::file_size(cache.file_of(kKey)) + fs::file_size(cache.file_of(kOther)));
  CHECK(info.directory == (temporary.path() / "deep" / "er").string());
}

TEST_CASE("an entry cut at any length or with a bit flipped anywhere is no entry") {
  TemporaryDirectory temporary;
  DiskCache cache(temporary.path());
  cache.store(kKey, kPayload);
  const fs::path file = cache.file_of(kKey);
  const std::string good = read_file(file);
  for (size_t length = 0; length < good.size(); ++length) {
    write_file(file, good.substr(0, length));
    REQUIRE_FALSE(cache.load(kKey));
  }
  for (size_t bit = 0; bit < good.size() * 8; bit += 7) {  // every byte, another bit each
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    write_file(file, bad);
    REQUIRE_FALSE(cache.load(kKey));
  }
  write_file(file, good + "x");
  CHECK_FALSE(cache.load(kKey));
  write_file(file, good);
  CHECK(cache.load(kKey) == kPayload);
  write_file(file, good.substr(0, 20));
  cache.store(kKey, kPayload);  // repaired
  CHECK(cache.load(kKey) == kPayload);
}

TEST_CASE("an entry of another version, key or program is no entry") {
  TemporaryDirectory temporary;
  DiskCache cache(temporary.path());
  const fs::path file = cache.file_of(kKey);
  auto load = [&](const std::string& text) {
    write_file(file, text);
    ::chmod(file.c_str(), 0600);
    return cache.load(kKey);
  };
  CHECK(load(entry_text("KILNCODE", DiskCache::kFormat, kKey, kPayload)) == kPayload);
  CHECK_FALSE(load(entry_text("KILNCODE", DiskCache::kFormat + 1, kKey, kPayload)));
  CHECK_FALSE(load(entry_text("KILNCODE", DiskCache::kFormat - 1, kKey, kPayload)));
  CHECK_FALSE(load(entry_text("KILNCODE", DiskCache::kFormat, kOther, kPayload)));
  CHECK_FALSE(load(entry_text("KILNCODF", DiskCache::kFormat, kKey, kPayload)));
  CHECK_FALSE(load(""));
  CHECK_FALSE(load(std::string(100000, '\0')));
}

TEST_CASE("files that are not plain files of ours are not read") {
  TemporaryDirectory temporary;
  DiskCache cache(temporary.path());
  cache.store(kOther, kPayload);
  const std::string good = entry_text("KILNCODE", DiskCache::kFormat, kKey, kPayload);
  const fs::path file = cache.file_of(kKey);
  write_file(temporary.path() / "elsewhere", good);
  fs::create_symlink(temporary.path() / "elsewhere", file);
  CHECK_FALSE(cache.load(kKey));
  fs::remove(file);
  REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
  CHECK_FALSE(cache.load(kKey));  // and does not wait for a writer
  fs::remove(file);
  fs::create_directory(file);
  CHECK_FALSE(cache.load(kKey));
  cache.store(kKey, kPayload);  // cannot replace a directory: nothing happens
  CHECK_FALSE(cache.load(kKey));
  fs::remove(file);
  write_file(file, good);
  ::chmod(file.c_str(), 0666);
  CHECK_FALSE(cache.load(kKey));
  ::chmod(file.c_str(), 0600);
  CHECK(cache.load(kKey) == kPayload);
  if (::geteuid() == 0) {
    REQUIRE(::chown(file.c_str(), 12345, 12345) == 0);
    CHECK_FALSE(cache.load(kKey));
  }
}

TEST_CASE("a directory that cannot be used is no cache") {
  TemporaryDirectory temporary;
  const fs::path path = temporary.path() / "cache";
  DiskCache cache(path);
  auto stores = [&] {
    cache.store(kKey, kPayload);
    return cache.load(kKey).has_value();
  };
  write_file(path, "a file");
  CHECK_FALSE(stores());
  CHECK(cache.info().problem == "it is not a directory");
  CHECK(DiskCache(path / "below").info().problem == "Not a directory");
  DiskCache(path / "below").store(kKey, kPayload);
  CHECK_FALSE(DiskCache(path / "below").load(kKey));
  fs::remove(path);
  fs::create_directory(path);
  ::chmod(path.c_str(), 0777);
  CHECK_FALSE(stores());
  CHECK(cache.info().problem == "every user may write to it");
  ::chmod(path.c_str(), 0700);
  CHECK(stores());
  if (::geteuid() == 0) {
    REQUIRE(::chown(path.c_str(), 12345, 12345) == 0);
    CHECK_FALSE(cache.load(kKey));
    CHECK(cache.info().problem == "it belongs to another user");
    CHECK(cache.clear() == 0);
    REQUIRE(::chown(path.c_str(), 0, 0) == 0);
  }
  // A file system that takes no files, whoever asks.
  DiskCache proc("/proc/self");
  proc.store(kKey, kPayload);
  CHECK_FALSE(proc.load(kKey));
}

namespace {

// Everything that can be seen of a directory's files.
std::map<std::string, std::pair<std::string, int64_t>> snapshot(const fs::path& directory) {
  std::map<std::string, std::pair<std::string, int64_t>> files;
  for (const auto& file : fs::directory_iterator(directory))
    files[file.path().filename()] = {read_file(file.path()),
                                     file.last_write_time().time_since_epoch().count()};
  return files;
}

// Loads what is there, changes nothing whatever one asks.
void check_read_only(const DiskCache& cache, const fs::path& path) {
  const auto before = snapshot(path);
  CHECK(cache.load(kKey) == kPayload);
  CHECK_FALSE(cache.store(kOther, kPayload));
  CHECK_FALSE(cache.store(kKey, "another"));
  CHECK(cache.clear() == 0);
  const CacheInfo info = cache.info();
  CHECK(info.problem.empty());
  CHECK_FALSE(info.writable);
  CHECK(info.entries == 1);
  CHECK(snapshot(path) == before);
}

// Another user for a while; only root can.
class AsUser {
 public:
  explicit AsUser(uid_t user) { REQUIRE(::seteuid(user) == 0); }
  ~AsUser() {
    if (::seteuid(0) != 0) std::abort();
  }
  AsUser(const AsUser&) = delete;
};

}  // namespace

TEST_CASE("a directory that its owner may not write, or that is only to be read, is read") {
  TemporaryDirectory temporary;
  const fs::path path = temporary.path() / "cache";
  REQUIRE(DiskCache(path).store(kKey, kPayload));
  set_age(DiskCache(path).file_of(kKey), 5000);
  check_read_only(DiskCache(path, DiskCache::kUnlimited, DiskCache::Use::ReadOnly), path);
  ::chmod(path.c_str(), 0500);
  check_read_only(DiskCache(path), path);
  ::chmod(path.c_str(), 0700);
  CHECK(DiskCache(path).load(kKey) == kPayload);  // the same where it may be written: now used
  CHECK(DiskCache(path).store(kOther, kPayload));
  const DiskCache absent(temporary.path() / "absent", 0, DiskCache::Use::ReadOnly);
  CHECK(absent.info().problem == "it does not exist");
  CHECK_FALSE(fs::exists(temporary.path() / "absent"));
}

TEST_CASE("root's directory is read by others if only root may write it") {
  if (::geteuid() != 0) return;  // nobody else can make one
  constexpr uid_t kSomebody = 54321;
  TemporaryDirectory temporary;
  ::chmod(temporary.path().c_str(), 0755);
  const fs::path path = temporary.path() / "image" / "cache";
  const DiskCache shared(path, DiskCache::kUnlimited, DiskCache::Use::Shared);
  REQUIRE(shared.store(kKey, kPayload));
  CHECK(mode_of(path) == 0755);
  CHECK(mode_of(shared.file_of(kKey)) == 0644);
  set_age(shared.file_of(kKey), 5000);
  {
    AsUser user(kSomebody);
    check_read_only(DiskCache(path), path);
  }
  for (const auto& [mode, problem] :
       std::map<mode_t, std::string>{{0775, "it belongs to root and a group may write to it"},
                                     {0777, "every user may write to it"}}) {
    ::chmod(path.c_str(), mode);
    AsUser user(kSomebody);
    CHECK_FALSE(DiskCache(path).load(kKey));
    CHECK(DiskCache(path).info().problem == problem);
  }
  ::chmod(path.c_str(), 0755);
  for (mode_t mode : {0664, 0646}) {  // a file that others may write
    ::chmod(shared.file_of(kKey).c_str(), mode);
    AsUser user(kSomebody);
    CHECK_FALSE(DiskCache(path).load(kKey));
  }
  ::chmod(shared.file_of(kKey).c_str(), 0644);
  REQUIRE(::chown(path.c_str(), kSomebody + 1, 0) == 0);
  AsUser user(kSomebody);
  CHECK_FALSE(DiskCache(path).load(kKey));
  CHECK(DiskCache(path).info().problem == "it belongs to another user");
}

TEST_CASE("layers are searched in order, the first alone is written") {
  TemporaryDirectory temporary;
  const fs::path own = temporary.path() / "own", a = temporary.path() / "a",
                 b = temporary.path() / "b";
  REQUIRE(DiskCache(a).store(kKey, "of a"));
  REQUIRE(DiskCache(b).store(kKey, "of b"));
  REQUIRE(DiskCache(b).store(kOther, "of b"));
  set_age(DiskCache(a).file_of(kKey), 5000);
  const auto a_before = snapshot(a), b_before = snapshot(b);
  EnvironmentGuard guard(
      {{"KILN_CACHE", ""},
       {"KILN_CACHE_DIR", own},
       {"KILN_CACHE_SIZE", "1M"},
       {"KILN_CACHE_PATH", fmt::format("{}::/nonexistent:{}/", a.string(), b.string())}});
  CHECK(disk_cache().load(kKey) == "of a");
  CHECK(disk_cache().load(kOther) == "of b");
  CHECK_FALSE(disk_cache().load(hash_text("a third")));
  CHECK(disk_cache().store(kKey, "own"));
  CHECK(disk_cache().load(kKey) == "own");
  CHECK(snapshot(a) == a_before);
  CHECK(snapshot(b) == b_before);
  const std::vector<CacheInfo> all = cache_info();
  REQUIRE(all.size() == 4);
  CHECK(all[0].writable);
  CHECK(all[0].limit == 1 << 20);
  CHECK(all[1].directory == a);
  CHECK((all[1].problem.empty() && !all[1].writable && all[1].entries == 1));
  CHECK(all[2].problem == "it does not exist");
  CHECK(all[3].entries == 2);
  CHECK(cache_clear() == 1);
  CHECK(disk_cache().load(kKey) == "of a");
  CHECK(snapshot(a) == a_before);

  EnvironmentGuard nowhere({{"KILN_CACHE_DIR", ""}, {"XDG_CACHE_HOME", ""}, {"HOME", ""}});
  CHECK(disk_cache().load(kOther) == "of b");
  CHECK_FALSE(disk_cache().store(kKey, "nowhere"));
  CHECK(cache_info().front().problem == "none of KILN_CACHE_DIR, XDG_CACHE_HOME and HOME is set");
  CHECK(cache_info().size() == 4);
  CHECK(cache_clear() == 0);
}

TEST_CASE("beyond the limit the least recently used entries go") {
  TemporaryDirectory temporary;
  const std::string payload(1000, 'p');
  auto key = [](int i) { return hash_text(std::to_string(i)); };
  DiskCache unlimited(temporary.path());
  unlimited.store(key(0), payload);
  const uint64_t one = unlimited.info().bytes;
  DiskCache cache(temporary.path(), 4 * one);
  write_file(temporary.path() / "notes.txt", std::string(5000, 'n'));  // not ours, not counted
  for (int i = 0; i < 4; ++i) {
    cache.store(key(i), payload);
    set_age(cache.file_of(key(i)), 100 - i);
  }
  CHECK(cache.info().entries == 4);
  CHECK(cache.load(key(0)) == payload);  // now the most recently used
  cache.store(key(4), payload);
  CHECK(cache.load(key(0)));
  CHECK_FALSE(cache.load(key(1)));
  CHECK(cache.load(key(2)));
  CHECK(cache.info().bytes <= 4 * one);
  DiskCache(temporary.path(), 2 * one).store(key(5), payload);
  CHECK(cache.info().entries == 2);
  CHECK(cache.load(key(5)));
  set_age(cache.file_of(key(5)), -1000);  // by a clock that was ahead
  DiskCache(temporary.path(), one).store(key(6), payload);
  CHECK(cache.load(key(6)));
  CHECK(cache.info().entries == 1);
  DiskCache tiny(temporary.path(), 10);
  tiny.store(key(7), payload);  // larger than the cache may be
  CHECK_FALSE(cache.load(key(7)));
  CHECK_FALSE(tiny.load(key(6)));
  CHECK(cache.info().entries == 1);
  CHECK(fs::exists(temporary.path() / "notes.txt"));
}

TEST_CASE("left-over temporary files go when they are old") {
  TemporaryDirectory temporary;
  DiskCache cache(temporary.path());
  write_file(temporary.path() / ".new-1-1-1.1", "half");
  write_file(temporary.path() / ".new-2-2-2.2", "half");
  set_age(temporary.path() / ".new-1-1-1.1", 10000);
  cache.store(kKey, kPayload);
  CHECK_FALSE(fs::exists(temporary.path() / ".new-1-1-1.1"));
  CHECK(fs::exists(temporary.path() / ".new-2-2-2.2"));
}

TEST_CASE("clear removes entries and nothing else") {
  TemporaryDirectory temporary;
  DiskCache cache(temporary.path());
  cache.store(kKey, kPayload);
  cache.store(kOther, kPayload);
  write_file(temporary.path() / "notes.txt", "mine");
  write_file(temporary.path() / "notes.kiln", "mine");
  write_file(temporary.path() / ".new-9-9-9.9", "half");
  CHECK(cache.clear() == 2);
  CHECK(cache.info().entries == 0);
  CHECK_FALSE(cache.load(kKey));
  CHECK(fs::exists(temporary.path() / "notes.txt"));
  CHECK(fs::exists(temporary.path() / "notes.kiln"));
  CHECK_FALSE(fs::exists(temporary.path() / ".new-9-9-9.9"));
}

TEST_CASE("readers and writers of one key see whole entries only") {
  TemporaryDirectory temporary;
  DiskCache cache(temporary.path());
  auto payload = [](int i) {
    return std::string(static_cast<size_t>(1000 + 997 * i), char('a' + i));
  };
  std::vector<std::thread> threads;
  std::atomic<int> bad{0}, hits{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        cache.store(kKey, payload(t));
        auto loaded = cache.load(kKey);
        if (!loaded) continue;  // another user of the directory may remove it
        ++hits;
        if (loaded->empty() || *loaded != payload((*loaded)[0] - 'a')) ++bad;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(bad == 0);
  CHECK(hits == 800);
  CHECK(cache.info().entries == 1);
  CHECK(std::distance(fs::directory_iterator(temporary.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("the environment says where the cache is") {
  TemporaryDirectory temporary;
  const std::string root = temporary.path();
  std::map<std::string, std::string> base = {{"KILN_CACHE", ""},      {"KILN_CACHE_DIR", ""},
                                             {"KILN_CACHE_SIZE", ""}, {"KILN_CACHE_PATH", ""},
                                             {"XDG_CACHE_HOME", ""},  {"HOME", root}};
  auto with = [&](const std::string& name, const std::string& value) {
    auto values = base;
    values[name] = value;
    return values;
  };
  auto directory = [] { return cache_info().front().directory; };
  {
    EnvironmentGuard guard(base);
    CHECK(directory() == root + "/.cache/kiln");
    CHECK(cache_info().front().limit == 256u << 20);
    disk_cache().store(kKey, kPayload);
    CHECK(cache_info().front().entries == 1);
    CHECK(cache_clear() == 1);
  }
  {
    EnvironmentGuard guard(with("XDG_CACHE_HOME", root + "/xdg"));
    CHECK(directory() == root + "/xdg/kiln");
  }
  {
    EnvironmentGuard guard(with("XDG_CACHE_HOME", "relative"));
    CHECK(directory() == root + "/.cache/kiln");
  }
  {
    EnvironmentGuard guard(with("KILN_CACHE_DIR", root + "/mine/"));
    CHECK(directory() == root + "/mine");
  }
  {
    EnvironmentGuard guard(with("KILN_CACHE", "off"));
    CHECK_FALSE(disk_cache().store(kKey, kPayload));
    CHECK(cache_info().front().problem == "KILN_CACHE is off");
    CHECK(cache_clear() == 0);
  }
  {
    EnvironmentGuard guard(with("KILN_CACHE", "maybe"));
    CHECK(error_of([] { disk_cache(); }) == "KILN_CACHE: expected on or off, got 'maybe'");
  }
  {
    EnvironmentGuard guard(with("HOME", ""));
    CHECK_FALSE(disk_cache().store(kKey, kPayload));
    CHECK(cache_info().front().problem == "none of KILN_CACHE_DIR, XDG_CACHE_HOME and HOME is set");
  }
  for (auto [text, bytes] : std::map<std::string, uint64_t>{
           {"0", 0}, {"1000", 1000}, {"3K", 3072}, {"5m", 5u << 20}, {"2G", 2ull << 30}}) {
    EnvironmentGuard guard(with("KILN_CACHE_SIZE", text));
    CHECK(cache_info().front().limit == bytes);
  }
  for (const char* text : {"-1", "12x", "K", "1KB", "99999999999999999999", "9999999G", " 1"}) {
    EnvironmentGuard guard(with("KILN_CACHE_SIZE", text));
    CHECK(error_of([] { disk_cache(); }) ==
          fmt::format("KILN_CACHE_SIZE: expected a whole number from 0 to 1125899906842624 "
                      "(suffixes K, M, G), got '{}'",
                      text));
  }
}
