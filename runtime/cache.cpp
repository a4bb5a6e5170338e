#include "runtime/cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <sstream>
#include <utility>
#include <vector>

#include "ir/canon.h"
#include "ir/error.h"
#include "runtime/bytes.h"
#include "runtime/environment.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

// An entry: magic, format version, key, payload size, checksum of those and the payload, payload.
constexpr std::string_view kMagic = "KILNCODE";
constexpr std::string_view kSuffix = ".kiln";
constexpr std::string_view kTemporary = ".new-";
constexpr size_t kHashDigits = 32;
constexpr time_t kAbandoned = 3600;  // seconds after which a temporary file has no writer

std::string header_of(const std::string& key, std::string_view payload) {
  ByteWriter out;
  out.raw(kMagic);
  out.number(DiskCache::kFormat, 4);
  out.string(key);
  out.number(payload.size());
  return out.take();
}

std::string checksum(std::string_view header, std::string_view payload) {
  std::string text(header);
  text += payload;
  return hash_text(text);
}

// A descriptor that closes itself.
class File {
 public:
  File(const fs::path& path, int flags, mode_t mode = 0)
      : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {}
  ~File() { close(); }
  File(const File&) = delete;
  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  bool close() {
    int descriptor = std::exchange(descriptor_, -1);
    return descriptor < 0 || ::close(descriptor) == 0;
  }

  bool write(std::string_view text) {
    while (!text.empty()) {
      ssize_t count = ::write(descriptor_, text.data(), text.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      text.remove_prefix(static_cast<size_t>(count));
    }
    return true;
  }
  std::string read(size_t size) {  // shorter if the file is
    std::string text(size, '\0');
    size_t done = 0;
    while (done < size) {
      ssize_t count = ::read(descriptor_, text.data() + done, size - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      done += static_cast<size_t>(count);
    }
    text.resize(done);
    return text;
  }

 private:
  int descriptor_;
};

// Code from a file that another user may write is code that another user may choose; root may
// anyway.
bool is_ours_or_roots(const struct stat& status) {
  return status.st_uid == ::geteuid() || status.st_uid == 0;
}
bool trusted(const struct stat& status) {
  return is_ours_or_roots(status) && !(status.st_mode & (S_IWGRP | S_IWOTH));
}

void make_directory(const fs::path& directory, mode_t mode) {
  std::error_code ignored;
  fs::create_directories(directory.parent_path(), ignored);
  ::mkdir(directory.c_str(), mode);
}

struct Entry {
  fs::path path;
  uint64_t bytes;
  struct timespec used;
  bool temporary;
};

bool is_entry_name(const std::string& name) {
  return name.size() == kHashDigits + kSuffix.size() && name.ends_with(kSuffix) &&
         name.find_first_not_of("0123456789abcdef") == kHashDigits;
}

// Entries and temporary files; whatever else lies in the directory is not ours.
std::vector<Entry> list(const fs::path& directory) {
  std::vector<Entry> entries;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename();
    bool temporary = name.starts_with(kTemporary);
    struct stat status;
    if (!(temporary || is_entry_name(name)) || ::lstat(it->path().c_str(), &status) != 0 ||
        !S_ISREG(status.st_mode))
      continue;
    entries.push_back(
        {it->path(), static_cast<uint64_t>(status.st_size), status.st_mtim, temporary});
  }
  return entries;
}

bool older(const Entry& a, const Entry& b) {
  return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
}

void evict(const fs::path& directory, uint64_t limit, const fs::path& keep) {
  std::vector<Entry> entries = list(directory);
  std::sort(entries.begin(), entries.end(), older);
  uint64_t total = 0;
  for (const Entry& entry : entries) total += entry.bytes;
  time_t now = std::time(nullptr);
  for (const Entry& entry : entries) {
    bool remove = entry.temporary ? entry.used.tv_sec + kAbandoned < now
                                  : total > limit && entry.path != keep;
    if (!remove) continue;
    ::unlink(entry.path.c_str());  // if that fails another process was faster
    total -= entry.bytes;
  }
}

fs::path temporary_name(const fs::path& directory) {
  static std::atomic<uint64_t> counter{0};
  struct timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  return directory /
         fmt::format("{}{}-{}-{}.{}", kTemporary, ::getpid(), counter++, now.tv_sec, now.tv_nsec);
}

}  // namespace

DiskCache::DiskCache(fs::path directory, uint64_t limit, Use use)
    : directory_(directory.lexically_normal()), limit_(limit), use_(use) {
  if (!directory_.has_filename()) directory_ = directory_.parent_path();  // "dir/" is "dir"
}

// Why the directory cannot be used; empty if it can. Makes it first if `create`.
std::string DiskCache::problem(bool create) const {
  create = create && use_ != Use::ReadOnly;
  if (create) make_directory(directory_, use_ == Use::Shared ? 0755 : 0700);
  struct stat status;
  if (::stat(directory_.c_str(), &status) != 0)
    return errno != ENOENT ? std::strerror(errno)
           : create        ? "it cannot be made"
                           : "it does not exist";
  if (!S_ISDIR(status.st_mode)) return "it is not a directory";
  if (!is_ours_or_roots(status)) return "it belongs to another user";
  if (status.st_mode & S_IWOTH) return "every user may write to it";
  if (status.st_uid != ::geteuid() && (status.st_mode & S_IWGRP))
    return "it belongs to root and a group may write to it";
  return "";
}

