// Tensors, tiles and views while the interpreter runs: bounds, undefined elements, races.
#pragma once

#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "ir/kernel.h"
#include "ir/memory.h"

namespace kiln::interp {

struct Slot;

// Who touched an element in the current `parallel`, as stamps that never repeat in a run.
struct Touch {
  uint64_t writer = 0;
  uint64_t reader = 0;
  uint64_t atomic = 0;
};

// A tensor (bytes of the caller or of a workspace), a tile (values, with a mark for each written),
// a tile that is reshaped (its image, with a mark for each byte), or a reshape of one.
struct Storage {
  Type type;
  Shape extents;
  Shape strides;  // in elements
  std::byte* bytes = nullptr;
  std::vector<Scalar> cells;
  std::vector<std::byte> image;
  Storage* whole = nullptr;  // of a reshape: the tile that has the image and the marks
  std::vector<uint8_t> written;
  std::vector<Touch> touched;
  bool tracked = false;  // races are looked for
  Slot* slot = nullptr;  // of a channel, whose payload it is

  Storage& marks() { return whole ? *whole : *this; }
  const Storage& marks() const { return whole ? *whole : *this; }
  // Where the marks of an element begin, and how many it has.
  struct Marks {
    size_t first, count;
  };
  Marks marks_of(int64_t offset) const {
    const auto at = static_cast<size_t>(offset);
    if (marks().image.empty()) return {at, 1};
    return {at * size_of(type.dtype), size_of(type.dtype)};
  }
  bool is_written(int64_t offset) const;
  void forget();  // nothing of the tile was written yet
};
// Of elements never written. `reshaped`: it has an image.
Storage new_tile(const Type& type, bool reshaped = false);
Storage reshaped(Storage& tile, const Type& type);

// A rectangle of a storage. An element is inside if every view of the chain and the storage hold
// it: a slice of a slice does not see past the outer one.
struct View {
  Storage* base = nullptr;
  Shape extents;
  Shape origin;        // of the view, in the base's coordinates
  Shape low, high;     // of what is inside, in the base's coordinates
  Shape steps;         // of the base's elements, from one coordinate to the next
  size_t lacking = 0;  // axes of the base in front that the view has one place of, and not itself
  int64_t first = 0;   // where coordinate 0 lies

  static View whole(Storage& base);
  // kDynamic: to the end of the axis. With fewer sizes than indices, without the axes in front.
  View slice(const Shape& index, const Shape& sizes) const;
  // Along an axis the elements begin, begin + step, … below end, as a storage of their own.
  View every(size_t axis, int64_t begin, int64_t end, int64_t step) const;
  // Where the element at `index` (of the view) lies in the base; none if outside.
  std::optional<int64_t> locate(const int64_t* index) const;
  View without_front(const Shape& index, size_t axes) const;  // one place of each of them
};

// Finds iterations of one `parallel` that touch the same element, and elements that atomics touch
// and others too.
class RaceDetector {
 public:
  // Between begin and end, accesses to the stored-to storages are recorded.
  void begin(const std::vector<int64_t>& extents, const std::vector<Storage*>& stored);
  void end();
  void enter(uint64_t iteration) { iteration_ = first_ + iteration; }
  void read(const Op& op, Storage& storage, int64_t offset);
  void write(const Op& op, Storage& storage, int64_t offset);
  void atomic(const Op& op, Storage& storage, int64_t offset);

 private:
  std::span<Touch> touches(Storage& storage, int64_t offset);
  bool watches(const Storage& storage) const;
  bool fresh(uint64_t stamp) const { return stamp >= first_; }
  void refuse_mixed(const Op& op, const Storage& storage, int64_t offset, const char* does,
                    uint64_t other, const char* did) const;
  [[noreturn]] void fail(const Op& op, const Storage& storage, int64_t offset, const char* does,
                         uint64_t other, const char* did, const char* hint = nullptr) const;

  std::vector<int64_t> extents_;
  std::vector<Storage*> stored_;
  bool active_ = false, global_ = false;
  uint64_t first_ = 1, many_ = 1,
           iteration_ = 1;  // stamps of this parallel; many_: several readers
  std::unordered_map<const std::byte*, Touch> global_touched_;
};

// One element. Reading one that was never written is a UserError at the op.
Scalar read_element(const Op& op, const Storage& storage, int64_t offset);
void write_element(Storage& storage, int64_t offset,
                   const Scalar& value);  // of the storage's dtype

// All elements of a view in row-major order; those outside are `outside`, or left alone.
std::vector<Scalar> gather(const Op& op, const View& view, const Scalar& outside);
void scatter(const View& view, const std::vector<Scalar>& values);

}  // namespace kiln::interp
