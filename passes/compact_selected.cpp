// selected row { body }  →  for chunks of the row {
//                             words: which positions are selected, a bit each
//                             ends[w]: how many are in words 0 … w
//                             list[ends[w] - how many from there on in its word] = position
//                             for entries of the list { body }
//                           }
// The loop over entries has no guards, so that what its rounds copy can be fetched ahead across the
// gaps. Positions of a chunk fit in 16 bits; of a list of indices the elements themselves are kept.
// Every block does this before its work, so it is made of few steps in which all threads meet:
// words are put together within a warp, and then everybody counts their bits.
#include "passes/passes.h"
#include "passes/rewrite.h"
#include "passes/selected_row.h"

namespace kiln {
namespace {

constexpr int64_t kListBytes = 1024;  // of shared memory
constexpr int64_t kBits = 32;         // of a word

class Compaction {
 public:
  Compaction(Builder& build, const Op& op)
      : build_(build),
        row_(build, op.operands[0]),
        dtype_(build.kernel().type(op.operands[0]).dtype),
        kept_(is_list() ? I32 : I16),
        chunk_(kListBytes / static_cast<int64_t>(size_of(kept_))),
        words_(chunk_ / kBits),
        stages_(op.integer("stages")) {
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
    loop(build_, zero, count, stages_, [&](Value entry) {
      Value kept = build_.load(list, {entry});
      body(is_list() ? kept : binary(OpCode::Add, first_, build_.cast(kept, I32)));
    });
  }

 private:
  bool is_list() const { return dtype_ == I32; }
  Value constant(int64_t value) { return build_.constant(I32, value); }
  Value binary(OpCode code, Value a, Value b) { return build_.binary(code, a, b); }
  // body(index, position): all positions of the chunk, as words of bits.
  template <class Body>
  void each(Body&& body) {
    build_.parallel({words_, kBits}, [&](std::span<const Value> index) {
      Value before = binary(OpCode::Mul, index[0], constant(kBits));
      body(index, binary(OpCode::Add, before, index[1]));
    });
  }

  // The number of entries.
  Value fill(Value list) {
    Value bits = build_.alloc(Space::Fragment, U32, {words_, kBits});
    Value elements;
    if (is_list()) elements = build_.alloc(Space::Fragment, I32, {words_, kBits});
    each([&](auto index, Value j) {
      Value element = row_.load(binary(OpCode::Add, first_, j));
      if (elements) build_.store(element, elements, copied(index));
      Value inside = build_.compare("lt", j, rest_);
      Value is = binary(OpCode::And, inside, is_selected(element));
      Value one = build_.constant(U32, 1), none = build_.constant(U32, 0);
      Value bit = binary(OpCode::Shl, one, build_.cast(index[1], U32));
      build_.store(build_.select(is, bit, none), bits, copied(index));
    });
    if (is_list()) drop_repeated(elements, bits, list);
    Value words = build_.alloc(Space::Fragment, U32, {words_});
    reduce("or", bits, words);
    Value ends = build_.alloc(Space::Shared, I32, {words_});
    build_.emit(OpCode::Copy, {running_counts(words), ends});
    each([&](auto index, Value j) {
      Value bit = build_.load(bits, copied(index));
      Value is = build_.compare("ne", bit, build_.constant(U32, 0));
      Value word = build_.load(words, {index[0]});
      Value behind = bit_count(binary(OpCode::Shr, word, build_.cast(index[1], U32)));
      Value end = build_.load(ends, {index[0]});
      // What is stored outside of the list is dropped.
      Value place = build_.select(is, binary(OpCode::Sub, end, behind), constant(-1));
      build_.store(elements ? build_.load(elements, copied(index)) : j, list, {place});
    });
    Value count = build_.load(ends, {constant(words_ - 1)});
    return binary(OpCode::Min, count, constant(chunk_));  // as it is: that is now known
  }

  // For each word, how many bits are set up to its end: every thread counts those of all words.
  Value running_counts(Value words) {
    Value all = build_.alloc(Space::Shared, U32, {words_});
    build_.emit(OpCode::Copy, {words, all});
    Value counts = build_.alloc(Space::Fragment, I32, {words_, words_});
    build_.parallel({words_, words_}, [&](std::span<const Value> index) {
      Value counted = build_.compare("le", index[1], index[0]);
      Value count = bit_count(build_.load(all, {index[1]}));
      build_.store(build_.select(counted, count, constant(0)), counts, copied(index));
    });
    Value ends = build_.alloc(Space::Fragment, I32, {words_});
    reduce("sum", counts, ends);
    return ends;
  }

  void reduce(const char* kind, Value source, Value destination) {
    Attrs attrs;
    attrs.set("kind", std::string(kind));
    attrs.set("dim", int64_t{1});
    build_.emit(OpCode::Reduce, {source, destination}, std::move(attrs));
  }

  // How many bits of a word are set: sums of 2, 4, 8 bits, then of the four bytes.
  Value bit_count(Value word) {
    const auto number = [&](uint32_t value) { return build_.constant(U32, int64_t{value}); };
    const auto shifted = [&](Value of, uint32_t by) { return binary(OpCode::Shr, of, number(by)); };
    const auto masked = [&](Value of, uint32_t by) { return binary(OpCode::And, of, number(by)); };
    Value pairs = binary(OpCode::Sub, word, masked(shifted(word, 1), 0x55555555));
    Value even = masked(pairs, 0x33333333);
    Value fours = binary(OpCode::Add, even, masked(shifted(pairs, 2), 0x33333333));
    Value bytes = masked(binary(OpCode::Add, fours, shifted(fours, 4)), 0x0F0F0F0F);
    Value sum = shifted(binary(OpCode::Mul, bytes, number(0x01010101)), 24);
    return build_.cast(sum, I32);
  }

  static std::vector<Value> copied(std::span<const Value> index) {
    return {index.begin(), index.end()};
  }

  Value is_selected(Value element) {
    if (!is_list()) return build_.compare("ne", element, build_.constant(dtype_, 0));
    Value valid = build_.compare("ge", element, constant(0));
    if (!limit_) return valid;
    return binary(OpCode::And, valid, build_.compare("lt", element, limit_));
  }

  // An index counts where it appears first: all equal ones behind it go. The chunk's own elements
  // are in the list's place until it is made.
  void drop_repeated(Value elements, Value bits, Value list) {
    build_.emit(OpCode::Copy, {elements, build_.reshape(list, I32, {words_, kBits})});
    loop(build_, row_.begin(), first_, 0,
         [&](Value position) { drop(row_.load(position), {}, elements, bits); });
    Value none = constant(0), here = binary(OpCode::Min, rest_, constant(chunk_));
    loop(build_, none, here, 0,
         [&](Value position) { drop(build_.load(list, {position}), position, elements, bits); });
  }
  // The ones equal to `element`, which is at a place of the chunk, or before it if none is given.
  void drop(Value element, Value place, Value elements, Value bits) {
    each([&](auto index, Value j) {
      Value repeated = build_.compare("eq", build_.load(elements, copied(index)), element);
      if (place) repeated = binary(OpCode::And, repeated, build_.compare("lt", place, j));
      Value bit = build_.load(bits, copied(index));
      build_.store(build_.select(repeated, build_.constant(U32, 0), bit), bits, copied(index));
    });
  }

  Builder& build_;
  SelectedRow row_;
  const DType dtype_;    // of the row
  const DType kept_;     // of the list
  const int64_t chunk_;  // positions
  const int64_t words_;  // of their bits
  const int64_t stages_;
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