// Of one that has no problem. Root may write anywhere, but does not where the owner may not.
bool DiskCache::writable() const {
  struct stat status;
  return use_ != Use::ReadOnly && ::stat(directory_.c_str(), &status) == 0 &&
         status.st_uid == ::geteuid() && (status.st_mode & S_IWUSR) &&
         ::faccessat(AT_FDCWD, directory_.c_str(), W_OK, AT_EACCESS) == 0;
}

fs::path DiskCache::file_of(const std::string& key) const {
  return directory_ / (key + std::string(kSuffix));
}

std::optional<std::string> DiskCache::load(const std::string& key) const {
  if (!problem().empty()) return std::nullopt;
  File file(file_of(key), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  struct stat status;
  if (!file.is_open() || ::fstat(file.descriptor(), &status) != 0 || !S_ISREG(status.st_mode) ||
      !trusted(status) || static_cast<uint64_t>(status.st_size) > limit_)
    return std::nullopt;
  std::string text = file.read(static_cast<size_t>(status.st_size));

  std::string header = header_of(key, "");
  size_t prefix = header.size() + kHashDigits;
  if (text.size() < prefix) return std::nullopt;
  std::string_view payload = std::string_view(text).substr(prefix);
  header = header_of(key, payload);
  if (!text.starts_with(header) ||
      std::string_view(text).substr(header.size(), kHashDigits) != checksum(header, payload))
    return std::nullopt;
  if (writable()) ::futimens(file.descriptor(), nullptr);
  return std::string(payload);
}

bool DiskCache::store(const std::string& key, std::string_view payload) const {
  std::string header = header_of(key, payload);
  if (header.size() + kHashDigits + payload.size() > limit_ || !problem(true).empty() ||
      !writable())
    return false;
  fs::path temporary = temporary_name(directory_), path = file_of(key);
  File file(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, use_ == Use::Shared ? 0644 : 0600);
  if (!file.is_open()) return false;
  bool written = file.write(header) && file.write(checksum(header, payload)) && file.write(payload);
  written = file.close() && written;
  if (!written || ::rename(temporary.c_str(), path.c_str()) != 0) {
    ::unlink(temporary.c_str());
    return false;
  }
  evict(directory_, limit_, path);
  return true;
}

CacheInfo DiskCache::info() const {
  CacheInfo info{directory_, problem(true)};  // makes it, as the first store would
  info.writable = info.problem.empty() && writable();
  info.limit = limit_;
  for (const Entry& entry : list(directory_)) {
    info.bytes += entry.bytes;
    info.entries += entry.temporary ? 0 : 1;
  }
  return info;
}

int64_t DiskCache::clear() const {
  if (!problem().empty() || !writable()) return 0;
  int64_t removed = 0;
  for (const Entry& entry : list(directory_))
    if (::unlink(entry.path.c_str()) == 0 && !entry.temporary) ++removed;
  return removed;
}

std::optional<std::string> CacheLayers::load(const std::string& key) const {
  for (const DiskCache& layer : layers_)
    if (auto payload = layer.load(key)) return payload;
  return std::nullopt;
}

bool CacheLayers::store(const std::string& key, std::string_view payload) const {
  return !layers_.empty() && layers_.front().store(key, payload);
}

std::vector<CacheInfo> CacheLayers::info() const {
  std::vector<CacheInfo> all;
  for (const DiskCache& layer : layers_) all.push_back(layer.info());
  return all;
}

static fs::path default_directory() {
  if (auto directory = environment("KILN_CACHE_DIR")) return *directory;
  auto xdg = environment("XDG_CACHE_HOME");
  if (xdg && fs::path(*xdg).is_absolute()) return fs::path(*xdg) / "kiln";
  if (auto home = environment("HOME")) return fs::path(*home) / ".cache" / "kiln";
  return {};
}

static bool is_on() {
  const std::string state = environment("KILN_CACHE").value_or("on");
  if (state != "on" && state != "off")
    throw UserError(fmt::format("KILN_CACHE: expected on or off, got '{}'", state));
  return state == "on";
}

// The one that is written; none if there is no place for it.
static std::optional<DiskCache> own_cache() {
  const fs::path directory = default_directory();
  if (directory.empty()) return std::nullopt;
  auto limit = environment_number("KILN_CACHE_SIZE", 0, int64_t{1} << 50, true);
  return DiskCache(directory, limit ? static_cast<uint64_t>(*limit) : DiskCache::kDefaultLimit);
}

CacheLayers disk_cache() {
  std::vector<DiskCache> layers;
  if (!is_on()) return CacheLayers();
  if (auto own = own_cache()) layers.push_back(std::move(*own));
  std::istringstream further(environment("KILN_CACHE_PATH").value_or(""));
  for (std::string directory; std::getline(further, directory, ':');)
    if (!directory.empty())
      layers.emplace_back(directory, DiskCache::kUnlimited, DiskCache::Use::ReadOnly);
  return CacheLayers(std::move(layers));
}

std::vector<CacheInfo> cache_info() {
  if (!is_on()) return {{.problem = "KILN_CACHE is off"}};
  std::vector<CacheInfo> all = disk_cache().info();
  if (!own_cache())
    all.insert(all.begin(),
               CacheInfo{.problem = "none of KILN_CACHE_DIR, XDG_CACHE_HOME and HOME is set"});
  return all;
}

int64_t cache_clear() {
  const auto own = is_on() ? own_cache() : std::nullopt;
  return own ? own->clear() : 0;
}

}  // namespace kiln
