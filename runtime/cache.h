// The disk cache: compiled code by key, shared by processes. It can only save time: an entry that
// is not exactly what was stored is a miss, and a directory that cannot be used is no cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace kiln {

struct CacheInfo {
  std::string directory;
  std::string problem;  // why it is not used; empty if it is
  int64_t entries = 0;
  uint64_t bytes = 0;
  uint64_t limit = 0;
};

// One directory of entries, a file each. Holds no state: any number may use one directory.
class DiskCache {
 public:
  static constexpr uint64_t kDefaultLimit = 256u << 20;
  static constexpr uint32_t kFormat = 1;

  explicit DiskCache(std::filesystem::path directory, uint64_t limit = kDefaultLimit);

  // `key` is 32 hex digits. None if there is no sound entry; a hit becomes the most recently used.
  std::optional<std::string> load(const std::string& key) const;
  // Replaces the entry in one step and removes the least recently used beyond the limit.
  void store(const std::string& key, std::string_view payload) const;
  CacheInfo info() const;
  int64_t clear() const;  // the number of entries removed; other files stay
  std::filesystem::path file_of(const std::string& key) const;

 private:
  std::filesystem::path directory_;
  uint64_t limit_;
};

// The cache that KILN_CACHE, KILN_CACHE_DIR, KILN_CACHE_SIZE, XDG_CACHE_HOME and HOME ask for now.
// None if it is off or there is no place for it; then `problem`, if given, says why.
std::optional<DiskCache> disk_cache(std::string* problem = nullptr);
CacheInfo cache_info();
int64_t cache_clear();

}  // namespace kiln
