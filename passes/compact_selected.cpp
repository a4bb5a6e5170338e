// selected row { body }  →  for chunks of the row {
//                             flags: which positions are selected; counts = cumsum flags
//                             list[counts - 1] = position, of those that are
//                             for entries of the list { body }
//                           }
// The loop over entries has no guards, so that what its rounds copy can be fetched ahead across the
// gaps. Positions of a chunk fit in 16 bits; of a list of indices the elements themselves are kept.
#include "passes/passes.h"
#include "passes/rewrite.h"
#include "passes/selected_row.h"

namespace kiln {
namespace {

constexpr int64_t kListBytes = 1024;  // of shared memory

class Compaction {
 public:
  Compaction(Builder& build, const Op& op)
      : build_(build),
        row_(build, op.operands[0]),
        dtype_(build.kernel().type(op.operands[0]).dtype),
        kept_(is_list() ? I32 : I16),
        chunk_(kListBytes / static_cast<int64_t>(size_of(kept_))),
        stages_(op.integer("stages")),
        schedule_(op.word("schedule")) {
    if (is_list()) row_.clip();
    row_.at_most(op.operand(is_list() ? 2 : 1));
    if (is_list()) limit_ = op.operand(1);
  }

  // body(index) makes the rounds.
  template <class Body>
  void run(Body&& body) {
    Value step = constant(chunk_);
    const RegionId region =
        build_.add_region(build_.emit(OpCode::For, {row_.begin(), row_.end(), step}));
    first_ = build_.kernel().add_argument(region, Type::scalar(I32));
    Builder::Scope scope(build_, region);
    rest_ = binary(OpCode::Sub, row_.end(), first_);
    Value list = build_.alloc(Space::Shared, kept_, {chunk_});
    Value zero = constant(0), count = fill(list);
    loop(
        build_, zero, count, stages_,
        [&](Value entry) {
          Value kept = build_.load(list, {entry});
          body(is_list() ? kept : binary(OpCode::Add, first_, build_.cast(kept, I32)));
        },
        schedule_);
  }

 private:
  bool is_list() const { return dtype_ == I32; }
  Value constant(int64_t value) { return build_.constant(I32, value); }
  Value binary(OpCode code, Value a, Value b) { return build_.binary(code, a, b); }
  template <class Body>
  void each(Body&& body) {
    build_.parallel({chunk_}, [&](std::span<const Value> index) { body(index[0]); });
  }

  // The number of entries.
  Value fill(Value list) {
    Value flags = build_.alloc(Space::Fragment, I16, {chunk_});
    Value elements;
    if (is_list()) elements = build_.alloc(Space::Fragment, I32, {chunk_});
    each([&](Value j) {
      Value element = row_.load(binary(OpCode::Add, first_, j));
      if (elements) build_.store(element, elements, {j});
      Value inside = build_.compare("lt", j, rest_);
      Value is = binary(OpCode::And, inside, is_selected(element));
      build_.store(build_.cast(is, I16), flags, {j});
    });
    if (is_list()) drop_repeated(elements, flags);
    Value counts = build_.alloc(Space::Shared, I16, {chunk_});
    Attrs attrs;
    attrs.set("dim", int64_t{0});
    build_.emit(OpCode::Cumsum, {flags, counts}, std::move(attrs));
    each([&](Value j) {
      Value is = build_.compare("ne", build_.load(flags, {j}), build_.constant(I16, 0));
      Value before = build_.cast(build_.load(counts, {j}), I32);
      // What is stored outside of the list is dropped.
      Value place = build_.select(is, binary(OpCode::Sub, before, constant(1)), constant(-1));
      build_.store(elements ? build_.load(elements, {j}) : j, list, {place});
    });
    return build_.cast(build_.load(counts, {constant(chunk_ - 1)}), I32);
  }

  Value is_selected(Value element) {
    if (!is_list()) return build_.compare("ne", element, build_.constant(dtype_, 0));
    Value valid = build_.compare("ge", element, constant(0));
    if (!limit_) return valid;
    return binary(OpCode::And, valid, build_.compare("lt", element, limit_));
  }

  // An index counts where it appears first: of each element, all equal ones behind it go.
  void drop_repeated(Value elements, Value flags) {
    Value here = binary(OpCode::Min, rest_, constant(chunk_));
    Value end = binary(OpCode::Add, first_, here);
    loop(build_, row_.begin(), end, 0, [&](Value position) {
      Value earlier = row_.load(position), at = binary(OpCode::Sub, position, first_);
      each([&](Value j) {
        Value same = build_.compare("eq", build_.load(elements, {j}), earlier);
        Value repeated = binary(OpCode::And, same, build_.compare("lt", at, j));
        Value flag = build_.load(flags, {j});
        build_.store(build_.select(repeated, build_.constant(I16, 0), flag), flags, {j});
      });
    });
  }

  Builder& build_;
  SelectedRow row_;
  const DType dtype_;    // of the row
  const DType kept_;     // of the list
  const int64_t chunk_;  // positions
  const int64_t stages_;
  const std::string schedule_;
  Value limit_;
  Value first_, rest_;  // position of a chunk; positions from there on
};

struct Lowering {
  Kernel& kernel;
  ValueMap& names;

  bool operator()(Builder& build, OpId id) {
    const Op op = kernel.op(id);
    if (op.code != OpCode::Selected || op.integer("stages") < 1) return false;
    Compaction(build, op).run([&](Value index) {
      names[kernel.region(op.regions[0]).args[0].id] = index;
      rewrite(kernel, op.regions[0], names, *this);
      move_ops(kernel, op.regions[0], build.region());
    });
    return true;
  }
};

}  // namespace

void compact_selected(Kernel& kernel) {
  ValueMap names;
  rewrite(kernel, kernel.body, names, Lowering{kernel, names});
}

}  // namespace kiln
