#include "ir/interp_storage_impl.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/error.h"

namespace kiln::interp {
namespace {

std::string_view op_name(const Op& op) {
  return info(op.code).name;
}

// The index of an element of a tile. Tensors have any strides, so theirs cannot be recovered.
std::string element_text(const Storage& storage, int64_t offset) {
  if (storage.bytes) return fmt::format("offset {}", offset);
  Shape index(storage.extents.size());
  for (size_t axis = index.size(); axis-- > 0;) {
    index[axis] = offset % storage.extents[axis];
    offset /= storage.extents[axis];
  }
  return str(index);
}

// Calls visit(index) for every point of a box, the last axis fastest.
template <class Visit>
void for_each_index(const Shape& extents, Visit&& visit) {
  if (count(extents) == 0) return;
  Shape index(extents.size(), 0);
  while (true) {
    visit(index.data());
    size_t axis = extents.size();
    while (axis-- > 0) {
      if (++index[axis] < extents[axis]) break;
      index[axis] = 0;
    }
    if (axis == static_cast<size_t>(-1)) return;
  }
}

}  // namespace

Storage new_tile(const Type& type, bool reshaped) {
  Storage tile;
  tile.type = type;
  tile.extents = type.shape;
  tile.strides = Memory::contiguous(nullptr, type.dtype, type.shape).strides;
  const auto elements = static_cast<size_t>(count(type.shape));
  if (reshaped)
    tile.image.resize(elements * size_of(type.dtype));
  else
    tile.cells.resize(elements);
  tile.forget();
  return tile;
}

Storage reshaped(Storage& tile, const Type& type) {
  Storage made;
  made.type = type;
  made.extents = type.shape;
  made.strides = Memory::contiguous(nullptr, type.dtype, type.shape).strides;
  made.whole = &tile.marks();
  return made;
}

bool Storage::is_written(int64_t offset) const {
  if (bytes) return true;
  const auto [first, count] = marks_of(offset);
  for (size_t i = 0; i < count; ++i)
    if (!marks().written[first + i]) return false;
  return true;
}

void Storage::forget() {
  written.assign(image.empty() ? cells.size() : image.size(), 0);
}

View View::whole(Storage& base) {
  Shape zero(base.extents.size(), 0);
  return {&base, base.extents, zero, zero, base.extents, Shape(base.extents.size(), 1)};
}

View View::every(size_t axis, int64_t begin, int64_t end, int64_t step) const {
  View view = *this;
  end = std::min(end, extents[axis]);
  const int64_t count = begin < 0 || begin >= end ? 0 : (end - begin + step - 1) / step;
  view.first += begin * base->strides[lacking + axis];
  view.steps[axis] = step;
  view.extents[axis] = view.high[axis] = count;
  return view;
}

View View::slice(const Shape& index, const Shape& sizes) const {
  const size_t fewer = index.size() - sizes.size();
  if (fewer > 0)
    return without_front(index, fewer)
        .slice({index.begin() + static_cast<ptrdiff_t>(fewer), index.end()}, sizes);
  View view = *this;
  for (size_t axis = 0; axis < index.size(); ++axis) {
    int64_t size =
        sizes[axis] == kDynamic ? std::max<int64_t>(0, extents[axis] - index[axis]) : sizes[axis];
    view.extents[axis] = size;
    view.origin[axis] += index[axis];
    view.low[axis] = std::max(low[axis], view.origin[axis]);
    view.high[axis] = std::min(high[axis], view.origin[axis] + size);
  }
  return view;
}

View View::without_front(const Shape& index, size_t axes) const {
  View view = *this;
  for (size_t axis = 0; axis < axes; ++axis)
    view.first += (origin[axis] + index[axis]) * steps[axis] * base->strides[lacking + axis];
  view.lacking += axes;
  for (Shape* each : {&view.extents, &view.origin, &view.low, &view.high, &view.steps})
    each->erase(each->begin(), each->begin() + static_cast<ptrdiff_t>(axes));
  return view;
}

std::optional<int64_t> View::locate(const int64_t* index) const {
  int64_t offset = first;
  for (size_t axis = 0; axis < extents.size(); ++axis) {
    int64_t at = origin[axis] + index[axis];
    if (at < low[axis] || at >= high[axis]) return std::nullopt;
    offset += at * steps[axis] * base->strides[lacking + axis];
  }
  return offset;
}

Scalar read_element(const Op& op, const Storage& storage, int64_t offset) {
  if (storage.bytes)
    return load_element(storage.type.dtype,
                        storage.bytes + offset * static_cast<int64_t>(size_of(storage.type.dtype)));
  if (!storage.is_written(offset))
    throw UserError(op.loc,
                    fmt::format("{} reads element {} of {}, which was never written", op_name(op),
                                element_text(storage, offset), str(storage.type)),
                    "write it first (fill, clear or copy)");
  const std::vector<std::byte>& image = storage.marks().image;
  if (!image.empty())
    return load_element(storage.type.dtype, image.data() + storage.marks_of(offset).first);
  return storage.cells[static_cast<size_t>(offset)];
}

void write_element(Storage& storage, int64_t offset, const Scalar& value) {
  if (storage.bytes) {
    store_element(value,
                  storage.bytes + offset * static_cast<int64_t>(size_of(storage.type.dtype)));
    return;
  }
  Storage& marks = storage.marks();
  const auto [first, count] = storage.marks_of(offset);
  if (marks.image.empty())
    storage.cells[first] = value;
  else
    store_element(value, marks.image.data() + first);
  std::fill_n(marks.written.begin() + static_cast<ptrdiff_t>(first), count, uint8_t{1});
}

std::vector<Scalar> gather(const Op& op, const View& view, const Scalar& outside) {
  std::vector<Scalar> values;
  values.reserve(static_cast<size_t>(count(view.extents)));
  for_each_index(view.extents, [&](const int64_t* index) {
    auto offset = view.locate(index);
    values.push_back(offset ? read_element(op, *view.base, *offset) : outside);
  });
  return values;
}

void scatter(const View& view, const std::vector<Scalar>& values) {
  size_t next = 0;
  for_each_index(view.extents, [&](const int64_t* index) {
    if (auto offset = view.locate(index)) write_element(*view.base, *offset, values[next]);
    ++next;
  });
}

void RaceDetector::begin(const std::vector<int64_t>& extents, const std::vector<Storage*>& stored) {
  extents_ = extents;
  stored_ = stored;
  active_ = true;
  global_ = false;
  first_ = many_ + 1;
  many_ = first_ + static_cast<uint64_t>(count(extents));
  global_touched_.clear();
  for (Storage* storage : stored) {
    global_ |= storage->bytes != nullptr;
    storage->tracked = true;
    storage->touched.resize(storage->written.size());
  }
}

void RaceDetector::end() {
  for (Storage* storage : stored_) storage->tracked = false;
  active_ = false;
}

// Tensors may overlap in memory, so one that is stored to makes all of them watched, by address.
bool RaceDetector::watches(const Storage& storage) const {
  return active_ && (storage.bytes ? global_ : storage.marks().tracked);
}

std::span<Touch> RaceDetector::touches(Storage& storage, int64_t offset) {
  if (storage.bytes)
    return {&global_touched_[storage.bytes +
                             offset * static_cast<int64_t>(size_of(storage.type.dtype))],
            1};
  const auto [first, count] = storage.marks_of(offset);
  return {storage.marks().touched.data() + first, count};
}

void RaceDetector::read(const Op& op, Storage& storage, int64_t offset) {
  if (!watches(storage)) return;
  for (Touch& touched : touches(storage, offset)) {
    if (fresh(touched.writer) && touched.writer != iteration_)
      fail(op, storage, offset, "reads", touched.writer, "writes");
    refuse_mixed(op, storage, offset, "reads", touched.atomic, "updates atomically");
    touched.reader = fresh(touched.reader) && touched.reader != iteration_ ? many_ : iteration_;
  }
}

void RaceDetector::write(const Op& op, Storage& storage, int64_t offset) {
  if (!watches(storage)) return;
  for (Touch& touched : touches(storage, offset)) {
    if (fresh(touched.writer) && touched.writer != iteration_)
      fail(op, storage, offset, "writes", touched.writer, "writes");
    if (fresh(touched.reader) && touched.reader != iteration_)
      fail(op, storage, offset, "writes", touched.reader, "reads");
    refuse_mixed(op, storage, offset, "writes", touched.atomic, "updates atomically");
    touched.writer = iteration_;
  }
}

void RaceDetector::atomic(const Op& op, Storage& storage, int64_t offset) {
  if (!watches(storage)) return;
  for (Touch& touched : touches(storage, offset)) {
    refuse_mixed(op, storage, offset, "updates atomically", touched.writer, "writes");
    refuse_mixed(op, storage, offset, "updates atomically", touched.reader, "reads");
    touched.atomic = iteration_;
  }
}

// One iteration may not do both either: nothing orders its own accesses of an element to which
// others come.
void RaceDetector::refuse_mixed(const Op& op, const Storage& storage, int64_t offset,
                                const char* does, uint64_t other, const char* did) const {
  if (fresh(other))
    fail(op, storage, offset, does, other, did,
         "in one parallel an element is touched by atomics alone, or not by them");
}

void RaceDetector::fail(const Op& op, const Storage& storage, int64_t offset, const char* does,
                        uint64_t other, const char* did, const char* hint) const {
  auto iteration = [&](uint64_t stamp) {
    if (stamp == many_) return std::string("another iteration");
    int64_t rest = static_cast<int64_t>(stamp - first_);
    Shape index(extents_.size());
    for (size_t axis = index.size(); axis-- > 0;) {
      index[axis] = rest % extents_[axis];
      rest /= extents_[axis];
    }
    return "iteration " + str(index);
  };
  throw UserError(
      op.loc,
      fmt::format("parallel: {} {} element {} of {}, which {} {}", iteration(iteration_), does,
                  element_text(storage, offset), str(storage.type), iteration(other), did),
      hint ? hint : "iterations run in any order: give each its own elements, or use reduce");
}

}  // namespace kiln::interp
