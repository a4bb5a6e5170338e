// The disk cache: compiled code by key, shared by processes. It can only save time: an entry that
// is not exactly what was stored is a miss, and a directory that cannot be used is no cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

struct CacheInfo {
  std::string directory;
  std::string problem;    // why it is not used; empty if it is
  bool writable = false;  // else entries are loaded and nothing in it is changed
  int64_t entries = 0;
  uint64_t bytes = 0;
  uint64_t limit = 0;  // of a writable one
};

// One directory of entries, a file each. Holds no state: any number may use one directory. It and
// its files are believed if they are this user's or root's and nobody else may write them. It is
// written only if it is this user's and its owner may write it.
class DiskCache {
 public:
  static constexpr uint64_t kDefaultLimit = 256u << 20;
  static constexpr uint64_t kUnlimited = UINT64_MAX;
  static constexpr uint32_t kFormat = 1;
  // Private: what is made is for this user alone; Shared: others may read it, as in an image.
  enum class Use : uint8_t { Private, Shared, ReadOnly };

  explicit DiskCache(std::filesystem::path directory, uint64_t limit = kDefaultLimit,
                     Use use = Use::Private);

  // `key` is 32 hex digits. None if there is no sound entry; where the directory may be written a
  // hit becomes the most recently used.
  std::optional<std::string> load(const std::string& key) const;
  // Replaces the entry in one step and removes the least recently used beyond the limit. False if
  // it cannot.
  bool store(const std::string& key, std::string_view payload) const;
  CacheInfo info() const;
  int64_t clear() const;  // the number of entries removed; other files stay
  std::filesystem::path file_of(const std::string& key) const;

 private:
  std::string problem(bool create = false) const;
  bool writable() const;

  std::filesystem::path directory_;
  uint64_t limit_;
  Use use_;
};

// Directories in the order in which entries are looked for; the first alone takes new ones. None
// at all is a cache that has nothing and takes nothing.
class CacheLayers {
 public:
  CacheLayers() = default;
  explicit CacheLayers(std::vector<DiskCache> layers) : layers_(std::move(layers)) {}

  std::optional<std::string> load(const std::string& key) const;
  bool store(const std::string& key, std::string_view payload) const;
  std::vector<CacheInfo> info() const;

 private:
  std::vector<DiskCache> layers_;
};

// The cache that KILN_CACHE, KILN_CACHE_DIR, KILN_CACHE_SIZE, KILN_CACHE_PATH, XDG_CACHE_HOME and
// HOME ask for now.
CacheLayers disk_cache();
// Its directories; where there is no place for one that is written, the first says why.
std::vector<CacheInfo> cache_info();
int64_t cache_clear();  // the number of entries removed from the one that is written

}  // namespace kiln
