// Rows by index, and what kernels say about themselves.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "ir/error.h"
#include "ir/interp_impl.h"
#include "ir/log.h"
#include "ir/report.h"

namespace kiln::interp {
namespace {

// Calls visit(row, index, number) for every element of a tile of rows: its first index, where it is
// in what is picked from, and its number in row-major order.
template <class Visit>
void for_each_element(const View& tile, const View& all, const std::vector<Scalar>& rows,
                      Visit&& visit) {
  const size_t extra = all.extents.size() - tile.extents.size();
  const int64_t elements = count(tile.extents);
  Shape index(all.extents.size(), 0);
  for (int64_t number = 0; number < elements; ++number) {
    int64_t rest = number;
    for (size_t axis = tile.extents.size(); axis-- > 0;) {
      index[extra + axis] = rest % tile.extents[axis];
      rest /= tile.extents[axis];
    }
    const int64_t row = index[extra];
    index[extra] = rows[static_cast<size_t>(row)].i;
    visit(row, index, static_cast<size_t>(number));
  }
}

}  // namespace

void run_gather(const Interpreter& at, const Op& op) {
  const View &from = at.view(op.operands[0]), &to = at.view(op.operands[2]);
  const std::vector<Scalar> rows = gather(op, at.view(op.operands[1]), Scalar::of_int(I32, 0));
  const Scalar pad = convert(Scalar::of_float(F64, op.real("pad")), from.base->type.dtype);
  std::vector<Scalar> values(static_cast<size_t>(count(to.extents)));
  for_each_element(to, from, rows, [&](int64_t, const Shape& index, size_t number) {
    const auto offset = from.locate(index.data());
    values[number] =
        convert(offset ? read_element(op, *from.base, *offset) : pad, to.base->type.dtype);
  });
  scatter(to, values);
}

void run_scatter(const Interpreter& at, const Op& op) {
  const View &from = at.view(op.operands[0]), &to = at.view(op.operands[2]);
  const std::vector<Scalar> rows = gather(op, at.view(op.operands[1]), Scalar::of_int(I32, 0));
  const std::vector<Scalar> values =
      gather(op, from, convert(Scalar::of_int(I32, 0), from.base->type.dtype));
  std::unordered_map<int64_t, int64_t> writers;  // by offset of an element: the row
  for_each_element(from, to, rows, [&](int64_t row, const Shape& index, size_t number) {
    const auto offset = to.locate(index.data());
    if (!offset) return;
    const auto [writer, is_new] = writers.try_emplace(*offset, row);
    if (!is_new)
      throw UserError(op.loc,
                      fmt::format("scatter: rows {} and {} both have the index {}", writer->second,
                                  row, rows[static_cast<size_t>(row)].i),
                      "give each row of the destination one row, and the others -1");
    write_element(*to.base, *offset, convert(values[number], to.base->type.dtype));
  });
}

void Interpreter::run_device_assert(const Op& op) {
  if (integer(op.operands[0])) return;
  if (!failed_.op) failed_ = {&op, block_};
}

void Interpreter::run_watch(const Op& op) const {
  const View& tile = view(op.operands[0]);
  const Type& type = kernel_.type(op.operands[0]);
  const std::string headline = watch_headline(op.loc, op.word("text"));
  const auto element = [&](int64_t number) {
    Shape index(tile.extents.size());
    for (size_t axis = index.size(); axis-- > 0;) {
      index[axis] = number % tile.extents[axis];
      number /= tile.extents[axis];
    }
    const auto offset = tile.locate(index.data());
    const Storage& base = *tile.base;
    const bool known = offset && base.is_written(*offset);
    return known ? std::optional(read_element(op, base, *offset)) : std::nullopt;
  };
  log_message(LogLevel::Output, watch_text(headline, block_, type, element));
}

}  // namespace kiln::interp
