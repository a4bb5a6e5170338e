// watch: the elements are copied to a row-major image with the dtype's own bits, which a function
// of this program writes out.
#include "codegen/host_emit_impl.h"
#include "codegen/host_ops_impl.h"
#include "ir/log.h"
#include "ir/memory.h"
#include "ir/report.h"

namespace kiln::host {
namespace {

llvm::GlobalVariable* constant_data(Builder& b, llvm::Constant* data) {
  return new llvm::GlobalVariable(b.module, data->getType(), true,
                                  llvm::GlobalValue::PrivateLinkage, data);
}

}  // namespace

void report_watch(const char* headline, int64_t space, int64_t dtype, int64_t rank,
                  const int64_t* shape, const std::byte* image, int64_t x, int64_t y, int64_t z) {
  const auto element = static_cast<DType>(dtype);
  const Type type = Type::tile(static_cast<Space>(space), element, Shape(shape, shape + rank));
  const auto value = [&](int64_t number) {
    return std::optional(
        load_element(element, image + number * static_cast<int64_t>(size_of(element))));
  };
  log_message(LogLevel::Output, watch_text(headline, {x, y, z}, type, value));
}

void Emitter::emit_watch(const Op& op) {
  auto& ir = b.ir;
  const Type type = kernel_.type(op.operands[0]);
  const Place image = new_image(type.dtype, type.shape);
  emit_copy(place(op.operands[0]), image, 0);

  auto& context = ir.getContext();
  const std::vector<uint64_t> shape(type.shape.begin(), type.shape.end());
  Val headline = constant_data(b, llvm::ConstantDataArray::getString(context, op.word("text")));
  Val extents = constant_data(b, llvm::ConstantDataArray::get(context, shape));
  llvm::Type *pointer = ir.getPtrTy(), *word = ir.getInt64Ty();
  llvm::FunctionCallee callee = b.module.getOrInsertFunction(
      "kiln_watch",
      llvm::FunctionType::get(
          ir.getVoidTy(), {pointer, word, word, word, pointer, pointer, word, word, word}, false));
  ir.CreateCall(
      callee, {headline, b.i64(static_cast<int64_t>(type.space)),
               b.i64(static_cast<int64_t>(type.dtype)), b.i64(type.rank()), extents, image.pointer,
               function_->getArg(1), function_->getArg(2), function_->getArg(3)});
}

}  // namespace kiln::host
